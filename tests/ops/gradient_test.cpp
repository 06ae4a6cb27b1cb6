// Gradients of every op against f64 finite differences.
#include <gtest/gtest.h>

#include <set>

#include "invar/core/memory.h"
#include "invar/ops/apply.h"
#include "invar/ops/ops.h"
#include "tests/ops/cases.h"
#include "tests/ops/rounding.h"

namespace invar::testing {
namespace {

// What the inputs and the incoming gradient are like.
class Gradients : public ::testing::TestWithParam<std::tuple<Layout, Layout>> {};

TEST_P(Gradients, OfEveryOpMatchFiniteDifferences) {
    const auto [inputs, incoming] = GetParam();
    for (const OpCase& op_case : all_cases()) {
        const Prepared prepared = prepare_case(op_case, Dtype::f64, inputs);
        EXPECT_EQ(gradient_mismatch(prepared.run, prepared.leaves, incoming), "") << op_case.name;
    }
}

// No constant inputs: a norm of equal values magnifies the rounding of differences, not of the gradient.
INSTANTIATE_TEST_SUITE_P(Layouts, Gradients,
                         ::testing::Combine(::testing::Values(Layout::dense, Layout::transposed, Layout::sliced,
                                                              Layout::repeated),
                                            ::testing::ValuesIn(kLayouts)),
                         [](const auto& info) {
                             return fmt::format("{}_inputs_{}_gradient", name_of(std::get<0>(info.param)),
                                                name_of(std::get<1>(info.param)));
                         });

class LowPrecisionGradients : public ::testing::TestWithParam<Dtype> {};

TEST_P(LowPrecisionGradients, OfEveryOpAreTheSameHoweverTheIncomingOneLies) {
    for (const OpCase& op_case : all_cases()) {
        const Prepared prepared = prepare_case(op_case, GetParam());
        for (const Layout incoming : kLayouts)
            EXPECT_LE(layout_error(prepared.run, prepared.leaves, incoming, op_case.gradient_terms, GetParam()), 1)
                << op_case.name << ", " << name_of(incoming);
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, LowPrecisionGradients, ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// A sum whose operands differ by leading ones alone: there is nothing to add up, but its gradient may lie anyhow.
TEST(GradientsOfASum, FollowATransposedGradientToAnOperandOfLowerRank) {
    const Tensor x = ops::zeros({1, 2, 3}).set_requires_grad(), position = ops::zeros({2, 3}).set_requires_grad();
    const Tensor y = ops::transpose(x + position, 1, 2);
    backward(y, Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {1, 3, 2}));
    const std::vector<float> expected{1, 3, 5, 2, 4, 6};
    EXPECT_EQ(x.grad().to_vector<float>(), expected);
    EXPECT_EQ(position.grad().to_vector<float>(), expected);
}

// Nothing lies in the cache but what a call lets go of: what it still reads would be handed out again.
TEST(Linear, HoldsABiasThatHadToBeCopiedUntilTheProductIsDone) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16})
        for (const Activation activation :
             {Activation::none, Activation::relu, Activation::gelu_tanh, Activation::gelu}) {
            const Tensor x = ops::ones({4, 3}, dtype), w = ops::zeros({9, 3}, dtype);
            const Tensor bias = ops::slice(ops::full({27}, 2, dtype), 0, 0, 27, 3);
            const Tensor expected = ops::linear(x, w, ops::contiguous(bias), activation);
            release_cached_memory(Device::cpu());
            EXPECT_EQ(ops::linear(x, w, bias, activation).to_vector<double>(), expected.to_vector<double>())
                << name_of(dtype);
        }
}

// The last row of each matrix ends before a whole row step does, where the next matrix begins.
TEST(Matmul, TakesMatricesWhoseRowsAreSlicesOfALargerOne) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
        const Tensor large = Tensor::from(random_values(2 * 14 * 17, -1, 1, 3), {2, 14, 17}, dtype);
        const Tensor rows = ops::slice(large, 1, 0, 13, 3);
        const Tensor x = Tensor::from(random_values(2 * 17 * 4, -1, 1, 4), {2, 17, 4}, dtype);
        EXPECT_EQ(ops::matmul(rows, x).to_vector<double>(), ops::matmul(ops::contiguous(rows), x).to_vector<double>())
            << name_of(dtype);
    }
}

TEST(GradientCheck, GoesOverEveryOpThereIs) {
    std::set<std::string> covered;
    for (const OpCase& op_case : all_cases()) covered.insert(op_case.op());
    for (const OpEntry& entry : registered_ops()) {
        if (!entry.has_gradient) continue;
        EXPECT_TRUE(covered.contains(entry.name) || std::string(entry.name).find("test_") == 0)
            << entry.name << " has no case";
    }
    EXPECT_GT(registered_ops().size(), 50u);
}

// Twice x, with a gradient that says three.
struct WrongGradient {
    static constexpr const char* kName = "test_wrong_gradient";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor forward(Context&, const Tensors& in) {
        const NoGrad no_grad;
        return in[0] * 2.0;
    }
    Tensors backward(Context&, const Tensor& g) { return {g * 3.0}; }
};

TEST(GradientCheck, DetectsAWrongGradient) {
    const Tensor x = Tensor::from(std::vector<double>{1, 2}, {2}).set_requires_grad();
    const std::string mismatch = gradient_mismatch([](const Tensors& in) { return apply(WrongGradient{}, in); }, {x});
    EXPECT_NE(mismatch.find("input 0 element 0"), std::string::npos) << mismatch;
}

TEST(GradientCheck, DetectsAMissingGradient) {
    const Tensor x = Tensor::from(std::vector<double>{1, 2}, {2}).set_requires_grad();
    const Tensor y = Tensor::from(std::vector<double>{1, 2}, {2}).set_requires_grad();
    EXPECT_EQ(gradient_mismatch([](const Tensors& in) { return ops::neg(in[0]); }, {x, y}), "input 1 got no gradient");
}

struct NoCast {
    static constexpr const char* kName = "test_no_cast";
    Tensor forward(Context&, const Tensors& in) { return in[0]; }
    Tensors backward(Context&, const Tensor& g) { return {g}; }
};
struct NoBackward {
    static constexpr const char* kName = "test_no_backward";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor forward(Context&, const Tensors& in) { return in[0]; }
};
static_assert(!OpDefinition<NoCast>, "an op without an autocast class must not compile");
static_assert(!OpDefinition<NoBackward>, "an op without a gradient must not compile");
static_assert(OpDefinition<WrongGradient>);

}  // namespace
}  // namespace invar::testing
