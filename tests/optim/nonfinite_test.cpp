// A NaN in a layer before a ReLU, or in what a loss compares, reaches the gradients: the step is not taken.
#include <gtest/gtest.h>

#include <functional>

#include "invar/amp/autocast.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

// One layer with a loss upon its activation: no other gradient would tell.
struct Layer : Module {
    Layer(const Shape& weight, std::int64_t channels)
        : w(add_parameter("w", ops::full(weight, 0.25))), b(add_parameter("b", ops::full({channels}, 0.5))) {}
    Tensor forward(const Tensor& x) override { return run(x); }
    std::function<Tensor(const Tensor&)> run;
    Parameter &w, &b;
};

// A step upon a mean squared error, after NaN was put into the layer's first bias.
void expect_no_step(Layer& layer, const Tensor& x, Dtype low) {
    Optimizer optimizer(layer, OptimizerSpec{}, {});
    GradScaler scaler;
    layer.b.value.data<float>()[0] = kNan;
    const std::string before = state_bytes(optimizer);
    Tensor loss;
    {
        const Autocast cast(low, low != Dtype::f32);
        const Tensor y = layer(x);
        loss = ops::mse_loss(y, ops::zeros(y.shape()));
    }
    EXPECT_TRUE(std::isnan(loss.item()));
    backward(scaler.scale(loss));
    EXPECT_TRUE(std::isnan(layer.w.value.grad().to_vector<float>()[0]));
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(state_bytes(optimizer), before);
    EXPECT_EQ(scaler.state().backoffs, 1);
}

class NanBeforeRelu : public ::testing::TestWithParam<Dtype> {};

TEST_P(NanBeforeRelu, OfALinearLayerStopsTheStep) {
    Layer layer({3, 4}, 3);
    layer.run = [&](const Tensor& x) { return ops::linear(x, layer.w.value, layer.b.value, Activation::relu); };
    expect_no_step(layer, ops::ones({5, 4}), GetParam());
}

TEST_P(NanBeforeRelu, OfAConvolutionStopsTheStep) {
    Layer layer({3, 2, 2, 2}, 3);
    layer.run = [&](const Tensor& x) {
        return ops::conv2d(x, layer.w.value, layer.b.value, {.activation = Activation::relu});
    };
    expect_no_step(layer, ops::ones({2, 4, 4, 2}), GetParam());
}

TEST_P(NanBeforeRelu, InAMaxPoolStopsTheStep) {
    Layer layer({3, 1, 1, 2}, 3);
    layer.run = [&](const Tensor& x) {
        return ops::max_pool2d(ops::conv2d(x, layer.w.value, layer.b.value), {.activation = Activation::relu});
    };
    expect_no_step(layer, ops::ones({2, 4, 4, 2}), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Formats, NanBeforeRelu, ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(NanInALoss, StopsTheStepWhateverTheLoss) {
    using Loss = Tensor (*)(const Tensor&, const Tensor&);
    const Loss losses[] = {[](const Tensor& a, const Tensor& b) { return ops::mse_loss(a, b); },
                           [](const Tensor& a, const Tensor& b) { return ops::l1_loss(a, b); },
                           [](const Tensor& a, const Tensor& b) { return ops::smooth_l1_loss(a, b, 0.5); },
                           [](const Tensor& a, const Tensor& b) { return ops::bce_with_logits(a, b); }};
    for (const Loss loss : losses) {
        Weights model;
        Optimizer optimizer(model, OptimizerSpec{}, {});
        GradScaler scaler;
        const std::string before = state_bytes(optimizer);
        backward(
            scaler.scale(loss(model(Tensor::from<float>({1, 1, 1}, {3})), Tensor::from<float>({0, kNan, 1}, {3}))));
        scaler.step(optimizer);
        scaler.update();
        EXPECT_EQ(state_bytes(optimizer), before);
        EXPECT_EQ(scaler.state().backoffs, 1);
    }
}

}  // namespace
}  // namespace invar
