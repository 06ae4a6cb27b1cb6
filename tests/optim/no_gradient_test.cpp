// Parameters that get no gradient, or are frozen: as in PyTorch their weights, moments and counts of steps stand still.
#include <gtest/gtest.h>

#include <utility>

#include "tests/core/expect_error.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

// Made with PyTorch 1.13: the weights after each of six steps, where b has a gradient at steps 1, 2 and 5 alone.
const GoldenStep kGolden[] = {
    {"sgd", 0, {0.499500006f, -1.34791648f, 2.02355409f, 1.0f, -0.75f}},
    {"sgd", 1, {0.420667827f, -1.39811873f, 2.11314702f, 0.90437001f, -0.704997957f}},
    {"sgd", 2, {0.322862387f, -1.36164224f, 2.19937944f, 0.869966805f, -0.606539965f}},
    {"sgd", 3, {0.279801548f, -1.26512039f, 2.2153964f, 0.869966805f, -0.606539965f}},
    {"sgd", 4, {0.323773801f, -1.18062854f, 2.1474824f, 0.869966805f, -0.606539965f}},
    {"sgd", 5, {0.421203047f, -1.171139f, 2.04544067f, 0.939650893f, -0.685300231f}},
    {"momentum", 0, {0.499500006f, -1.34791648f, 2.02355409f, 1.0f, -0.75f}},
    {"momentum", 1, {0.420217812f, -1.48624349f, 2.13434577f, 0.90437001f, -0.704997957f}},
    {"momentum", 2, {0.251058877f, -1.57417321f, 2.32026958f, 0.783899844f, -0.566038132f}},
    {"momentum", 3, {0.0558267683f, -1.55657566f, 2.50349689f, 0.783899844f, -0.566038132f}},
    {"momentum", 4, {-0.075685896f, -1.45595455f, 2.60019922f, 0.783899844f, -0.566038132f}},
    {"momentum", 5, {-0.0962186009f, -1.35563064f, 2.58473706f, 0.745246768f, -0.519775033f}},
    {"adam", 0, {0.400000215f, -1.35000002f, 2.0999999f, 1.0f, -0.75f}},
    {"adam", 1, {0.325162709f, -1.44358253f, 2.18900895f, 0.899999976f, -0.649999976f}},
    {"adam", 2, {0.239124581f, -1.49209321f, 2.28289628f, 0.811754405f, -0.554465473f}},
    {"adam", 3, {0.15361324f, -1.4853586f, 2.36646914f, 0.811754405f, -0.554465473f}},
    {"adam", 4, {0.102262504f, -1.45367312f, 2.40303946f, 0.811754405f, -0.554465473f}},
    {"adam", 5, {0.0959315076f, -1.42346334f, 2.3985517f, 0.791696191f, -0.532409012f}},
    {"adamw", 0, {0.495000005f, -1.33749998f, 2.07999992f, 1.0f, -0.75f}},
    {"adamw", 1, {0.415636331f, -1.41790724f, 2.14887428f, 0.890000045f, -0.642500043f}},
    {"adamw", 2, {0.325651497f, -1.45374465f, 2.22164965f, 0.79309541f, -0.540656328f}},
    {"adamw", 3, {0.237061366f, -1.43431985f, 2.28398013f, 0.79309541f, -0.540656328f}},
    {"adamw", 4, {0.183654562f, -1.38999283f, 2.30054426f, 0.79309541f, -0.540656328f}},
    {"adamw", 5, {0.17585209f, -1.3477627f, 2.27616453f, 0.766281903f, -0.513963878f}},
};

OptimizerSpec spec_of(const std::string& name) {
    return named_spec(name, name == "adamw" ? 0.1 : 0.01);
}

bool b_has_one(int step) {
    return step == 1 || step == 2 || step == 5;
}

void give_gradients(Weights& model, Optimizer& optimizer, int step, float scale = 1.0f) {
    optimizer.zero_grad();
    set_wave_gradients(model, step, scale);
    if (!b_has_one(step)) model.b.value.set_grad({});
}

class WithoutGradient : public testing::TestWithParam<const char*> {};

TEST_P(WithoutGradient, StandsStillAsInPyTorch) {
    Weights model;
    Optimizer optimizer(model, spec_of(GetParam()), {Dtype::f32, Dtype::bf16});
    const auto of_b = [&] {
        std::string bytes = bytes_of(model.b.value) + bytes_of(model.b.value.shadow());
        for (int m = 0; m < optimizer.store().moments(); ++m) bytes += bytes_of(optimizer.store().moment(m, 1));
        return bytes;
    };
    const auto step = [&](int number) {
        const std::string before = of_b();
        give_gradients(model, optimizer, number);
        optimizer.step();
        EXPECT_EQ(of_b() == before, !b_has_one(number)) << "step " << number;
    };
    EXPECT_EQ(follow_golden(kGolden, GetParam(), model, step), 6);
    EXPECT_EQ(optimizer.store().missed_steps(), (std::vector<std::int64_t>{0, 3}));
}

TEST_P(WithoutGradient, IsNotCountedInASkippedStep) {
    Weights smooth, rough;
    Optimizer one(smooth, spec_of(GetParam())), two(rough, spec_of(GetParam()));
    for (int step = 0; step < 6; ++step) {
        give_gradients(smooth, one, step);
        one.step();
        give_gradients(rough, two, step);
        float& spoilt = two.store().gradients().data<float>()[1];
        const float kept = std::exchange(spoilt, kInf);
        two.step();
        spoilt = kept;
        two.step();
    }
    EXPECT_EQ(state_bytes(one), state_bytes(two));
    EXPECT_EQ(two.state().skipped, 6);
}

TEST_P(WithoutGradient, GoesOnFromItsSavedStateToTheBit) {
    Weights first, second;
    Optimizer one(first, spec_of(GetParam())), two(second, spec_of(GetParam()));
    for (int step = 0; step < 6; ++step) {
        give_gradients(first, one, step);
        one.step();
        if (step != 2) continue;
        second.load_state_dict(first.state_dict());
        two.load_state_dict(one.state_dict());
        two.set_state(one.state());
    }
    for (int step = 3; step < 6; ++step) {
        give_gradients(second, two, step);
        two.step();
    }
    EXPECT_EQ(state_bytes(one), state_bytes(two));
    StateDict bad = one.state_dict();
    ASSERT_TRUE(bad.contains("missed_steps.b"));
    bad["missed_steps.c"] = bad.at("missed_steps.b");
    EXPECT_ERROR(two.load_state_dict(bad), Error, "missed_steps.c");
}
INSTANTIATE_TEST_SUITE_P(All, WithoutGradient, testing::Values("sgd", "momentum", "adam", "adamw"),
                         [](const auto& info) { return std::string(info.param); });

// What is left in memory from the step before is no gradient: not for the norm, and not for the search for overflow.
TEST(NoGradient, LeavesNothingOfTheStepBefore) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(0.1));
    optimizer.zero_grad();
    set_gradient(model.a, {3}), set_gradient(model.b, {kNan});
    optimizer.step();
    EXPECT_TRUE(optimizer.state().skip);
    optimizer.zero_grad();
    EXPECT_FALSE(model.b.value.grad());
    set_gradient(model.a, {3});
    optimizer.step();
    EXPECT_EQ(optimizer.state().grad_norm, 3.0f);
    EXPECT_EQ(optimizer.state().taken, 1);
    EXPECT_EQ(clip_grad_norm(optimizer, 10), 3.0);
    EXPECT_FALSE(model.b.value.grad()) << "looking at gradients makes none";
}

TEST(NoGradient, IsTheBeginningWhereNothingWentBackward) {
    Weights model;
    Optimizer optimizer(model, spec_of("adamw"));
    const std::string before = state_bytes(optimizer);
    optimizer.step();
    EXPECT_EQ(bytes_of(optimizer.store().weights()), before.substr(0, optimizer.store().weights().bytes()));
}

TEST(Frozen, StaysSoWhenTheOptimizerIsMadeAndKeepsItsWeights) {
    for (const bool before : {true, false}) {
        Weights model;
        if (before) model.a.value.set_requires_grad(false);
        OptimizerSpec spec = spec_of("adamw");
        Optimizer optimizer(model, spec, {Dtype::f32, Dtype::bf16});
        if (!before) model.a.value.set_requires_grad(false);
        EXPECT_FALSE(model.a.value.requires_grad());
        EXPECT_TRUE(model.b.value.requires_grad());
        const std::vector<float> at_first = model.values();
        for (int step = 0; step < 3; ++step) {
            optimizer.zero_grad();
            backward(ops::sum(model.a.value) + ops::sum(model.b.value));
            optimizer.step();
        }
        const std::vector<float> now = model.values();
        for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(now[i] == at_first[i], i < 3) << i;
        model.a.value.set_requires_grad();  // thawed, it begins with step 1 of Adam: lr along the gradient's sign
        optimizer.zero_grad();
        backward(ops::sum(model.a.value) + ops::sum(model.b.value));
        optimizer.step();
        for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(model.values()[i], at_first[i] * 0.99f - 0.1f, 1e-6) << i;
    }
}

TEST(Gradient, GivenBySetGradIsTaken) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(1));
    optimizer.zero_grad();
    model.a.value.set_grad(Tensor::from<float>({1, 2, 3}, {3}));
    optimizer.step();
    EXPECT_EQ(model.values(), (std::vector<float>{-0.5f, -3.25f, -1.0f, 1.0f, -0.75f}));
    EXPECT_EQ(model.a.value.grad().storage(), optimizer.store().gradients().storage());
}

}  // namespace
}  // namespace invar
