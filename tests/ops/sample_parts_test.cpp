#include "tests/ops/sample_parts.h"

namespace invar::testing {
namespace {

TEST(SampleParts, HaveTheDropoutOfTheWholeBatch) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::f16})
        expect_dropout_by_samples(dtype, Device::cpu());
}

TEST(SampleParts, HaveTheDroppedWeightsOfTheWholeBatchInAttention) {
    expect_attention_by_samples(Dtype::f64, Device::cpu(), 1e-12);
    expect_attention_by_samples(Dtype::f32, Device::cpu(), 1e-5);
    expect_attention_by_samples(Dtype::bf16, Device::cpu(), 0.02);
}

}  // namespace
}  // namespace invar::testing
