#include "invar/image/augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "invar/image/encode.h"
#include "invar/image/transform.h"
#include "tests/image/files.h"
#include "tests/io/scratch.h"

namespace invar {

using namespace testing;

namespace {

AugmentOptions everything() {
    AugmentOptions options;
    options.size = {48, 64};
    options.degrees = 10;
    options.brightness = options.contrast = options.saturation = 0.4;
    options.hue = 0.1, options.grey = 0.2, options.noise = 3;
    options.blur = 0.5, options.blur_kernel = 9;
    return options;
}

}  // namespace

TEST(Augment, MakesTheSamePixelsForTheSameKeyAndOthersForAnother) {
    const Image image = test_picture(90, 120);
    const AugmentOptions options = everything();
    const Image first = augment(image, options, augment_key(1, 2, 3));
    EXPECT_EQ(first.size(), options.size);
    EXPECT_EQ(augment(image, options, augment_key(1, 2, 3)), first);
    EXPECT_NE(augment(image, options, augment_key(2, 2, 3)), first) << "another seed";
    EXPECT_NE(augment(image, options, augment_key(1, 3, 3)), first) << "another epoch";
    EXPECT_NE(augment(image, options, augment_key(1, 2, 4)), first) << "another sample";
}

TEST(Augment, DoesNotDependOnTheThread) {
    const Image image = test_picture(90, 120);
    std::vector<Image> here, there(8);
    for (std::size_t i = 0; i < 8; ++i) here.push_back(augment(image, everything(), augment_key(1, 0, i)));
    std::vector<std::thread> threads;
    for (std::size_t i = 8; i-- > 0;)
        threads.emplace_back([&, i] { there[i] = augment(image, everything(), augment_key(1, 0, i)); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(here, there);
}

TEST(Augment, MakesTheSamePixelsFromAFileAsFromItsImage) {
    const Image picture = test_picture(90, 120);
    const std::string turned = with_segment(make_jpeg(picture), 0xe1, std::string("Exif\0\0", 6) + exif_block(6));
    for (const std::string& file : {make_jpeg(picture), turned, encode_png(picture)}) {
        const Image image = decode(file);
        for (std::uint64_t sample = 0; sample < 20; ++sample) {
            const RngState key = augment_key(7, 0, sample);
            ASSERT_EQ(augment(bytes_of(file), "F", everything(), key), augment(image, everything(), key)) << sample;
        }
        EXPECT_EQ(centre_view(bytes_of(file), "F", 64, {48, 48}), centre_view(image, 64, {48, 48}));
    }
}

TEST(Augment, FromALargeJpegIsNearlyThatOfItsImage) {
    const std::string file = make_jpeg(resize(test_picture(60, 80), {960, 1280}));
    const Image image = decode(file);
    AugmentOptions options;
    options.size = {64, 64};
    for (std::uint64_t sample = 0; sample < 10; ++sample) {
        const RngState key = augment_key(7, 0, sample);
        EXPECT_LE(distance(augment(bytes_of(file), "F", options, key), augment(image, options, key)), 6);
        options.reducing_gap = 0;
        EXPECT_EQ(augment(bytes_of(file), "F", options, key), augment(image, options, key));
        options.reducing_gap = 2;
    }
    EXPECT_LE(distance(centre_view(bytes_of(file), "F", 72, {64, 64}), centre_view(image, 72, {64, 64})), 6);
}

TEST(Augment, WithoutAnyChoiceIsAResize) {
    AugmentOptions options;
    options.size = {30, 40}, options.scale = {1, 1}, options.ratio = {4.0 / 3, 4.0 / 3}, options.flip = 0;
    const Image image = test_picture(90, 120);
    EXPECT_EQ(augment(image, options, augment_key(0, 0, 0)), resize(image, {30, 40}));
    Image flipped = resize(image, {30, 40});
    flip_horizontally(flipped);
    options.flip = 1;
    EXPECT_EQ(augment(image, options, augment_key(0, 0, 0)), flipped);
}

TEST(Augment, ChoosesWithinItsRangesAndAsOftenAsItShould) {
    AugmentOptions options = everything();
    options.brightness = 1.5;
    int flips = 0, greys = 0, blurs = 0;
    std::set<std::vector<int>> orders;
    constexpr int kDraws = 4000;
    for (int i = 0; i < kDraws; ++i) {
        const AugmentChoices choices = choose({90, 120}, options, augment_key(3, 0, std::uint64_t(i)));
        flips += choices.flip, greys += choices.grey, blurs += choices.blur_sigma.has_value();
        EXPECT_LE(std::abs(choices.degrees), 10);
        ASSERT_EQ(choices.jitter.size(), 4u);
        std::vector<int> order;
        for (const auto& [kind, by] : choices.jitter) {
            order.push_back(int(kind));
            const bool hue = kind == AugmentChoices::Jitter::hue, bright = kind == AugmentChoices::Jitter::brightness;
            EXPECT_GE(by, hue ? -0.1 : bright ? 0 : 0.6);
            EXPECT_LE(by, hue ? 0.1 : bright ? 2.5 : 1.4);
        }
        orders.insert(order);
        const double sigma = choices.blur_sigma.value_or(1);
        EXPECT_TRUE(sigma >= 0.1 && sigma <= 2);
    }
    EXPECT_NEAR(flips / double(kDraws), 0.5, 0.04);
    EXPECT_NEAR(greys / double(kDraws), 0.2, 0.04);
    EXPECT_NEAR(blurs / double(kDraws), 0.5, 0.04);
    EXPECT_EQ(orders.size(), 24u) << "every order of the four";
}

TEST(RandomResizedCrop, KeepsToAreaAndRatioAndReachesEveryCorner) {
    RandomDraws draws({11, 0});
    bool top = false, left = false, bottom = false, right = false;
    double area = 0;
    for (int i = 0; i < 2000; ++i) {
        const PixelBox box = random_resized_crop({375, 500}, {0.08, 1}, {0.75, 4.0 / 3}, draws);
        ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.height <= 375 && box.left + box.width <= 500);
        const double part = double(box.height * box.width) / (375 * 500),
                     ratio = double(box.width) / double(box.height);
        EXPECT_TRUE(part > 0.079 && part <= 1 && ratio > 0.74 && ratio < 1.35) << part << " " << ratio;
        area += part / 2000;
        top |= box.top == 0, left |= box.left == 0;
        bottom |= box.top + box.height == 375, right |= box.left + box.width == 500;
    }
    EXPECT_TRUE(top && left && bottom && right);
    EXPECT_NEAR(area, 0.4326, 0.02);  // the mean of 200000 draws by torchvision's rule
}

TEST(RandomResizedCrop, TakesTheMiddleWhereNothingFits) {
    RandomDraws draws({11, 0});
    EXPECT_EQ(random_resized_crop({10, 1000}, {0.9, 1}, {0.75, 4.0 / 3}, draws), (PixelBox{0, 493, 10, 13}));
    EXPECT_EQ(random_resized_crop({1000, 9}, {0.9, 1}, {0.75, 4.0 / 3}, draws), (PixelBox{494, 0, 12, 9}));
    EXPECT_EQ(random_resized_crop({1, 1}, {0.08, 0.08}, {0.75, 4.0 / 3}, draws), (PixelBox{0, 0, 1, 1}));
}

TEST(Augment, RefusesOptionsThatMakeNoSense) {
    const auto refusal = [](auto change) {
        AugmentOptions options;
        change(options);
        return message_of<UsageError>([&] { check_options(options); });
    };
    EXPECT_TRUE(has(refusal([](AugmentOptions& o) { o.size = {0, 224}; }), "0 x 224"));
    EXPECT_TRUE(has(refusal([](AugmentOptions& o) { o.scale = {0, 1}; }), "crops of 0 to 1"));
    EXPECT_TRUE(has(refusal([](AugmentOptions& o) { o.ratio = {2, 1}; }), "2 to 1 times"));
    EXPECT_TRUE(has(refusal([](AugmentOptions& o) { o.hue = 0.7; }), "hue 0.7"));
    EXPECT_TRUE(has(refusal([](AugmentOptions& o) { o.flip = std::nan(""); }), "flip"));
    EXPECT_TRUE(has(refusal([](AugmentOptions& o) { o.blur = 1, o.blur_kernel = 4; }), "over 4 pixels"));
}

TEST(CentreView, MakesOfAVeryLongImageOnlyTheMiddle) {
    const Image image = test_picture(20, 3000);
    const std::string file = encode_png(image), longest = encode_png(test_picture(1, 60000));
    const auto view = [](const std::string& bytes, std::int64_t side) {
        return centre_view({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "long.png", side,
                           {224, 224});
    };
    EXPECT_EQ(view(file, 400).pixels, centre_view(image, 400, {224, 224}).pixels) << "of 400 x 60000 pixels";
    EXPECT_EQ(view(longest, 256).size().width, 224);
}

}  // namespace invar
