#include "invar/optim/optimizer.h"

#include <gtest/gtest.h>

#include "invar/core/formats.h"
#include "invar/optim/specs.h"
#include "tests/core/expect_error.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

// Made by tests/models/golden.py with PyTorch 1.13: the weights after each of five steps.
const GoldenStep kGolden[] = {
    {"sgd", 0, {0.5f, -1.34916651f, 2.02555418f, 0.915852904f, -0.792737961f}},
    {"sgd", 1, {0.421667308f, -1.40071666f, 2.11717081f, 0.821222901f, -0.748485923f}},
    {"sgd", 2, {0.324282557f, -1.36563838f, 2.20551634f, 0.787724078f, -0.650732934f}},
    {"sgd", 3, {0.281544566f, -1.27047813f, 2.22373247f, 0.840707719f, -0.573456466f}},
    {"sgd", 4, {0.325796604f, -1.18725133f, 2.15803385f, 0.940076828f, -0.575137854f}},
    {"momentum", 0, {0.5f, -1.34916651f, 2.02555418f, 0.915852904f, -0.792737961f}},
    {"momentum", 1, {0.421667308f, -1.48996651f, 2.14016938f, 0.745490491f, -0.786950111f}},
    {"momentum", 2, {0.253783137f, -1.58160818f, 2.33166862f, 0.558665514f, -0.683988035f}},
    {"momentum", 3, {0.0599493906f, -1.5689255f, 2.5222342f, 0.443506658f, -0.514045715f}},
    {"momentum", 4, {-0.0702489242f, -1.47428429f, 2.62804461f, 0.439232796f, -0.362779021f}},
    {"nesterov", 0, {0.499049991f, -1.43604136f, 2.04475284f, 0.838220537f, -0.829777181f}},
    {"nesterov", 1, {0.348864675f, -1.61057055f, 2.23401809f, 0.587861776f, -0.778131962f}},
    {"nesterov", 2, {0.0989525765f, -1.65283513f, 2.48735404f, 0.383695602f, -0.585015774f}},
    {"nesterov", 3, {-0.119398221f, -1.53994846f, 2.66774082f, 0.330563903f, -0.351952434f}},
    {"nesterov", 4, {-0.193054959f, -1.36442554f, 2.68603683f, 0.42357865f, -0.214796677f}},
    {"adam", 0, {0.400000215f, -1.35000002f, 2.0999999f, 0.899999976f, -0.850000024f}},
    {"adam", 1, {0.325162709f, -1.44358253f, 2.18900895f, 0.799865603f, -0.841166973f}},
    {"adam", 2, {0.239124581f, -1.49209321f, 2.28289628f, 0.708554804f, -0.783367634f}},
    {"adam", 3, {0.15361324f, -1.4853586f, 2.36646914f, 0.660340786f, -0.71165967f}},
    {"adam", 4, {0.102262504f, -1.45367312f, 2.40303946f, 0.657967389f, -0.651429653f}},
    {"adamw", 0, {0.495000005f, -1.33749998f, 2.07999992f, 0.889999986f, -0.842500031f}},
    {"adamw", 1, {0.412470907f, -1.41681731f, 2.15076661f, 0.780771255f, -0.821231127f}},
    {"adamw", 2, {0.318819821f, -1.44553399f, 2.225559f, 0.683789968f, -0.748946071f}},
    {"adamw", 3, {0.22855109f, -1.4133358f, 2.28645897f, 0.639307439f, -0.663535953f}},
    {"adamw", 4, {0.182100073f, -1.3549391f, 2.2921164f, 0.647316515f, -0.595687807f}},
    {"groups", 0, {0.5f, -1.45000005f, 2.20000005f, 0.944999993f, -0.796250045f}},
    {"groups", 1, {0.351172626f, -1.63756454f, 2.37934875f, 0.890208185f, -0.788767576f}},
    {"groups", 2, {0.17951566f, -1.73759758f, 2.56787705f, 0.840170085f, -0.756344497f}},
    {"groups", 3, {0.00884839892f, -1.72782278f, 2.7369709f, 0.812264025f, -0.717012525f}},
    {"groups", 4, {-0.093223989f, -1.66785491f, 2.81577897f, 0.807527184f, -0.683711946f}},
};

std::vector<ParameterGroup> groups_of(const std::string& name, Weights& model) {
    std::vector<Parameter*> all = model.parameters();
    if (name == "groups") {
        OptimizerSpec first = named_spec("adamw", 0), second = named_spec("adamw", 0.1);
        first.lr = 0.2, second.lr = 0.05;
        return {{{all[0]}, first}, {{all[1]}, second}};
    }
    OptimizerSpec spec = named_spec(name, name == "adamw" ? 0.1 : name == "nesterov" || name == "adam" ? 0.01 : 0);
    if (name == "adamw") spec.beta1 = 0.8, spec.beta2 = 0.95;
    return {{all, spec}};
}

class OptimizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(OptimizerGolden, FollowsPyTorch) {
    Weights model;
    Optimizer optimizer(groups_of(GetParam(), model));
    const auto step = [&](int number) {
        set_wave_gradients(model, number);
        optimizer.step();
    };
    EXPECT_EQ(follow_golden(kGolden, GetParam(), model, step), 5);
}
INSTANTIATE_TEST_SUITE_P(All, OptimizerGolden,
                         testing::Values("sgd", "momentum", "nesterov", "adam", "adamw", "groups"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Clipping, ByNormMatchesPyTorch) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(1));
    set_gradient(model.a, {3, -4, 12});
    EXPECT_DOUBLE_EQ(clip_grad_norm(optimizer, 1.0), 13.0);
    const std::vector<float> clipped = model.a.value.grad().to_vector<float>();
    EXPECT_FLOAT_EQ(clipped[0], 0.23076921701431274f);
    EXPECT_FLOAT_EQ(clipped[1], -0.307692289352417f);
    EXPECT_FLOAT_EQ(clipped[2], 0.923076868057251f);
}

TEST(Clipping, ByNormLeavesSmallGradientsAlone) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(1));
    set_gradient(model.a, {3, -4, 12});
    EXPECT_DOUBLE_EQ(clip_grad_norm(optimizer, 14.0), 13.0);
    EXPECT_EQ(model.a.value.grad().to_vector<float>(), (std::vector<float>{3, -4, 12}));
}

TEST(Clipping, ByValueMatchesPyTorch) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(1));
    set_gradient(model.a, {3, -4, 12});
    clip_grad_value(optimizer, 3.5);
    EXPECT_EQ(model.a.value.grad().to_vector<float>(), (std::vector<float>{3, -3.5, 3.5}));
}

TEST(Clipping, InTheFusedStepWorksOnUnscaledGradients) {
    Weights by_norm, by_value;
    Optimizer norm(by_norm, sgd_spec(1)), value(by_value, sgd_spec(1));
    ScaleState scale;
    scale.scale = 1024;
    set_gradient(by_norm.a, {3, -4, 12}, 1024);
    set_gradient(by_value.a, {3, -4, 12}, 1024);
    norm.step_scaled(&scale, {ClipSpec::Kind::norm, 1.0f});
    value.step_scaled(&scale, {ClipSpec::Kind::value, 3.5f});
    EXPECT_FLOAT_EQ(by_norm.values()[2], 2.0f - 0.923076868057251f);
    EXPECT_FLOAT_EQ(norm.state().grad_norm, 13.0f);
    EXPECT_EQ(by_value.values()[0], 0.5f - 3.0f);
    EXPECT_EQ(by_value.values()[1], -1.25f + 3.5f);
    EXPECT_EQ(by_value.values()[2], 2.0f - 3.5f);
}

TEST(Clipping, RefusesNegativeLimits) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(1));
    EXPECT_ERROR(clip_grad_norm(optimizer, -1), UsageError, "negative");
    EXPECT_ERROR(clip_grad_value(optimizer, -1), UsageError, "not above 0");
}

class Skipping : public testing::TestWithParam<OptimizerSpec::Kind> {};

// Every parameter in turn gets one bad value at its first and at its last place.
TEST_P(Skipping, LeavesWeightsShadowAndMomentsToTheBit) {
    for (const float bad : {kInf, -kInf, kNan})
        for (const Dtype shadow : {Dtype::f16, Dtype::bf16})
            for (const int which : {0, 1})
                for (const bool last : {false, true}) {
                    Weights model;
                    OptimizerSpec spec;
                    spec.kind = GetParam();
                    spec.momentum = 0.9, spec.weight_decay = 0.1;
                    Optimizer optimizer(model, spec, {Dtype::f32, shadow});
                    optimizer.set_schedule({.kind = ScheduleSpec::Kind::step, .gamma = 0.5});
                    set_wave_gradients(model, 0);
                    optimizer.step();
                    const std::string before = state_bytes(optimizer);
                    const double lr = optimizer.learning_rate();
                    set_wave_gradients(model, 1);
                    const Tensor grad = model.parameters()[std::size_t(which)]->value.grad();
                    grad.data<float>()[last ? grad.numel() - 1 : 0] = bad;
                    optimizer.step({ClipSpec::Kind::norm, 1.0f});
                    EXPECT_EQ(state_bytes(optimizer), before);
                    EXPECT_EQ(optimizer.learning_rate(), lr);
                    EXPECT_EQ(optimizer.state().taken, 1);
                    EXPECT_EQ(optimizer.state().skipped, 1);
                    EXPECT_EQ(optimizer.state().skipped_in_a_row, 1);
                    EXPECT_EQ(optimizer.state().nonfinite, 1);
                    EXPECT_TRUE(optimizer.state().skip);
                    set_wave_gradients(model, 1);
                    optimizer.step();
                    EXPECT_NE(state_bytes(optimizer), before);
                    EXPECT_EQ(optimizer.state().skipped_in_a_row, 0);
                }
}
INSTANTIATE_TEST_SUITE_P(All, Skipping,
                         testing::Values(OptimizerSpec::Kind::sgd, OptimizerSpec::Kind::adam,
                                         OptimizerSpec::Kind::adamw));

TEST(Masters, ShadowIsTheRoundedMasterAfterEveryStep) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        Weights model;
        Optimizer optimizer(model, {.lr = 0.037}, {Dtype::f32, dtype});
        for (int step = 0; step < 5; ++step) {
            set_wave_gradients(model, step);
            optimizer.step();
            for (const Parameter* parameter : model.parameters()) {
                const Tensor shadow = parameter->value.shadow();
                ASSERT_EQ(shadow.dtype(), dtype);
                const std::vector<float> masters = parameter->value.to_vector<float>();
                EXPECT_EQ(bytes_of(shadow), bytes_of(Tensor::from(masters, parameter->value.shape(), dtype)));
            }
        }
    }
}

// 1 - 2^-10 lies between two bf16 numbers: rounded at once it is 1 again, in a master the updates add up.
TEST(Masters, KeepSmallUpdatesThatBf16WeightsLose) {
    Weights masters, weights;
    Optimizer mixed(masters, sgd_spec(0x1p-10f), {Dtype::f32, Dtype::bf16}),
        bare(weights, sgd_spec(0x1p-10f), {Dtype::bf16, {}});
    for (int step = 0; step < 64; ++step) {
        set_gradient(masters.b, {1, 0});
        set_gradient(weights.b, {1, 0});
        mixed.step();
        bare.step();
    }
    EXPECT_EQ(weights.b.value.dtype(), Dtype::bf16);
    EXPECT_EQ(weights.b.value.to_vector<float>()[0], 1.0f);
    EXPECT_EQ(masters.b.value.to_vector<float>()[0], 1.0f - 0x1p-4f);
    EXPECT_EQ(masters.b.value.shadow().to_vector<float>()[0], 1.0f - 0x1p-4f);
}

TEST(ParameterStore, ChangesItsShadowInMidTraining) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(0.1), {Dtype::f32, Dtype::f16});
    optimizer.store().set_shadow(Dtype::bf16);
    EXPECT_EQ(model.a.value.shadow().dtype(), Dtype::bf16);
    EXPECT_EQ(model.a.value.shadow().to_vector<float>(), (std::vector<float>{0.5f, -1.25f, 2.0f}));
    optimizer.store().set_shadow({});
    EXPECT_FALSE(model.a.value.shadow());
    set_wave_gradients(model, 1);
    optimizer.step();
}

// optimizer = make_unique<Optimizer>(...) builds the new one before the old one goes.
TEST(ParameterStore, SurvivesTheOneItReplaces) {
    Weights model;
    auto optimizer = std::make_unique<Optimizer>(model, sgd_spec(0.1), StoreOptions{Dtype::f32, Dtype::f16});
    optimizer = std::make_unique<Optimizer>(model, sgd_spec(0.1), StoreOptions{Dtype::f32, Dtype::bf16});
    ASSERT_TRUE(model.a.value.shadow());
    set_gradient(model.a, {1, 1, 1});
    optimizer->step();
    ASSERT_TRUE(model.a.value.grad());
    EXPECT_FLOAT_EQ(model.values()[0], 0.4f);
    optimizer.reset();
    EXPECT_FALSE(model.a.value.grad());
    EXPECT_FLOAT_EQ(model.values()[0], 0.4f);
}

// The weights are then its own: what was a model may be gone before what trained it, in any order of declaration.
TEST(Optimizer, OutlivesItsModel) {
    auto model = std::make_unique<Weights>();
    Optimizer optimizer(*model, named_spec("adam", 0), {Dtype::f32, Dtype::f16});
    const Tensor a = model->a.value;
    set_gradient(model->a, {1, 1, 1});
    model.reset();
    optimizer.step();
    EXPECT_LT(a.to_vector<float>()[0], 0.5f);
    EXPECT_TRUE(optimizer.state_dict().contains("exp_avg.a"));
    optimizer.zero_grad();
    EXPECT_FALSE(a.grad());
}

TEST(Optimizer, WhoseWeightsALaterOneHasTakenOverSaysSoInsteadOfTrainingNothing) {
    Weights model;
    Optimizer first(model, sgd_spec(0.1));
    {
        Optimizer second(model, sgd_spec(0.1));
        set_gradient(model.a, {1, 1, 1});
        const std::string why = "a belongs to an optimizer that was made later";
        EXPECT_ERROR(first.step(), UsageError, why);
        EXPECT_ERROR(first.zero_grad(), UsageError, why);
        EXPECT_ERROR(clip_grad_norm(first, 1), UsageError, why);
        EXPECT_ERROR(first.store().set_shadow(Dtype::f16), UsageError, why);
        second.step();
        EXPECT_FLOAT_EQ(model.values()[0], 0.4f);
    }
    EXPECT_ERROR(first.step(), UsageError, "make one optimizer");
    EXPECT_NO_THROW(first.state_dict());
}

TEST(Optimizer, RefusesAParameterInTwoGroupsAndNoneAtAll) {
    Weights model;
    const std::vector<Parameter*> all = model.parameters();
    EXPECT_ERROR(Optimizer({{all, sgd_spec(1)}, {{all[1]}, sgd_spec(2)}}), UsageError, "b is in two groups");
    EXPECT_ERROR(Optimizer(std::vector<ParameterGroup>{}), UsageError, "no parameters");
}

TEST(Optimizer, RefusesNumbersThatCannotBe) {
    Weights model;
    const auto make = [&](auto change) {
        OptimizerSpec spec;
        change(spec);
        Optimizer optimizer(model, spec);
    };
    EXPECT_ERROR(make([](auto& s) { s.lr = -1; }), UsageError, "learning rate");
    EXPECT_ERROR(make([](auto& s) { s.lr = kNan; }), UsageError, "learning rate");
    EXPECT_ERROR(make([](auto& s) { s.weight_decay = -1; }), UsageError, "weight decay");
    EXPECT_ERROR(make([](auto& s) { s.momentum = 1; }), UsageError, "momentum");
    EXPECT_ERROR(make([](auto& s) { s.nesterov = true; }), UsageError, "nesterov");
    EXPECT_ERROR(make([](auto& s) { s.momentum = -0.1; }), UsageError, "momentum");
    for (const double beta : {-0.1, 1.0}) {
        EXPECT_ERROR(make([&](auto& s) { s.beta1 = beta; }), UsageError, "betas");
        EXPECT_ERROR(make([&](auto& s) { s.beta2 = beta; }), UsageError, "betas");
    }
    EXPECT_NO_THROW(make([](auto& s) { s.beta1 = s.beta2 = 0; }));
    EXPECT_ERROR(make([](auto& s) { s.eps = -1; }), UsageError, "eps");
    EXPECT_ERROR(OptimizerConfig().choose("lion"), UsageError, "there are adam, adamw, sgd");
    EXPECT_ERROR(SchedulerConfig().choose("linear"), UsageError, "one_cycle");
}

TEST(Optimizer, SavesItsMomentsByPyTorchsNamesAndGoesOnFromThem) {
    Weights first, second;
    Optimizer one(first, OptimizerSpec{}), two(second, OptimizerSpec{});
    for (int step = 0; step < 3; ++step) {
        set_wave_gradients(first, step);
        one.step();
    }
    StateDict saved = one.state_dict();
    EXPECT_EQ(saved.size(), 4u);
    EXPECT_TRUE(saved.contains("exp_avg.a") && saved.contains("exp_avg_sq.b"));
    second.load_state_dict(first.state_dict());
    two.load_state_dict(saved);
    two.set_state(one.state());
    set_wave_gradients(first, 3);
    set_wave_gradients(second, 3);
    one.step();
    two.step();
    EXPECT_EQ(state_bytes(one), state_bytes(two));
}

TEST(Optimizer, RefusesAnotherOptimizersState) {
    Weights model, other;
    Optimizer adam(model, OptimizerSpec{});
    OptimizerSpec with_momentum = sgd_spec(0.1);
    with_momentum.momentum = 0.9;
    Optimizer momentum(other, with_momentum);
    const StateDict saved = adam.state_dict();
    EXPECT_ERROR(adam.load_state_dict(momentum.state_dict()), Error, "lacks exp_avg.a");
    EXPECT_ERROR(momentum.load_state_dict(saved), Error, "lacks momentum_buffer.a");
    Weights third;
    Optimizer plain(third, sgd_spec(0.1));
    EXPECT_ERROR(plain.load_state_dict(saved), Error, "exp_avg.a");
    StateDict misshapen = saved;
    misshapen.at("exp_avg.a") = ops::zeros({2});
    EXPECT_ERROR(adam.load_state_dict(misshapen), Error, "expected [3]");
}

}  // namespace
}  // namespace invar
