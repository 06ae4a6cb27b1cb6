// An op of its own kind, outside the library's list.
#include <gtest/gtest.h>

#include "invar/invar.h"
#include "invar/ops/shape_tools.h"

using namespace ::invar;
using namespace ::invar::ops;

// BLOCK

TEST(DocsOp, IsCastAndRecordedAsTheTextSays) {
    Tensor x = Tensor::from<float>({1, 2, 3, 4}, {1, 2, 2, 1}, Dtype::f32);
    x.set_requires_grad();
    const Autocast cast(Dtype::f16);
    const Tensor y = upsample_twice(ops::cast(x, Dtype::f16));
    EXPECT_EQ(y.dtype(), Dtype::f32);
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}));
    backward(sum(y));
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{4, 4, 4, 4}));
}
