// NaN and infinities, followed through every op on the GPU: the same places as on the CPU must show them.
#include "tests/ops/nonfinite.h"

#include "tests/gpu/fixture.h"

namespace invar::testing {
namespace {

class GpuNonFinite : public OnGpu<::testing::TestWithParam<Dtype>> {};

TEST_P(GpuNonFinite, IsWashedAwayByNoOpForwardOrBackward) {
    for (const OpCase& op_case : all_cases())
        for (const std::string& where : hidden_by(op_case, GetParam(), Device::cuda())) ADD_FAILURE() << where;
}

TEST_P(GpuNonFinite, StaysWhereDropoutDropsIt) {
    for (const double p : {0.5, 1.0})
        EXPECT_EQ(nan_through_dropout(1001, p, GetParam(), Device::cuda()),
                  std::pair(std::int64_t(1001), std::int64_t(1001)));
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuNonFinite, ::testing::Values(Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace invar::testing
