// The moving average of the weights against its formula in double, and what must not move it.
#include "invar/optim/weight_average.h"

#include "invar/nn/layers.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

std::vector<float> averages(const WeightAverage& average, const Optimizer& optimizer) {
    std::vector<float> all;
    for (const auto& [name, tensor] : average.state_dict(optimizer))
        for (const float v : tensor.to_vector<float>()) all.push_back(v);
    return all;
}

// What the average should be, in double.
struct Reference {
    void update(const std::vector<float>& weights, double decay) {
        for (std::size_t i = 0; i < weights.size(); ++i)
            values[i] = n == 0 ? double(weights[i]) : decay * values[i] + (1 - decay) * double(weights[i]);
        ++n;
    }
    std::vector<double> values;
    int n = 0;
};

void expect_near(const std::vector<float>& ours, const std::vector<double>& exact) {
    ASSERT_EQ(ours.size(), exact.size());
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], exact[i], 1e-6) << i;
}

TEST(WeightAverage, TakesTheFirstWeightsAndThenKeepsItsShareOfItself) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(0.3));
    WeightAverage average(model, optimizer, {.decay = 0.9});
    Reference exact{.values = std::vector<double>(5)};
    expect_near(averages(average, optimizer), {0.5, -1.25, 2.0, 1.0, -0.75});
    for (int step = 0; step < 12; ++step) {
        set_wave_gradients(model, step);
        optimizer.step();
        average.update(optimizer);
        exact.update(model.values(), 0.9);
        expect_near(averages(average, optimizer), exact.values);
    }
}

TEST(WeightAverage, ThatKeepsNothingOfItselfIsTheWeights) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(0.3));
    WeightAverage average(model, optimizer, {.decay = 0});
    for (int step = 0; step < 3; ++step) {
        set_wave_gradients(model, step);
        optimizer.step();
        average.update(optimizer);
        EXPECT_EQ(averages(average, optimizer), model.values()) << step;
    }
    EXPECT_THROW(WeightAverage(model, optimizer, {.decay = -0.1}), UsageError);
    EXPECT_THROW(WeightAverage(model, optimizer, {.decay = 1}), UsageError);
}

TEST(WeightAverage, FollowsFasterAtFirstWhereItWarmsUp) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(0.3));
    WeightAverage average(model, optimizer, {.decay = 0.5, .warmup = true});
    Reference exact{.values = std::vector<double>(5)};
    for (int step = 0; step < 12; ++step) {  // (1 + n) / (10 + n) reaches a half at 8
        set_wave_gradients(model, step);
        optimizer.step();
        average.update(optimizer);
        exact.update(model.values(), std::min(0.5, (1.0 + exact.n) / (10.0 + exact.n)));
        expect_near(averages(average, optimizer), exact.values);
    }
}

TEST(WeightAverage, IsNotMovedByAStepThatWasSkipped) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(0.3));
    WeightAverage average(model, optimizer, {.decay = 0.9, .warmup = true});
    Reference exact{.values = std::vector<double>(5)};
    for (int step = 0; step < 9; ++step) {
        set_wave_gradients(model, step);
        const bool bad = step % 3 == 0;  // the first one too
        if (bad) set_gradient(model.b, {kInf});
        const std::vector<float> before = averages(average, optimizer);
        optimizer.step();
        average.update(optimizer);
        if (bad)
            EXPECT_EQ(averages(average, optimizer), before) << step;
        else
            exact.update(model.values(), std::min(0.9, (1.0 + exact.n) / (10.0 + exact.n)));
    }
    expect_near(averages(average, optimizer), exact.values);
}

// In BF16 a share of 1/1000 would move nothing at all.
TEST(WeightAverage, IsInFp32WhereTheWeightsHave16Bits) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(0.3), {Dtype::bf16, std::nullopt});
    WeightAverage average(model, optimizer, {.decay = 0.999});
    Reference exact{.values = std::vector<double>(5)};
    for (int step = 0; step < 40; ++step) {
        set_wave_gradients(model, step);
        optimizer.step();
        average.update(optimizer);
        exact.update(model.values(), 0.999);
    }
    expect_near(averages(average, optimizer), exact.values);
    for (const auto& [name, tensor] : average.state_dict(optimizer)) EXPECT_EQ(tensor.dtype(), Dtype::f32) << name;
}

struct Normed : Module {
    Linear& linear = add<Linear>("linear", 3, 4);
    BatchNorm& norm = add<BatchNorm>("norm", 4);
    Tensor forward(const Tensor& x) override { return norm(linear(x)); }
};

TEST(WeightAverage, HoldsRunningStatisticsTooButNoCounts) {
    Normed model;
    Optimizer optimizer(model, sgd_spec(0.1));
    WeightAverage average(model, optimizer, {.decay = 0.75});
    const auto step = [&](float x) {
        optimizer.zero_grad();
        const Tensor in = Tensor::from<float>({x, 1, 0, -x, 0, 2}, {2, 3});
        backward(ops::sum(model(in)));
        optimizer.step();
        average.update(optimizer);
        return model.norm.running_mean.to_vector<float>();
    };
    const std::vector<float> first = step(1), second = step(5);
    const StateDict state = average.state_dict(optimizer);
    EXPECT_FALSE(state.contains("norm.num_batches_tracked"));
    const std::vector<float> ours = state.at("norm.running_mean").to_vector<float>();
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], 0.75f * first[i] + 0.25f * second[i], 1e-6);
    EXPECT_NE(first, second);
}

TEST(WeightAverage, IsTheModelWhileItIsAppliedAndLeavesNoTraceBehind) {
    Normed model;
    Optimizer optimizer(model, sgd_spec(0.1), {.shadow = Dtype::bf16});
    WeightAverage average(model, optimizer, {.decay = 0.5});
    for (int i = 0; i < 3; ++i) {
        optimizer.zero_grad();
        const Tensor y = model(Tensor::from<float>({1, 2, 3, -1, 0, float(i)}, {2, 3}));
        backward(ops::sum(y * y));
        optimizer.step();
        average.update(optimizer);
    }
    const auto bytes = [&] {
        return state_bytes(optimizer) + bytes_of(model.norm.running_mean) + bytes_of(model.norm.running_var);
    };
    const std::string before = bytes();
    {
        const WeightAverage::Applied applied(&average, optimizer);
        const StateDict now = model.state_dict();
        for (const auto& [name, tensor] : average.state_dict(optimizer))
            EXPECT_EQ(bytes_of(now.at(name)), bytes_of(tensor)) << name;
        EXPECT_EQ(model.linear.weight.value.shadow().to_vector<float>(),
                  ops::cast(model.linear.weight.value, Dtype::bf16).to_vector<float>())
            << "what forward reads is another";
        EXPECT_NE(bytes(), before);
    }
    EXPECT_EQ(bytes(), before);
}

TEST(WeightAverage, GoesOnFromItsState) {
    Weights model, other;
    Optimizer optimizer(model, sgd_spec(0.3)), others(other, sgd_spec(0.3));
    WeightAverage average(model, optimizer, {.decay = 0.9, .warmup = true});
    WeightAverage loaded(other, others, {.decay = 0.9, .warmup = true});
    const auto step = [&](Weights& trained, Optimizer& by, WeightAverage& followed, int number) {
        set_wave_gradients(trained, number);
        by.step();
        followed.update(by);
    };
    for (int i = 0; i < 4; ++i) step(model, optimizer, average, i);
    other.load_state_dict(model.state_dict());
    others.set_state(optimizer.state());
    loaded.load_state_dict(others, average.state_dict(optimizer), average.spec().since);
    for (int i = 4; i < 8; ++i) step(model, optimizer, average, i), step(other, others, loaded, i);
    EXPECT_EQ(averages(loaded, others), averages(average, optimizer));

    StateDict wrong = average.state_dict(optimizer);
    wrong.erase("b");
    EXPECT_THROW(loaded.load_state_dict(others, wrong, 0), Error);
}

}  // namespace
}  // namespace invar
