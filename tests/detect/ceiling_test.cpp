#include "invar/detect/ceiling.h"

#include <algorithm>
#include <numeric>

#include "invar/core/error.h"
#include "shapes.h"

namespace invar::detect {

using namespace testing;

namespace {

std::vector<TextRegion> texts_of(const std::vector<Polygon>& polygons) {
    std::vector<TextRegion> texts;
    for (const Polygon& polygon : polygons) texts.push_back({polygon});
    return texts;
}

ImageCeiling ceiling_of(const std::vector<Polygon>& polygons, const CeilingOptions& options = {}) {
    return image_ceiling(texts_of(polygons), 200, 400, options);
}

Loss only_loss(const ImageCeiling& image) {
    EXPECT_EQ(image.lost.size(), 1u);
    return image.lost.empty() ? Loss::not_drawn : image.lost[0].loss;
}

}  // namespace

TEST(Ceiling, OfEasyLabelsIsOne) {
    const ImageCeiling image =
        ceiling_of({box(10, 10, 110, 50), box(130, 10, 230, 60), rotated_box(200, 130, 120, 40, 15)});
    EXPECT_EQ(image.ceiling.counts, (DetectionCounts{3, 3, 3}));
    EXPECT_EQ(image.ceiling.counts.hmean(), 1);
    EXPECT_TRUE(image.lost.empty());
}

TEST(Ceiling, TellsWhyTextsAreLost) {
    EXPECT_EQ(only_loss(ceiling_of({box(10, 10, 110, 50), box(130, 10, 180, 16)})), Loss::too_small);
    EXPECT_EQ(only_loss(ceiling_of({box(10, 10, 110, 50), {{150, 10}, {190, 50}, {190, 10}, {150, 50}}})),
              Loss::not_drawn);
    EXPECT_EQ(only_loss(ceiling_of({box(10, 10, 110, 50), box(130, 10, 190, 18)})), Loss::dropped)
        << "8 rows become 2 when shrunk";
    EXPECT_EQ(only_loss(ceiling_of({box(10, 10, 110, 50), box(10, 60, 390, 82)})), Loss::poor_overlap)
        << "a long line: 22 rows become 4, and the ratio of 1.5 makes 10 of them";
    const ImageCeiling merged = ceiling_of({box(10, 10, 110, 50), box(70, 10, 170, 50)});
    ASSERT_FALSE(merged.lost.empty());
    for (const LostText& lost : merged.lost) EXPECT_EQ(lost.loss, Loss::merged);
    EXPECT_LT(merged.ceiling.counts.hmean(), 1);
}

TEST(Ceiling, IsLeftBetweenTextsWhenAskedToStop) {
    for (const int after : {0, 1, 3}) {
        int asked = 0;
        CeilingOptions options;
        options.stopped = [&] { return asked++ >= after; };
        EXPECT_THROW(ceiling_of({box(10, 10, 110, 50), box(130, 10, 230, 60)}, options), Error) << after;
        EXPECT_EQ(asked, after + 1);
    }
}

TEST(Ceiling, RisesWhereBoxesAreGrownByWhatTheyWereShrunk) {
    const std::vector<Polygon> lines = {box(10, 10, 390, 34), box(10, 50, 390, 80)};
    CeilingOptions options;
    EXPECT_LT(ceiling_of(lines, options).ceiling.counts.hmean(), 1);
    options.boxes.unclip = Unclip::inverse;
    EXPECT_EQ(ceiling_of(lines, options).ceiling.counts.hmean(), 1);
}

TEST(Ceiling, OfTinyDenseLabelsIsLowerAndEveryLossHasItsReason) {
    std::vector<TextRegion> texts;
    Numbers random(9);
    for (int row = 0; row < 12; ++row)
        for (int column = 0; column < 10; ++column) {
            const double x = 40 * column, y = 16 * row, height = 4 + 12 * random();
            texts.push_back({box(x, y, x + 36, y + height), "", column == 0});
        }
    const ImageCeiling image = image_ceiling(texts, 200, 400, {}, "dense");
    const Ceiling& ceiling = image.ceiling;
    EXPECT_EQ(image.name, "dense");
    EXPECT_LT(ceiling.counts.hmean(), 0.8);
    EXPECT_EQ(ceiling.dont_care, 12);
    EXPECT_EQ(ceiling.counts.truths, 108);
    EXPECT_GT(ceiling.lost_by(Loss::too_small), 10);
    EXPECT_GT(ceiling.lost_by(Loss::dropped), 3);
    EXPECT_EQ(std::accumulate(std::begin(ceiling.lost), std::end(ceiling.lost), std::int64_t(0)),
              ceiling.counts.truths - ceiling.counts.matched);
    Ceiling twice = ceiling;
    twice += ceiling;
    EXPECT_EQ(twice.counts.truths, 216);
    EXPECT_EQ(twice.lost_by(Loss::too_small), 2 * ceiling.lost_by(Loss::too_small));
}

TEST(Ceiling, NamesTheWorstImages) {
    std::vector<ImageCeiling> images = {{"a", {}, {}},
                                        {"b", {}, {{0, Loss::merged}}},
                                        {"d", {}, {{0, Loss::merged}, {1, Loss::merged}}},
                                        {"c", {}, {{0, Loss::merged}, {1, Loss::merged}}}};
    const std::vector<ImageCeiling> worst = worst_images(images, 5);
    ASSERT_EQ(worst.size(), 3u);
    EXPECT_EQ(worst[0].name, "c");
    EXPECT_EQ(worst[1].name, "d");
    EXPECT_EQ(worst[2].name, "b");
    EXPECT_EQ(worst_images(images, 1).size(), 1u);
}

TEST(Ceiling, SurvivesAMapThatNothingIsFoundIn) {
    CeilingOptions options;
    options.boxes.bin_thresh = 2;
    EXPECT_EQ(ceiling_of({box(10, 10, 110, 50), box(130, 10, 230, 60)}, options).ceiling.lost_by(Loss::dropped), 2);
    EXPECT_EQ(image_ceiling({}, 0, 0).ceiling.counts, DetectionCounts{});
}

TEST(Sweep, FindsTheSettingsThatSuitTheMaps) {
    const std::vector<TextRegion> texts = texts_of({box(10, 10, 390, 40), box(10, 60, 200, 90)});
    const LabelMaps labels = make_label_maps(texts, 200, 400);
    std::vector<float> map = labels.probability;
    for (float& value : map) value *= 0.65f;
    for (int y = 150; y < 170; ++y)
        for (int x = 20; x < 80; ++x) map[std::size_t(y * 400 + x)] = 0.55f;  // what is no text
    Sweep sweep({.bin_thresh = {0.3, 0.6}, .box_thresh = {0.5, 0.6, 0.7}, .unclip_ratio = {1, 1.5, 3}});
    sweep.add({map.data(), 200, 400}, texts, 200, 400);
    sweep.add({map.data(), 200, 400}, texts, 200, 400);
    const std::vector<SweepPoint> results = sweep.results();
    ASSERT_EQ(results.size(), 18u);
    EXPECT_EQ(results[0].counts, (DetectionCounts{4, 4, 4}));
    EXPECT_EQ(results[0].box_thresh, 0.6) << "0.5 lets what is no text in, 0.7 nothing at all";
    EXPECT_EQ(results[0].unclip_ratio, 3);
    for (std::size_t i = 1; i < results.size(); ++i)
        EXPECT_GE(results[i - 1].counts.hmean(), results[i].counts.hmean());
    // Each point is what post-processing with those settings gives.
    for (const SweepPoint& point : results) {
        const BoxOptions options{
            .bin_thresh = point.bin_thresh, .box_thresh = point.box_thresh, .unclip_ratio = point.unclip_ratio};
        DetectionCounts alone = match_image(texts, find_boxes({map.data(), 200, 400}, 200, 400, options)).counts;
        alone += alone;
        EXPECT_EQ(point.counts, alone);
    }
    expect_error<UsageError>([] { Sweep({.bin_thresh = {}}); }, {"at least one bin_thresh"});
}

}  // namespace invar::detect
