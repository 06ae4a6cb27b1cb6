// x[...]: shapes, values and gradients as PyTorch 1.13 gives them, and the errors.
#include "invar/ops/index.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

// 0 to 23 as [2, 3, 4].
Tensor ramp(Dtype dtype = Dtype::f32) {
    return reshape(arange(24, dtype), {2, 3, 4});
}
Tensor whole(const std::vector<std::int64_t>& values, const Shape& shape) {
    return Tensor::from(values, shape);
}
Tensor mask(const std::vector<std::uint8_t>& values, const Shape& shape) {
    return Tensor::from(values, shape, Dtype::boolean);
}
const Tensor kIds = whole({2, -1, 0}, {3}), kRows = whole({0, 1}, {2, 1}), kColumns = whole({3, 0, 1}, {3});
const Tensor kMask = mask({1, 0, 1, 0, 1, 0}, {2, 3});
const Slice kAll{};

struct Golden {
    const char* written;
    Indices indices;
    Shape shape;
    std::vector<int> values;
    bool is_view = true;
};

const Golden kGolden[] = {
    {"x[1]", 1, {3, 4}, {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}},
    {"x[-1, 0]", {-1, 0}, {4}, {12, 13, 14, 15}},
    {"x[:, 1:3]", {kAll, Slice{1, 3}}, {2, 2, 4}, {4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23}},
    {"x[..., ::2]", {Ellipsis{}, Slice{{}, {}, 2}}, {2, 3, 2}, {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22}},
    {"x[..., -3:-1]", {Ellipsis{}, Slice{-3, -1}}, {2, 3, 2}, {1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22}},
    {"x[1, None, :, 3]", {1, NewAxis{}, kAll, 3}, {1, 3}, {15, 19, 23}},
    {"x[0, ..., 1:]", {0, Ellipsis{}, Slice{1}}, {3, 3}, {1, 2, 3, 5, 6, 7, 9, 10, 11}},
    {"x[:, 5:]", {kAll, Slice{5}}, {2, 0, 4}, {}},
    {"x[1, 2, 3]", {1, 2, 3}, {}, {23}},
    {"x[:, ids]",
     {kAll, kIds},
     {2, 3, 4},
     {8, 9, 10, 11, 8, 9, 10, 11, 0, 1, 2, 3, 20, 21, 22, 23, 20, 21, 22, 23, 12, 13, 14, 15},
     false},
    {"x[rows, ids]",
     {kRows, kIds},
     {2, 3, 4},
     {8, 9, 10, 11, 8, 9, 10, 11, 0, 1, 2, 3, 20, 21, 22, 23, 20, 21, 22, 23, 12, 13, 14, 15},
     false},
    {"x[rows, :, columns]",
     {kRows, kAll, kColumns},
     {2, 3, 3},
     {3, 7, 11, 0, 4, 8, 1, 5, 9, 15, 19, 23, 12, 16, 20, 13, 17, 21},
     false},
    {"x[0, :, ids]", {0, kAll, kIds}, {3, 3}, {2, 3, 0, 6, 7, 4, 10, 11, 8}, false},
    {"x[mask]", kMask, {3, 4}, {0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19}, false},
    {"x[mask, 1:]", {kMask, Slice{1}}, {3, 3}, {1, 2, 3, 9, 10, 11, 17, 18, 19}, false},
    {"x[:, mask, 1]", {kAll, mask({0, 1, 1}, {3}), 1}, {2, 2}, {5, 9, 17, 21}, false},
    {"x[..., columns]",
     {Ellipsis{}, kColumns},
     {2, 3, 3},
     {3, 0, 1, 7, 4, 5, 11, 8, 9, 15, 12, 13, 19, 16, 17, 23, 20, 21},
     false},
    {"x[:, ids, columns]", {kAll, kIds, kColumns}, {2, 3}, {11, 8, 1, 23, 20, 13}, false},
    {"x[nothing]", whole({}, {0}), {0, 3, 4}, {}, false},
    {"x[:, 1, ids]", {kAll, 1, kIds}, {2, 3}, {6, 7, 4, 18, 19, 16}, false},
    {"x[ids, None, others]",
     {whole({1, 0, 1}, {3}), NewAxis{}, kIds},
     {3, 1, 4},
     {20, 21, 22, 23, 8, 9, 10, 11, 12, 13, 14, 15},
     false},
    {"x[:, ids, ..., columns]", {kAll, kIds, Ellipsis{}, kColumns}, {2, 3}, {11, 8, 1, 23, 20, 13}, false},
    {"x[one, :, ids]", {whole({1}, {}), kAll, kIds}, {3, 3}, {14, 15, 12, 18, 19, 16, 22, 23, 20}, false},
    {"x[:, one, ids]", {kAll, whole({1}, {}), kIds}, {2, 3}, {6, 7, 4, 18, 19, 16}, false},
    {"x[:, ids, one]", {kAll, kIds, whole({-1}, {})}, {2, 3}, {11, 11, 3, 23, 23, 15}, false},
    {"x[:, one]", {kAll, whole({2}, {})}, {2, 4}, {8, 9, 10, 11, 20, 21, 22, 23}, false},
};

TEST(Indexing, GivesTheShapesAndValuesOfPyTorchInEveryDtypeThatHoldsThem) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::i64, Dtype::i32, Dtype::u8})
        for (const Golden& golden : kGolden) {
            const Tensor x = ramp(dtype), y = x[golden.indices];
            EXPECT_EQ(y.shape(), golden.shape) << golden.written;
            EXPECT_EQ(y.to_vector<std::int64_t>(),
                      std::vector<std::int64_t>(golden.values.begin(), golden.values.end()))
                << golden.written << " in " << name_of(dtype);
            EXPECT_EQ(y.storage() == x.storage(), golden.is_view) << golden.written;
        }
}

TEST(Indexing, TakesAnyWholeNumber) {
    const Tensor x = ramp();
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(x[i].to_vector<float>()[0], float(12 * i));
    EXPECT_EQ((x[{std::int32_t(1), std::uint8_t(2), -1L}]).item(), 23);
}

TEST(Indexing, OfAStridedTensorGoesByItsStrides) {
    const Tensor x = transpose(ramp(), 0, 2);  // [4, 3, 2]
    EXPECT_EQ((x[{1, Slice{0, 3, 2}}]).to_vector<float>(), (std::vector<float>{1, 13, 9, 21}));
    EXPECT_EQ((x[{kColumns, 0}]).to_vector<float>(), (std::vector<float>{3, 15, 0, 12, 1, 13}));
}

// The gradient of the sum of y times 1, 2, 3, ...
std::vector<int> gradient_of(const Indices& indices) {
    Tensor x = ramp().set_requires_grad(false).detach();
    x.set_requires_grad();
    const Tensor y = x[indices];
    backward(y, reshape(arange(y.numel(), Dtype::f32) + 1.0, y.shape()));
    const std::vector<float> gradient = x.grad().to_vector<float>();
    return {gradient.begin(), gradient.end()};
}

TEST(Indexing, SendsGradientsBackToWhereTheyCameFrom) {
    EXPECT_EQ(gradient_of({1, NewAxis{}, Slice{1}, Slice{{}, {}, 2}}),
              (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0}));
    EXPECT_EQ(gradient_of({kAll, kIds}),
              (std::vector<int>{9, 10, 11, 12, 0, 0, 0, 0, 6, 8, 10, 12, 21, 22, 23, 24, 0, 0, 0, 0, 30, 32, 34, 36}));
    EXPECT_EQ(gradient_of({kRows, kAll, kColumns}),
              (std::vector<int>{4, 7, 0, 1, 5, 8, 0, 2, 6, 9, 0, 3, 13, 16, 0, 10, 14, 17, 0, 11, 15, 18, 0, 12}));
    EXPECT_EQ(gradient_of(kMask),
              (std::vector<int>{1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 0, 0, 0, 0, 9, 10, 11, 12, 0, 0, 0, 0}));
    EXPECT_EQ(gradient_of({kAll, whole({1, 1, -2}, {3})}),
              (std::vector<int>{0, 0, 0, 0, 15, 18, 21, 24, 0, 0, 0, 0, 0, 0, 0, 0, 51, 54, 57, 60, 0, 0, 0, 0}));
}

TEST(Indexing, SaysWhatDoesNotFit) {
    const Tensor x = ramp();
    EXPECT_ERROR(x[2], Error, "index: 2 is outside dimension 0 of f32[2, 3, 4] on cpu");
    EXPECT_ERROR((x[{0, -4}]), Error, "index: -4 is outside dimension 1");
    EXPECT_ERROR((x[{0, 0, 0, 0}]), Error, "index: 4 indices for f32[2, 3, 4]");
    EXPECT_ERROR((x[{kMask, 0, 0}]), Error, "index: 4 indices");
    EXPECT_ERROR((x[{Ellipsis{}, Ellipsis{}}]), Error, "more than one Ellipsis");
    EXPECT_ERROR((x[Slice{0, 2, 0}]), Error, "at least 1, not 0");
    EXPECT_ERROR((x[Slice{0, 2, -1}]), Error, "at least 1, not -1");
    EXPECT_ERROR((x[{0, kMask}]), Error, "a mask [2, 3] over dimensions 1 to 2");
    EXPECT_ERROR(x[ones({2})], Error, "must be i64 or bool, not f32[2]");
    EXPECT_ERROR(x[whole({0, 2}, {2})], Error, "index: 2 is outside dimension 0");
    EXPECT_ERROR(x[whole({-3}, {1})], Error, "index: -3 is outside dimension 0");
    EXPECT_ERROR((x[{whole({0, 1}, {2}), kIds}]), Error, "do not broadcast");
    EXPECT_ERROR((x[{NewAxis{}, NewAxis{}, NewAxis{}, NewAxis{}}]), Error, "at most 6 dimensions");
}

TEST(CopyInto, WritesIntoASliceBroadcastAndConverted) {
    const Tensor x = zeros({2, 3});
    copy_(x[{1, Slice{1}}], Tensor::from<std::int64_t>({5, 6}, {2}));
    copy_(x[{kAll, 0}], Tensor::scalar(7));
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{7, 0, 0, 7, 5, 6}));
}

TEST(CopyInto, IsSeenByBackwardAndRefusedWhereAGradientWouldMissIt) {
    const Tensor x = ones({2}).set_requires_grad(), data = ones({2});
    const Tensor y = sum(x * data);
    copy_(data[0], Tensor::scalar(3));
    EXPECT_ERROR(backward(y), Error, "changed in place");
    EXPECT_ERROR(copy_(x[0], Tensor::scalar(1)), Error, "takes part in a gradient");
    EXPECT_ERROR(copy_(data, x), Error, "takes part in a gradient");
    EXPECT_ERROR(copy_(data, zeros({2, 2})), Error, "does not fit in");
    const NoGrad no_grad;
    copy_(x, data);
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{3, 1}));
}

TEST(CopyInto, ReadsWhatOverlapsBeforeItIsWritten) {
    const Tensor m = Tensor::from<float>({1, 2, 3, 4}, {2, 2});
    ops::copy_(m, ops::transpose(m, 0, 1));
    EXPECT_EQ(m.to_vector<float>(), (std::vector<float>{1, 3, 2, 4}));
    EXPECT_ERROR(ops::copy_(ops::expand(Tensor::from<float>({1, 2}, {2, 1}), {2, 3}), m[0][0]), Error, "one in memory");
}

TEST(CopyInto, IsRefusedWhereNobodyWouldSeeIt) {
    const Tensor x = ramp();
    EXPECT_ERROR(copy_(x[kRows], Tensor::scalar(1)), UsageError, "index_put_(x, indices, values)");
    EXPECT_ERROR(copy_(x[kMask], Tensor::scalar(1)), UsageError, "nobody would see");
    // A copy that has a name, memory of the caller's, and a handle to what another one holds are all seen.
    const Tensor picked = x[kMask];
    copy_(picked, Tensor::scalar(1));
    EXPECT_EQ(picked.to_vector<float>(), std::vector<float>(12, 1));
    float memory[2] = {};
    copy_(Tensor::from_blob(memory, {2}), Tensor::scalar(3));
    EXPECT_EQ(memory[1], 3);
    Tensor weights = ones({2}).set_requires_grad();
    weights.set_grad(zeros({2}));
    copy_(weights.grad(), Tensor::scalar(5));
    EXPECT_EQ(weights.grad().to_vector<float>(), (std::vector<float>{5, 5}));
}

// Reading back by the same indices gives what was written, and everything else is as it was.
TEST(IndexPut, WritesWhereIndexingReads) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::i64})
        for (const Golden& golden : kGolden) {
            SCOPED_TRACE(std::string(golden.written) + " in " + std::string(name_of(dtype)));
            const Tensor x = ramp(dtype), before = ramp(dtype);
            const std::vector<std::int64_t> read = x[golden.indices].to_vector<std::int64_t>();
            std::vector<std::int64_t> marked;
            for (const std::int64_t value : read) marked.push_back(100 + value);  // duplicates agree
            index_put_(x, golden.indices, Tensor::from(marked, golden.shape));
            EXPECT_EQ(x[golden.indices].to_vector<std::int64_t>(), marked);
            const std::vector<std::int64_t> after = x.to_vector<std::int64_t>();
            for (std::size_t i = 0; i < after.size(); ++i) {
                const bool written = std::find(read.begin(), read.end(), std::int64_t(i)) != read.end();
                EXPECT_EQ(after[i], std::int64_t(i) + (written ? 100 : 0));
            }
        }
}

TEST(IndexPut, BroadcastsGoesByStridesAndKeepsTheLastOfTwo) {
    const Tensor x = zeros({2, 3});
    index_put_(x, {kAll, whole({0, 2}, {2})}, Tensor::from<double>({1, 2}, {2, 1}));
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 0, 1, 2, 0, 2}));
    index_put_(transpose(x, 0, 1), whole({1, 1}, {2}), Tensor::from<float>({7, 7, 8, 9}, {2, 2}));
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 8, 1, 2, 9, 2}));
    index_put_(x, mask({1, 0, 0, 0, 0, 1}, {2, 3}), Tensor::scalar(0));
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 8, 1, 2, 9, 0}));
    index_put_(x, {1, Slice{1}}, Tensor::scalar(4));
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 8, 1, 2, 4, 4}));
    index_put_(x, kRows[{kAll, 0}], x[whole({1, 0}, {2})]);
    EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 4, 4, 0, 8, 1}));
}

TEST(IndexPut, RefusesWhatCopyRefuses) {
    const Tensor x = ones({2}).set_requires_grad(), data = ones({2}), ids = whole({0}, {1});
    const Tensor y = sum(x * data);
    index_put_(data, ids, Tensor::scalar(3));
    EXPECT_ERROR(backward(y), Error, "changed in place");
    EXPECT_ERROR(index_put_(x, ids, Tensor::scalar(1)), Error, "takes part in a gradient");
    EXPECT_ERROR(index_put_(data, ids, x), Error, "takes part in a gradient");
    EXPECT_ERROR(index_put_(data, ids, ones({2})), Error, "f32[2] on cpu does not fit in the [1] that is picked");
    EXPECT_ERROR(index_put_(data, whole({2}, {1}), ones({1})), Error, "index: 2 is outside dimension 0");
    EXPECT_ERROR(index_put_(expand(ones({1}), {3}), ids, ones({1})), Error, "one in memory");
}

}  // namespace
}  // namespace invar::testing
