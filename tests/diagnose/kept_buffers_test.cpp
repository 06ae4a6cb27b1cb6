// A model's buffers are as before at the end of a scope, whatever was done to them in it.
#include "invar/diagnose/kept_buffers.h"

#include <gtest/gtest.h>

#include "invar/ops/ops.h"

namespace invar {
namespace {

struct Counter : Module {
    Counter() : seen(add_buffer("seen", Tensor::from<float>({1, 2, 3}, {3}))) {}
    Tensor forward(const Tensor& x) override { return x; }
    Tensor& seen;
};

TEST(KeptBuffers, PutBackWhatWasWrittenIntoTheSameMemory) {
    Counter model;
    const Tensor alias = model.seen;
    {
        const KeptBuffers kept(model);
        EXPECT_EQ(kept.first_changed(), "");
        model.seen.data<float>()[1] = 9;
        EXPECT_EQ(kept.first_changed(), "seen");
    }
    EXPECT_EQ(model.seen.to_vector<float>(), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(alias.to_vector<float>(), (std::vector<float>{1, 2, 3})) << "whoever holds the tensor sees it too";
    EXPECT_EQ(alias.raw(), model.seen.raw());
}

TEST(KeptBuffers, PutBackTheTensorWhereAnotherOneHasTakenItsPlace) {
    for (const Tensor& other : {ops::zeros({5}), ops::zeros({3}, Dtype::f16), ops::zeros({3, 1})}) {
        Counter model;
        {
            const KeptBuffers kept(model);
            model.seen = other;
        }
        EXPECT_EQ(model.seen.shape(), (Shape{3}));
        EXPECT_EQ(model.seen.dtype(), Dtype::f32);
        EXPECT_EQ(model.seen.to_vector<float>(), (std::vector<float>{1, 2, 3}));
    }
}

}  // namespace
}  // namespace invar
