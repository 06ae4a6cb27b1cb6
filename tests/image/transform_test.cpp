// Pixels after Pillow 9.4 (the checksums were made with it) and after slow sums in double.
#include "invar/image/transform.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>

#include "invar/image/colour.h"
#include "invar/image/resample_rows.h"
#include "tests/image/files.h"
#include "tests/io/scratch.h"

namespace invar {

using namespace testing;

namespace {

std::uint32_t sum_of(const Image& image) {
    return std::uint32_t(crc32(0, image.pixels.data(), uInt(image.pixels.size())));
}

Image picture() {
    return test_picture(83, 121);
}

// What resize() should come to, each pixel by itself.
Image resized_slowly(const Image& image, const RealBox& box, ImageSize size) {
    Image out(size.height, size.width, image.channels);
    const double step_y = box.height / double(size.height), step_x = box.width / double(size.width);
    const double reach_y = std::max(step_y, 1.0), reach_x = std::max(step_x, 1.0);
    const auto tent = [](double distance, double reach) { return std::max(0.0, 1 - std::abs(distance) / reach); };
    for (std::int64_t y = 0; y < size.height; ++y)
        for (std::int64_t x = 0; x < size.width; ++x)
            for (std::int64_t c = 0; c < image.channels; ++c) {
                double sum = 0, weights = 0;
                for (auto sy = std::int64_t(std::floor(box.top)); double(sy) < box.top + box.height; ++sy)
                    for (auto sx = std::int64_t(std::floor(box.left)); double(sx) < box.left + box.width; ++sx) {
                        const double centre_y = box.top + (double(y) + 0.5) * step_y;
                        const double centre_x = box.left + (double(x) + 0.5) * step_x;
                        const double weight =
                            tent(double(sy) + 0.5 - centre_y, reach_y) * tent(double(sx) + 0.5 - centre_x, reach_x);
                        sum += weight * image.at(sy, sx)[c], weights += weight;
                    }
                out.at(y, x)[c] = std::uint8_t(sum / weights + 0.5);
            }
    return out;
}

void expect_pixel(const Image& image, std::int64_t y, std::int64_t x, std::array<int, 3> rgb) {
    for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(image.at(y, x)[c], rgb[c], 1) << y << ", " << x;
}

}  // namespace

TEST(Resize, MakesThePixelsOfPillow) {
    ASSERT_EQ(sum_of(picture()), 0x6f44e0da) << "not the picture that Pillow was given";
    EXPECT_EQ(sum_of(resize(picture(), {37, 50})), 0xac26d412);
    EXPECT_EQ(sum_of(resize(picture(), {83, 60})), 0x76da2f70);
    EXPECT_EQ(sum_of(resize(picture(), {200, 301})), 0x1ec30e9a);
    EXPECT_EQ(sum_of(resize(picture(), {5, 3})), 0x8a3ed2c7);
    EXPECT_EQ(sum_of(resize(to_grey(picture()), {37, 50})), 0x3457bd55);
    EXPECT_EQ(sum_of(resize(picture(), {10, 20, 44, 77}, {32, 32})), 0x5e20206b);
}

TEST(Resize, IsWithinOneOfSumsInDouble) {
    for (const std::int64_t channels : {1, 3}) {
        const Image image = test_picture(40, 57, channels);
        for (const ImageSize size : {ImageSize{20, 20}, {1, 1}, {40, 57}, {77, 3}, {9, 130}})
            for (const RealBox& box :
                 {RealBox{0, 0, 40, 57}, {3, 5, 20, 31}, {2.25, 7.5, 30.5, 40.125}, {39, 56, 1, 1}})
                EXPECT_LE(distance(resize(image, box, size), resized_slowly(image, box, size)), 1)
                    << size.height << " x " << size.width << " of " << box.height << " x " << box.width;
    }
}

TEST(Resize, OfABoxIsThatOfACrop) {
    const PixelBox box{7, 11, 40, 60};
    EXPECT_EQ(resize(picture(), {7, 11, 40, 60}, {24, 32}), resize(crop(picture(), box), {24, 32}));
}

TEST(Resize, ToItsOwnSizeChangesNothingAndOneColourStays) {
    EXPECT_EQ(resize(picture(), {83, 121}), picture());
    for (const int value : {0, 1, 254, 255})
        EXPECT_EQ(resize(Image(70, 90, 3, std::uint8_t(value)), {31, 200}), Image(31, 200, 3, std::uint8_t(value)));
}

TEST(Resize, RefusesSizesAndBoxesThatAreNone) {
    EXPECT_TRUE(has(message_of<UsageError>([] { resize(picture(), {0, 4}); }), "0 x 4"));
    EXPECT_TRUE(has(message_of<UsageError>([] { resize(picture(), {0, 0, 84, 10}, {4, 4}); }), "no box of 84 x 10"));
    EXPECT_TRUE(has(message_of<UsageError>([] { resize(picture(), {0, std::nan(""), 8, 8}, {4, 4}); }), "no box"));
}

TEST(Resize, MakesTheSamePixelsOnEveryCpu) {
    if (row_kernels_avx2() == nullptr) GTEST_SKIP() << "no AVX2 here";
    const RowKernels& plain = plain_row_kernels();
    for (const std::int64_t channels : {1, 3}) {
        const Image image = test_picture(50, 67, channels);
        const FilterTable columns = FilterTable::bilinear(1.5, 60, 67, 29), rows = FilterTable::bilinear(0, 50, 50, 33);
        EXPECT_EQ(filter(image, columns, rows, plain), filter(image, columns, rows, *row_kernels_avx2()));
    }
}

TEST(Sizes, AreThoseOfTorchvision) {
    EXPECT_EQ(with_shorter_side({375, 500}, 256), (ImageSize{256, 341}));
    EXPECT_EQ(with_shorter_side({500, 375}, 256), (ImageSize{341, 256}));
    EXPECT_EQ(with_shorter_side({7, 7}, 3), (ImageSize{3, 3}));
    EXPECT_EQ(centre_box({256, 341}, {224, 224}), (PixelBox{16, 58, 224, 224}));  // 58.5 goes to the even one
    EXPECT_EQ(centre_box({227, 224}, {224, 224}), (PixelBox{2, 0, 224, 224}));
    EXPECT_TRUE(has(message_of<UsageError>([] { centre_box({223, 300}, {224, 224}); }), "224 x 224"));
}

TEST(Flip, IsItsOwnInverse) {
    for (const std::int64_t channels : {1, 3})
        for (const std::int64_t width : {1, 2, 5}) {
            const Image image = test_picture(3, width, channels);
            Image flipped = image;
            flip_horizontally(flipped);
            EXPECT_TRUE(std::equal(image.at(2, 0), image.at(2, 1), flipped.at(2, width - 1)));
            flip_horizontally(flipped);
            EXPECT_EQ(flipped, image);
        }
}

TEST(Rotate, MakesThePixelsOfPillowToOne) {
    const Image turned = rotate(picture(), 20, {9, 8, 7});
    EXPECT_EQ(turned.size(), picture().size());
    expect_pixel(turned, 0, 0, {9, 8, 7});
    expect_pixel(turned, 41, 60, {39, 117, 96});
    expect_pixel(turned, 20, 30, {135, 43, 52});
    expect_pixel(turned, 70, 90, {18, 68, 18});
    expect_pixel(turned, 60, 20, {139, 53, 52});
    expect_pixel(turned, 10, 60, {150, 186, 156});
    expect_pixel(turned, 82, 120, {9, 8, 7});
}

TEST(Rotate, ByQuarterTurnsMovesWholePixels) {
    const Image square = test_picture(31, 31);
    EXPECT_EQ(rotate(square, 0), square);
    EXPECT_EQ(rotate(rotate(square, 90), -90), square);
    EXPECT_EQ(rotate(square, 360), square);
    const Image turned = rotate(square, 90);
    for (std::int64_t i = 0; i < 31; ++i)  // counter-clockwise: what was on top is on the left
        EXPECT_TRUE(std::equal(square.at(0, i), square.at(0, i) + 3, turned.at(30 - i, 0))) << i;
}

TEST(Rotate, ByAQuarterLosesNoPixelAtTheBorder) {
    for (const double degrees : {90, -90, 270}) {
        const Image turned = rotate(Image(75, 100, 1, 200), degrees);
        EXPECT_EQ(std::count(turned.pixels.begin(), turned.pixels.end(), 200), 75 * 75) << degrees;
    }
}

TEST(Warp, FollowsAPerspectiveAsPillowDoes) {
    const Image seen = warp(picture(), {1.2, 0.1, 3, -0.05, 1.4, 6, 0.001, 0.002, 1}, {40, 60});
    expect_pixel(seen, 0, 0, {61, 106, 52});
    expect_pixel(seen, 10, 20, {127, 64, 101});
    expect_pixel(seen, 20, 30, {175, 137, 199});
    expect_pixel(seen, 39, 59, {138, 162, 86});
    expect_pixel(seen, 30, 5, {50, 53, 49});
    expect_pixel(seen, 5, 50, {15, 140, 165});
}

TEST(Warp, FillsWhatComesFromNowhere) {
    const Image grey = test_picture(5, 6, 1);
    EXPECT_EQ(warp(grey, {0, 0, 0, 0, 0, 0, 0, 0, 0}, {2, 3}, {5, 6, 7}), Image(2, 3, 1, 5));
    EXPECT_EQ(warp(grey, {1, 0, 1e300, 0, 1, 0, 0, 0, 1}, {2, 3}, {5, 6, 7}), Image(2, 3, 1, 5));
    EXPECT_EQ(warp(grey, {1, 0, 0, 0, 1, 0, 0, 0, 1}, {5, 6}), grey);
}

TEST(Colour, ChangesAsInPillow) {
    const auto changed = [](void (*change)(Image&, double), double by) {
        Image image = picture();
        change(image, by);
        return sum_of(image);
    };
    EXPECT_EQ(sum_of(to_grey(picture())), 0xa1f83d62);
    EXPECT_EQ(changed(adjust_brightness, 0.35), 0x12a9207b);
    EXPECT_EQ(changed(adjust_brightness, 1.6), 0xa2a88bb8);
    EXPECT_EQ(changed(adjust_contrast, 0.35), 0xf645805f);
    EXPECT_EQ(changed(adjust_contrast, 1.6), 0xbadd5bf5);
    EXPECT_EQ(changed(adjust_saturation, 0.35), 0xa2ccd203);
    EXPECT_EQ(changed(adjust_saturation, 1.6), 0xfcf35ddb);
    EXPECT_EQ(changed(adjust_hue, 0.2), 0x3886c2c6);
    EXPECT_EQ(changed(adjust_hue, -0.45), 0xc17eb77f);
    for (auto* change : {adjust_brightness, adjust_contrast, adjust_saturation})
        EXPECT_EQ(changed(change, 1), 0x6f44e0da);
    EXPECT_TRUE(has(message_of<UsageError>([&] { changed(adjust_hue, 0.6); }), "0.6"));
    EXPECT_TRUE(has(message_of<UsageError>([&] { changed(adjust_contrast, -1); }), "contrast"));
}

TEST(GaussianBlur, SumsToOneAndMirrorsAtTheBorder) {
    EXPECT_EQ(gaussian_blur(Image(20, 30, 3, 99), 1.5, 9), Image(20, 30, 3, 99));
    Image dot(9, 9, 1);
    *dot.at(4, 4) = 255;
    const Image blurred = gaussian_blur(dot, 1, 5);
    const double side = std::exp(-0.5), far = std::exp(-2), sum = 1 + 2 * side + 2 * far;
    EXPECT_NEAR(*blurred.at(4, 4), 255 / sum / sum, 1);
    EXPECT_NEAR(*blurred.at(4, 5), 255 * side / sum / sum, 1);
    EXPECT_NEAR(*blurred.at(2, 4), 255 * far / sum / sum, 1);
    EXPECT_EQ(*blurred.at(4, 7), 0);
    Image edge(1 + 4, 5, 1);
    for (std::int64_t y = 0; y < 5; ++y) *edge.at(y, 1) = 200;
    EXPECT_NEAR(*gaussian_blur(edge, 1, 3).at(2, 0), 200 * 2 * side / (1 + 2 * side), 1) << "counted on both sides";
    EXPECT_TRUE(has(message_of<UsageError>([&] { gaussian_blur(edge, 1, 11); }), "reaches across"));
    EXPECT_TRUE(has(message_of<UsageError>([&] { gaussian_blur(edge, 1, 4); }), "odd"));
}

TEST(Noise, HasItsDeviationAndIsAFunctionOfItsState) {
    Image a(100, 100, 3, 128), b = a, c = a;
    add_noise(a, 10, {5, 0}), add_noise(b, 10, {5, 0}), add_noise(c, 10, {6, 0});
    EXPECT_EQ(a, b);
    EXPECT_GT(distance(a, c), 10);
    double sum = 0, squares = 0;
    for (const std::uint8_t value : a.pixels) sum += value - 128.0, squares += std::pow(value - 128.0, 2);
    EXPECT_NEAR(sum / 30000, 0, 0.3);
    EXPECT_NEAR(std::sqrt(squares / 30000), 10, 0.3);
}

}  // namespace invar
