// The caller's memory seen as a tensor.
#include <gtest/gtest.h>

#include <vector>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

TEST(FromBlob, SeesTheCallersMemoryAndTheCallerSeesTheTensors) {
    std::vector<float> memory{1, 2, 3, 4, 5, 6};
    const Tensor x = Tensor::from_blob(memory.data(), {2, 3});
    EXPECT_EQ(x.raw(), memory.data());
    EXPECT_EQ(ops::sum(x, {1}).to_vector<float>(), (std::vector<float>{6, 15}));
    memory[0] = 10;
    EXPECT_EQ(x.to_vector<float>()[0], 10);
    x.data<float>()[5] = 60;
    EXPECT_EQ(memory[5], 60);
}

TEST(FromBlob, TakesStridesAndAnyDtype) {
    std::vector<std::int64_t> memory{1, 2, 3, 4, 5, 6};
    const Tensor x = Tensor::from_blob(memory.data(), {3, 2}, {.dtype = Dtype::i64, .strides = Shape{1, 3}});
    EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 4, 2, 5, 3, 6}));
    EXPECT_EQ(x.storage()->bytes(), 6 * sizeof(std::int64_t));
    // Every second element: the gap behind the last one is not the tensor's.
    const Tensor gaps = Tensor::from_blob(memory.data(), {3}, {.dtype = Dtype::i64, .strides = Shape{2}});
    EXPECT_EQ(gaps.storage()->bytes(), 5 * sizeof(std::int64_t));
}

TEST(FromBlob, CallsTheDeleterOnceWhenTheLastTensorThatSeesTheMemoryIsGone) {
    std::vector<float> memory{1, 2, 3, 4};
    std::vector<void*> deleted;
    Tensor row;
    {
        Tensor x = Tensor::from_blob(memory.data(), {2, 2}, {.deleter = [&](void* data) { deleted.push_back(data); }});
        row = x[1];
        x = {};
        EXPECT_TRUE(deleted.empty());
    }
    EXPECT_EQ(row.to_vector<float>(), (std::vector<float>{3, 4}));
    row = {};
    EXPECT_EQ(deleted, std::vector<void*>{memory.data()});
}

TEST(FromBlob, IsKeptByAGraphThatBackwardNeedsItFor) {
    std::vector<float> memory{2, 3};
    int deleted = 0;
    Tensor w = ops::ones({2}).set_requires_grad(), y;
    {
        const Tensor x = Tensor::from_blob(memory.data(), {2}, {.deleter = [&](void*) { ++deleted; }});
        y = ops::sum(x * w);
    }
    EXPECT_EQ(deleted, 0);
    backward(y);
    EXPECT_EQ(deleted, 1);
    EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST(FromBlob, IsALeafThatMayLearnAndTellsOfChangesByItsVersion) {
    std::vector<float> memory{2, 3};
    Tensor x = Tensor::from_blob(memory.data(), {2});
    EXPECT_FALSE(x.requires_grad());
    x.set_requires_grad();
    backward(ops::sum(x * x));
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{4, 6}));
    const Tensor y = ops::sum(x * x);
    memory[0] = 7;
    x.bump_version();
    EXPECT_ERROR(backward(y), Error, "changed in place");
}

TEST(FromBlob, IsInNoMemoryStatistics) {
    const std::int64_t before = memory_stats(Device::cpu()).live_total;
    std::vector<float> memory(1000);
    const Tensor x = Tensor::from_blob(memory.data(), {1000});
    EXPECT_EQ(memory_stats(Device::cpu()).live_total, before);
}

TEST(FromBlob, OfNothingIsAnEmptyTensorAndNotAnAbsentOne) {
    int deleted = 0;
    {
        const Tensor x = Tensor::from_blob(nullptr, {0, 3}, {.deleter = [&](void* data) { deleted += !data; }});
        EXPECT_TRUE(x.view());
        EXPECT_EQ(ops::sum(x, {0}).to_vector<float>(), (std::vector<float>{0, 0, 0}));
    }
    EXPECT_EQ(deleted, 1);
}

TEST(FromBlob, SaysWhatCannotBeATensor) {
    alignas(8) char memory[64] = {};
    EXPECT_ERROR(Tensor::from_blob(nullptr, {2}), Error, "no memory was given for f32[2]");
    EXPECT_ERROR(Tensor::from_blob(memory + 2, {2}), Error, "no multiple of 4 bytes");
    EXPECT_ERROR(Tensor::from_blob(memory, {2}, {.strides = Shape{-1}}), Error, "none may be negative");
    EXPECT_ERROR(Tensor::from_blob(memory, {2}, {.strides = Shape{1, 1}}), Error, "strides [1, 1] for f32[2]");
    int deleted = 0;
    EXPECT_ERROR(Tensor::from_blob(memory + 1, {2}, {.deleter = [&](void*) { ++deleted; }}), Error, "f32[2]");
    EXPECT_EQ(deleted, 0) << "what was refused is still the caller's";
}

}  // namespace
}  // namespace invar
