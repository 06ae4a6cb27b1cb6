// NaN and infinities, followed through every op on the CPU.
#include "tests/ops/nonfinite.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "invar/ops/apply.h"
#include "invar/ops/ops.h"

namespace invar::testing {
namespace {

class NonFinite : public ::testing::TestWithParam<Dtype> {
  protected:
    void SetUp() override { set_threads(1); }  // thousands of tiny ops, for which a second thread is only waited for
    void TearDown() override { set_threads(threads_); }
    int threads_ = threads();
};

TEST_P(NonFinite, IsWashedAwayByNoOpForwardOrBackward) {
    for (const OpCase& op_case : all_cases())
        for (const std::string& where : hidden_by(op_case, GetParam(), Device::cpu())) ADD_FAILURE() << where;
}

TEST_P(NonFinite, StaysWhereDropoutDropsIt) {
    for (const double p : {0.5, 1.0})
        EXPECT_EQ(nan_through_dropout(100, p, GetParam(), Device::cpu()),
                  std::pair(std::int64_t(100), std::int64_t(100)));
}

INSTANTIATE_TEST_SUITE_P(Formats, NonFinite, ::testing::Values(Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Zero where x is NaN, forward and backward.
struct Washer {
    static constexpr const char* kName = "test_washer";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor forward(Context&, const Tensors& in) {
        std::vector<double> values = in[0].to_vector<double>();
        for (double& value : values) value = value == value ? value : 0;
        return Tensor::from(values, in[0].shape(), in[0].dtype());
    }
    Tensors backward(Context& ctx, const Tensor& g) { return {forward(ctx, {g})}; }
};

TEST(NonFiniteCheck, DetectsAnOpThatMakesZeroOfNan) {
    const OpCase washer{"test_washer", [](const Tensors& in) { return apply(Washer{}, in); }, {{{2}}}};
    EXPECT_EQ(hidden_by(washer, Dtype::f32, Device::cpu()).size(), 4u);  // each element, forward and backward
}

TEST(NonFiniteCheck, ExceptsNothingThatIsNotThere) {
    for (const Exception& exception : exceptions())
        EXPECT_TRUE(std::any_of(all_cases().begin(), all_cases().end(), [&](const OpCase& op_case) {
            return op_case.name.starts_with(exception.cases);
        })) << exception.cases;
}

}  // namespace
}  // namespace invar::testing
