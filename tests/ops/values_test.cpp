// Whole numbers, booleans and places against PyTorch's, and what the ops of those tables refuse.
#include <gtest/gtest.h>

#include <set>
#include <type_traits>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/ops/value_cases.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

TEST(Values, AreThoseOfPyTorch) {
    for (const ValueCase& value_case : value_cases()) EXPECT_EQ(mismatch(value_case), "");
}

TEST(Values, AreKnownForEveryOpWithoutAGradient) {
    std::set<std::string> covered;
    for (const ValueCase& value_case : value_cases()) covered.insert(value_case.op());
    int without = 0;
    for (const OpEntry& entry : registered_ops()) {
        if (entry.has_gradient) continue;
        ++without;
        EXPECT_TRUE(covered.contains(entry.name)) << entry.name << " has no case in value_cases.cpp";
    }
    EXPECT_GE(without, 10);
}

// Whether an if, and with it && and !, takes what an operator gives.
static_assert(!std::is_constructible_v<bool, Mask>, "a comparison of tensors is many answers, not one");
static_assert(std::is_constructible_v<bool, Tensor>);
static_assert(std::is_convertible_v<Mask, Tensor>);

TEST(Comparisons, HaveNoGradientAndTakeTensorsThatDo) {
    const Tensor x = ones({3}).set_requires_grad();
    EXPECT_FALSE((x > 0).requires_grad());
    EXPECT_FALSE((x == x).requires_grad());
    const Tensor y = where(x > 0, x * 2.0, x);
    backward(sum(y));
    EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 2, 2}));
}

TEST(Comparisons, PickByTheirMask) {
    const Tensor x = Tensor::from(std::vector<float>{-1, 2, -3, 4}, {4});
    EXPECT_EQ(x[x > 0].to_vector<float>(), (std::vector<float>{2, 4}));
    EXPECT_EQ((x[(x > 0) & (x < 3)]).to_vector<float>(), (std::vector<float>{2}));
    EXPECT_EQ(x[~(x > 0)].to_vector<float>(), (std::vector<float>{-1, -3}));
}

TEST(Comparisons, RefuseWhatTheyCannotMean) {
    const Tensor x = ones({2, 3}), bytes = ones({2}, Dtype::u8);
    EXPECT_ERROR(eq(x, ones({2})), Error, "eq: shapes [2, 3] and [2]");
    EXPECT_ERROR(bytes == 300, UsageError, "eq: 300 does not fit in u8");
    EXPECT_ERROR(bytes < -1, UsageError, "lt: -1 does not fit in u8");
    EXPECT_NO_THROW(bytes < 300.0);  // both in f32
    EXPECT_ERROR(x & x, UsageError, "&: takes boolean tensors, not f32[2, 3]");
    EXPECT_ERROR(~bytes, UsageError, "~: takes boolean tensors, not u8[2]");
}

TEST(MaskedFill, RefusesWhatTheTensorHasNoPlaceFor) {
    const Tensor mask = ones({2}, Dtype::boolean);
    EXPECT_ERROR(masked_fill(ones({2}, Dtype::i64), mask, std::numeric_limits<double>::infinity()), UsageError,
                 "masked_fill: inf does not fit in i64");
    EXPECT_ERROR(masked_fill(ones({2}, Dtype::u8), mask, 300), UsageError, "300 does not fit in u8");
    EXPECT_ERROR(masked_fill(ones({2}), ones({2}), 1), Error, "the mask must be bool, not f32[2]");
    EXPECT_ERROR(masked_fill(ones({2}), ones({3}, Dtype::boolean), 1), Error, "masked_fill: shapes [2] and [3]");
}

std::vector<std::int64_t> sizes_of(const Tensors& parts, int dim) {
    std::vector<std::int64_t> sizes;
    for (const Tensor& part : parts) sizes.push_back(part.size(dim));
    return sizes;
}
using Sizes = std::vector<std::int64_t>;

TEST(Split, GivesViewsOfPyTorchsSizes) {
    const Tensor x = reshape(arange(14, Dtype::f32), {2, 7});
    EXPECT_EQ(sizes_of(split(x, 3, 1), 1), (Sizes{3, 3, 1}));
    EXPECT_EQ(sizes_of(split(x, 9, 1), 1), (Sizes{7}));
    EXPECT_EQ(sizes_of(split(x, Sizes{2, 0, 5}, -1), 1), (Sizes{2, 0, 5}));
    EXPECT_EQ(sizes_of(split(zeros({0}), 0), 0), (Sizes{0}));
    EXPECT_EQ(sizes_of(split(zeros({0}), 3), 0), (Sizes{0}));
    EXPECT_EQ(sizes_of(chunk(x, 4, 1), 1), (Sizes{2, 2, 2, 1}));
    EXPECT_EQ(sizes_of(chunk(x, 5, 1), 1), (Sizes{2, 2, 2, 1}));  // fewer than asked for
    EXPECT_EQ(sizes_of(chunk(zeros({0}), 3), 0), (Sizes{0, 0, 0}));
    const Tensors parts = split(x, 3, 1);
    EXPECT_EQ(parts[1].to_vector<float>(), (std::vector<float>{3, 4, 5, 10, 11, 12}));
    EXPECT_EQ(parts[1].storage(), x.storage());
}

TEST(Split, RefusesWhatDoesNotAddUp) {
    const Tensor x = ones({7});
    EXPECT_ERROR(split(x, 0), Error, "cannot cut f32[7] on cpu into pieces of 0");
    EXPECT_ERROR(split(x, -1), Error, "pieces of -1");
    EXPECT_ERROR(split(x, Sizes{3, 3}), Error, "(3, 3) does not add up to dimension 0 of f32[7]");
    EXPECT_ERROR(split(x, Sizes{-1, 8}), Error, "a negative size in (-1, 8)");
    EXPECT_ERROR(chunk(x, 0), Error, "at least one piece");
    EXPECT_ERROR(chunk(x, 2, 1), Error, "dimension 1");
}

TEST(Rearranging, RefusesWhatDoesNotFit) {
    const Tensor x = ones({2, 3});
    EXPECT_ERROR(roll(x, {1, 1}), Error, "2 shifts for 0 dimensions");
    EXPECT_ERROR(roll(x, {1, 1}, {0}), Error, "2 shifts for 1 dimensions");
    EXPECT_ERROR(roll(x, {}, {}), Error, "0 shifts");
    EXPECT_ERROR(tril(ones({3})), Error, "tril: needs at least two dimensions, not f32[3]");
    const auto ids = [](const Sizes& values) { return Tensor::from(values, {std::int64_t(values.size())}); };
    EXPECT_ERROR(index_select(x, 0, ids({-1})), Error, "index_select: index -1 at position 0 is outside [0, 2)");
    EXPECT_ERROR(index_select(x, 0, Tensor::from(Sizes{0, 1}, {2, 1})), Error, "must be a vector");
    EXPECT_ERROR(index_select(x, 0, ones({2})), Error, "i64");
    EXPECT_ERROR(one_hot(ids({0, 2}), 2), Error, "one_hot: index 2 at position 1 is outside [0, 2)");
    EXPECT_ERROR(one_hot(ids({0, -2})), Error, "one_hot: index -2");
    EXPECT_ERROR(one_hot(ids({})), UsageError, "how many classes");
    EXPECT_ERROR(one_hot(ids({0}), 0), UsageError, "at least one class");
    EXPECT_ERROR(one_hot(ones({2}), 2), Error, "i64");
}

TEST(Rearranging, TakesWhatHasNoElements) {
    EXPECT_EQ(roll(zeros({0, 3}), {1}, {1}).shape(), (Shape{0, 3}));
    EXPECT_EQ(roll(zeros({0}), {1}).shape(), (Shape{0}));
    EXPECT_EQ(tril(zeros({0, 3})).shape(), (Shape{0, 3}));
    EXPECT_EQ(one_hot(zeros({0}, Dtype::i64), 3).shape(), (Shape{0, 3}));
    EXPECT_EQ(index_select(ones({2, 3}), 1, zeros({0}, Dtype::i64)).shape(), (Shape{2, 0}));
}

}  // namespace
}  // namespace invar::testing
