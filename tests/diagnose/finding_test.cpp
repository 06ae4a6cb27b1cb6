// What a finding says of tensors, and what the watchers behind it keep of an operation.
#include "invar/diagnose/finding.h"

#include <gtest/gtest.h>

#include <limits>

#include "invar/diagnose/first_bad.h"
#include "invar/diagnose/vanished.h"
#include "invar/ops/ops.h"

namespace invar {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string words_of(const std::vector<float>& values) {
    return range_of("input 0", Tensor::from(values, {std::int64_t(values.size())})).str();
}

TEST(Range, TellsExtremesAndZerosAndWhatIsNotFinite) {
    EXPECT_EQ(words_of({0.5f, -2.0f, 0.25f}), "input 0 f32[3], 0.25 to 2");
    EXPECT_EQ(words_of({0.5f, 0.0f, 2.0f, 1.0f}), "input 0 f32[4], 0.5 to 2, 25% zeros");
    EXPECT_EQ(words_of({0.0f, 0.0f}), "input 0 f32[2], all zero");
    EXPECT_EQ(words_of({1.0f, kInfinity, kNaN, -kInfinity}), "input 0 f32[4], 1 to 1, 2 Inf, 1 NaN");
    EXPECT_EQ(words_of({kNaN, kNaN}), "input 0 f32[2], 2 NaN");
    EXPECT_EQ(words_of({}), "input 0 f32[0]");
}

// An operation as the watcher keeps it, with the same inputs for any try.
InFp32 squared_in_fp32(const std::vector<float>& values) {
    FirstBad kept;
    kept.op = "mul";
    kept.inputs = {Tensor::from(values, {std::int64_t(values.size())}, Dtype::f16)};
    kept.again = [](const Tensors& in) { return in[0] * in[0]; };
    return run_in_fp32(kept, [](const Tensor& input) { return input; });
}

TEST(InFp32, HasTheLargestMagnitudeOfTheResultHoweverSmall) {
    EXPECT_EQ(squared_in_fp32({0.25f, -0.5f}).largest, 0.25);
    EXPECT_EQ(squared_in_fp32({300.0f, 2.0f}).largest, 90000.0) << "beyond FP16";
    EXPECT_TRUE(squared_in_fp32({300.0f}).finite);
    EXPECT_FALSE(squared_in_fp32({kInfinity}).finite);
}

TEST(ZeroTrace, CountsTheZerosThatAnOpIsGivenWhereItsResultHasNoFraction) {
    const auto trace_of = [](const std::vector<float>& values) {
        ZeroTrace trace;
        const std::string module = "head";
        const Tensors inputs = {Tensor::from(values, {std::int64_t(values.size())})};
        const Tensor result = ops::argmax(inputs[0]);
        trace.forward({"argmax", module, inputs, result, {}});
        return trace;
    };
    const ZeroTrace low = trace_of({0.0f, 0.0f, 0.0f, 1.0f}), full = trace_of({1e-9f, 2e-9f, 3e-9f, 1.0f});
    ASSERT_EQ(low.entries.size(), 1u);
    EXPECT_EQ(low.entries[0].zeros, 0.75);
    EXPECT_EQ(full.entries[0].zeros, 0.0);
    const ZeroTrace::Entry* const first = first_vanished(low, full);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(first->module, "head");
}

}  // namespace
}  // namespace invar
