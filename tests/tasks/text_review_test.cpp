// What is remarked on data and models of text detection, from maps and images that are known.
#include "invar/tasks/text_review.h"

#include <gtest/gtest.h>

#include <atomic>

#include "invar/tasks/text_pictures.h"

namespace invar {
namespace {

using detect::Polygon;
using detect::TextRegion;

constexpr std::int64_t kSide = 64;

Polygon box(double left, double top, double right, double bottom) {
    return {{left, top}, {right, top}, {right, bottom}, {left, bottom}};
}

std::vector<float> map_with(const detect::Bounds& where, float probability) {
    std::vector<float> map(kSide * kSide, 0.05f);
    for (auto y = std::int64_t(where.top); y < std::int64_t(where.bottom); ++y)
        for (auto x = std::int64_t(where.left); x < std::int64_t(where.right); ++x) map[y * kSide + x] = probability;
    return map;
}

const std::vector<TextRegion> kTruth = {{box(8, 8, 56, 32)}};

std::vector<Remark> remarks_on(const std::vector<float>& map, const std::vector<TextRegion>& truths = kTruth) {
    TextReview review({}, {});
    review.add({map.data(), kSide, kSide}, truths);
    return review.remarks();
}

bool says(const std::vector<Remark>& remarks, std::size_t i, std::string_view part) {
    return i < remarks.size() && remarks[i].text.find(part) != std::string::npos;
}

TEST(TextReview, HasNothingToSayOfAMapThatFits) {
    EXPECT_TRUE(remarks_on(map_with({16, 15, 48, 25}, 0.95f)).empty());
    EXPECT_TRUE(TextReview({}, {}).remarks().empty());
}

TEST(TextReview, SaysThatNoPixelIsText) {
    const std::vector<Remark> remarks = remarks_on(map_with({16, 15, 48, 25}, 0.15f));
    ASSERT_EQ(remarks.size(), 1u);
    EXPECT_TRUE(remarks[0].warning);
    EXPECT_TRUE(says(remarks, 0,
                     "H-mean is 0 on 1 validation image: no pixel is above task.bin_thresh=0.3, the "
                     "highest probability is 0.150"))
        << remarks[0].text;
}

TEST(TextReview, SaysThatRegionsAreTooWeakAndWhichThresholdTakesThem) {
    const std::vector<Remark> remarks = remarks_on(map_with({16, 15, 48, 25}, 0.55f));
    EXPECT_TRUE(says(remarks, 0, "the best of 1 region has a mean probability of 0.550, below task.box_thresh=0.6"));
    EXPECT_TRUE(says(remarks, 1,
                     "thresholds: H-mean 100.0% instead of 0.0% on 1 validation image with "
                     "task.bin_thresh=0.2 task.box_thresh=0.5 task.unclip_ratio=1.5"))
        << remarks.back().text;
    EXPECT_FALSE(remarks.at(1).warning);
}

TEST(TextReview, SaysThatBoxesAreTooSmallAndHowFarToGrowThem) {
    const std::vector<Remark> remarks = remarks_on(map_with({20, 17, 44, 23}, 0.95f));
    EXPECT_TRUE(says(remarks, 0, "boxes are too small; a larger task.unclip_ratio"));
    EXPECT_TRUE(says(remarks, 1, "task.unclip_ratio=2.5")) << remarks.back().text;
}

TEST(TextReview, SaysThatBoxesAreElsewhereOrTooLargeOrNothingCounts) {
    EXPECT_TRUE(says(remarks_on(map_with({8, 44, 56, 58}, 0.95f)), 0, "boxes are not where the texts are"));
    EXPECT_TRUE(says(remarks_on(map_with({2, 2, 62, 62}, 0.95f)), 0, "boxes are too large"));
    EXPECT_TRUE(says(remarks_on(map_with({16, 15, 18, 17}, 0.95f)), 0, "is nowhere 3 pixels wide"));
    EXPECT_TRUE(says(remarks_on(map_with({16, 15, 48, 25}, 0.95f), {{box(8, 8, 56, 32), "", true}}), 0,
                     "there is no text that counts"));
}

// Sets whose images have a large text and as many small ones as their number says.
class SmallTexts : public TextImages {
  public:
    explicit SmallTexts(std::int64_t size) : TextImages("small", {.size = kSide}, Split::test, 1, {}), size_(size) {}
    std::int64_t size() const override { return size_; }
    TextImage load(std::int64_t index) const override {
        TextImage image{Image(kSide, kSide), {{box(4, 4, 60, 24)}}};
        for (std::int64_t i = 0; i < index; ++i)
            image.texts.push_back({box(double(4 + 12 * i), 40, double(12 + 12 * i), 44)});
        return image;
    }
    std::string sample_name(std::int64_t index) const override { return "image " + std::to_string(index); }

  private:
    std::int64_t size_;
};

TEST(TextReview, TellsTheCeilingAndWarnsWhereItIsLow) {
    const std::vector<Remark> good = remarks_on_ceiling(SmallTexts(1), {}, {});
    ASSERT_EQ(good.size(), 1u);
    EXPECT_EQ(
        good[0].text,
        "ceiling: H-mean 100.0% is what the labels themselves would get with these settings, by 1 validation image; "
        "of 1 text none is too small to be labelled");
    const std::vector<Remark> low = remarks_on_ceiling(SmallTexts(5), {}, {});
    ASSERT_EQ(low.size(), 2u);
    EXPECT_TRUE(says(low, 0, "H-mean 50.0% is what the labels")) << low[0].text;
    EXPECT_TRUE(says(low, 0, "10 of 15 texts (66.7%) ignored as too small, most in image 4, image 3, image 2"))
        << low[0].text;
    EXPECT_TRUE(low[1].warning && says(low, 1, "too small to be labelled")) << low[1].text;
    EXPECT_TRUE(says(remarks_on_ceiling(SmallTexts(2), {.bin_thresh = 0.3, .box_thresh = 1.1}, {}), 0, "H-mean 0.0%"));
}

TEST(TextReview, LeavesTheCeilingWhenAskedToStop) {
    std::atomic<int> asked = 0;
    EXPECT_TRUE(remarks_on_ceiling(SmallTexts(5), {}, {}, [&] { return ++asked > 0; }).empty());
    EXPECT_GT(asked, 0);
    EXPECT_EQ(remarks_on_ceiling(SmallTexts(1), {}, {}, [] { return false; }).size(), 1u);
}

// 200 x 100 pixels as a square of 64 sees them: each pixel of the square is 3.125 of the image, the lower half black.
TEST(TextPictures, TakesWhatWasFoundBackToTheImage) {
    SeenImage seen;
    seen.size = {100, 200};
    seen.box = fitted_box(seen.size, 64);
    EXPECT_DOUBLE_EQ(seen.box.width, 200);
    EXPECT_DOUBLE_EQ(seen.box.height, 200);
    const std::vector<detect::Detection> found = found_in_image(
        {{box(8, 4, 40, 16), 0.9}, {box(0, 28, 64, 40), 0.8}, {box(0, 40, 64, 50), 0.7}}, {64, 64}, seen);
    ASSERT_EQ(found.size(), 2u) << "the third lies in the black";
    EXPECT_EQ(found[0].polygon, box(25, 12.5, 125, 50));
    EXPECT_EQ(found[1].polygon, box(0, 87.5, 200, 100)) << "cut at the border";
    EXPECT_EQ(found[1].score, 0.8);
    // What is seen may also be a part from the middle, and the map another size than x.
    seen.box = {10, 50, 80, 80};
    EXPECT_EQ(found_in_image({{box(0, 0, 8, 16), 1}}, {16, 16}, seen)[0].polygon, box(50, 10, 90, 90));
}

std::int64_t pixels_of(const Image& image, Rgb colour) {
    std::int64_t count = 0;
    for (std::int64_t y = 0; y < image.height; ++y)
        for (std::int64_t x = 0; x < image.width; ++x) {
            const std::uint8_t* p = image.at(y, x);
            count += p[0] == colour.r && p[1] == colour.g && p[2] == colour.b;
        }
    return count;
}

TEST(TextPictures, DrawsWhatWasFoundBesideWhatThereIs) {
    const Image grey(64, 96, 3, 100);
    const Image both = draw_beside_truth(grey, {{box(8, 8, 56, 32)}},
                                         {{box(8.5, 8.5, 56.5, 31.5), 1}, {box(70.5, 40.5, 90.5, 60.5), 1}});
    EXPECT_GE(both.width, 2 * 96);
    EXPECT_GT(pixels_of(both, {0, 220, 0}), 50) << "the one that fits";
    EXPECT_GT(pixels_of(both, {255, 60, 60}), 30) << "the other";
    EXPECT_EQ(pixels_of(draw_beside_truth(grey, {}, {}), {0, 220, 0}), 0);
    EXPECT_LT(draw_beside_truth(Image(2000, 3000), {}, {}).width, 700) << "small enough for a report";
    const Image found = draw_found(grey, {{box(8, 8, 56, 31), 1}});
    EXPECT_EQ(found.size(), grey.size());
    EXPECT_GT(pixels_of(found, {0, 220, 0}), 50);
}

}  // namespace
}  // namespace invar
