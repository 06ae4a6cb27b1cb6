// One number for height and width means both, wherever a size over an image is asked for.
#include "invar/ops/pair.h"

#include <gtest/gtest.h>

#include "invar/ops/ops.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

TEST(Pair, IsBothSidesWhereOneNumberIsGiven) {
    const Conv2dOptions conv{.stride = 2, .padding = 1, .dilation = 3, .output_padding = 1};
    EXPECT_EQ(conv.stride, (Pair{2, 2}));
    EXPECT_EQ(conv.padding, (Pair{1, 1}));
    EXPECT_EQ(conv.dilation, (Pair{3, 3}));
    EXPECT_EQ(conv.output_padding, (Pair{1, 1}));
    EXPECT_EQ((Conv2dOptions{.padding = {1}}).padding, (Pair{1, 1}));
    const Pool2dOptions pool{.kernel = 3, .stride = 2, .padding = 1};
    EXPECT_EQ(pool.kernel, (Pair{3, 3}));
    EXPECT_EQ(pool.stride, (Pair{2, 2}));
    EXPECT_EQ(pool.padding, (Pair{1, 1}));
    EXPECT_EQ((Conv2dOptions{.stride = {2, 1}}).stride.height, 2);
    EXPECT_EQ((Conv2dOptions{.stride = {2, 1}}).stride.width, 1);
}

TEST(Pair, TakesWholeNumbersOnly) {
    static_assert(std::is_convertible_v<int, Pair> && std::is_convertible_v<std::int64_t, Pair>);
    static_assert(!std::is_convertible_v<double, Pair> && !std::is_constructible_v<Pair, double, int>);
}

TEST(Pair, GivesTheShapesOfPyTorch) {
    const Tensor image = ones({1, 6, 8, 2});
    EXPECT_EQ(conv2d(image, ones({3, 3, 3, 2}), {}, {.padding = 1}).shape(), (Shape{1, 6, 8, 3}));
    EXPECT_EQ(conv2d(image, ones({3, 3, 3, 2}), {}, {.stride = 2}).shape(), (Shape{1, 2, 3, 3}));
    EXPECT_EQ(conv2d(image, ones({3, 3, 3, 2}), {}, {.dilation = 2}).shape(), (Shape{1, 2, 4, 3}));
    EXPECT_EQ(conv_transpose2d(image, ones({2, 2, 2, 3}), {}, {.stride = 2, .output_padding = 1}).shape(),
              (Shape{1, 13, 17, 3}));
    EXPECT_EQ(max_pool2d(image, {.kernel = 3, .stride = 1, .padding = 1}).shape(), image.shape());
    EXPECT_EQ(avg_pool2d(image, {.kernel = 2}).shape(), (Shape{1, 3, 4, 2}));
    EXPECT_EQ(adaptive_avg_pool2d(image, 1).shape(), (Shape{1, 1, 1, 2}));
    EXPECT_EQ(adaptive_max_pool2d(image, 2).shape(), (Shape{1, 2, 2, 2}));
    EXPECT_EQ(upsample(image, Pair{4}).shape(), (Shape{1, 4, 4, 2}));
    EXPECT_EQ(upsample(image, 2).shape(), (Shape{1, 12, 16, 2}));  // a plain number is a factor
}

}  // namespace
}  // namespace invar::testing
