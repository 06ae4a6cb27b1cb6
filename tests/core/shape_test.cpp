#include "invar/core/shape.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST(Shape, CountsElementsAndPrintsItself) {
    EXPECT_EQ((Shape{128, 28, 28, 1}).numel(), 128 * 28 * 28);
    EXPECT_EQ((Shape{128, 28, 28, 1}).str(), "[128, 28, 28, 1]");
    EXPECT_EQ(Shape().numel(), 1) << "a scalar";
    EXPECT_EQ(Shape().str(), "[]");
    EXPECT_EQ((Shape{3, 0, 5}).numel(), 0);
}

TEST(Shape, CountsNegativeDimensionsFromTheEnd) {
    Shape shape{2, 3, 4};
    EXPECT_EQ(shape[-1], 4);
    EXPECT_EQ(shape[-3], 2);
    EXPECT_EQ(shape.axis(-2), 1);
    shape[-1] = 9;
    EXPECT_EQ(shape, (Shape{2, 3, 9}));
}

TEST(Shape, RefusesADimensionThatDoesNotExist) {
    const Shape shape{2, 3};
    EXPECT_ERROR(shape[2], Error, "dimension 2 does not exist in shape [2, 3]");
    EXPECT_ERROR(shape[-3], Error, "dimension -3 does not exist in shape [2, 3]");
    EXPECT_ERROR(shape.axis(std::numeric_limits<int>::min()), Error, "does not exist");
    EXPECT_ERROR(Shape()[0], Error, "dimension 0 does not exist in shape []");
}

TEST(Shape, RefusesNegativeSizesAndCountsThatOverflow) {
    EXPECT_ERROR((Shape{2, -1}).numel(), Error, "shape [2, -1] has a negative size");
    EXPECT_ERROR((Shape{kHuge, 2}).numel(), Error, "more elements than fit in 63 bits");
    EXPECT_ERROR((Shape{std::int64_t(1) << 32, std::int64_t(1) << 31}).numel(), Error, "63 bits");
    EXPECT_ERROR((Shape{0, -1}).numel(), Error, "negative size");
    EXPECT_EQ((Shape{kHuge, 1}).numel(), kHuge);
}

TEST(Shape, RefusesMoreDimensionsThanThereIsRoomFor) {
    Shape shape = Shape::filled(kMaxRank, 1);
    EXPECT_ERROR(shape.push_back(1), Error, "at most 6 dimensions");
    EXPECT_ERROR(shape.insert(0, 1), Error, "at most 6 dimensions");
    EXPECT_EQ(shape.rank(), kMaxRank);
    EXPECT_ERROR(Shape(std::vector<std::int64_t>(1000, 1)), Error, "at most 6 dimensions");
}

TEST(Shape, InsertsAndErasesAnywhere) {
    Shape shape{2, 3};
    shape.insert(0, 7);
    EXPECT_EQ(shape, (Shape{7, 2, 3}));
    shape.insert(-1, 8);
    EXPECT_EQ(shape, (Shape{7, 2, 3, 8}));
    shape.insert(2, 9);
    EXPECT_EQ(shape, (Shape{7, 2, 9, 3, 8}));
    shape.erase(-1);
    shape.erase(0);
    EXPECT_EQ(shape, (Shape{2, 9, 3}));
}

TEST(Shape, IsUnchangedByAnInsertOrEraseThatFails) {
    Shape shape{2, 3};
    EXPECT_ERROR(shape.insert(3, 1), Error, "cannot insert at dimension 3");
    EXPECT_ERROR(shape.insert(-4, 1), Error, "cannot insert at dimension -4");
    EXPECT_ERROR(shape.erase(2), Error, "dimension 2 does not exist");
    EXPECT_EQ(shape, (Shape{2, 3}));
}

TEST(Shape, DiffersByRankAsWellAsBySizes) {
    EXPECT_FALSE((Shape{2, 3}) == (Shape{2, 3, 1}));
    EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
    EXPECT_TRUE((Shape{}) == Shape());
}

TEST(Strides, AreThoseOfADenseRowMajorTensor) {
    EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
    EXPECT_EQ(contiguous_strides({5}), (Shape{1}));
    EXPECT_EQ(contiguous_strides({}), Shape());
}

TEST(Broadcast, FollowsNumPy) {
    EXPECT_EQ(broadcast({2, 3}, {3}, "add"), (Shape{2, 3}));
    EXPECT_EQ(broadcast({2, 1}, {1, 3}, "add"), (Shape{2, 3}));
    EXPECT_EQ(broadcast({}, {4, 1}, "add"), (Shape{4, 1}));
    EXPECT_EQ(broadcast({0, 3}, {1, 3}, "add"), (Shape{0, 3})) << "nothing, broadcast with one, stays nothing";
    EXPECT_EQ(broadcast({1}, {0}, "add"), (Shape{0}));
}

TEST(Broadcast, NamesTheOpTheShapesAndTheDimensionThatDoesNotFit) {
    EXPECT_ERROR(broadcast({2, 3, 4}, {2, 4}, "mul"), Error,
                 "mul: shapes [2, 3, 4] and [2, 4] do not broadcast (dimension -2: 3 against 2)");
    EXPECT_ERROR(broadcast({0}, {2}, "add"), Error, "add: shapes [0] and [2] do not broadcast");
}

}  // namespace
}  // namespace invar
