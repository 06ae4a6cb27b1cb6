#include "invar/detect/icdar.h"

#include <filesystem>
#include <fstream>

#include "shapes.h"

namespace invar::detect {

using namespace testing;

namespace {

std::vector<TextRegion> parsed(std::string_view text, TruthFormat format = TruthFormat::quadrilaterals) {
    return parse_ground_truth(text, "gt_img_1.txt", format);
}

TextRegion text(const Polygon& polygon, bool dont_care = false) {
    return {polygon, "", dont_care};
}

std::vector<Detection> detections(const std::vector<Polygon>& polygons) {
    std::vector<Detection> found;
    for (const Polygon& polygon : polygons) found.push_back({polygon, 1});
    return found;
}

using Matches = std::vector<std::int64_t>;

}  // namespace

TEST(GroundTruth, IsReadAsPublished) {
    const std::vector<TextRegion> texts = parsed(
        "\xef\xbb\xbf"
        "377,117,463,117,465,130,378,130,Genaxis Theatre\r\n"
        "493,115,519,115,519,131,493,131,[06]\r\n"
        "374,155,409,155,409,170,374,170,###\r\n"
        "\r\n"
        "1,2,3,4,5,6,7,8,1,000,000\r\n"
        "-3, 2.5 ,30,4,5,60,7,8");
    ASSERT_EQ(texts.size(), 5u);
    EXPECT_EQ(texts[0].polygon, (Polygon{{377, 117}, {463, 117}, {465, 130}, {378, 130}}));
    EXPECT_EQ(texts[0].transcription, "Genaxis Theatre");
    EXPECT_FALSE(texts[0].dont_care);
    EXPECT_TRUE(texts[2].dont_care);
    EXPECT_EQ(texts[3].transcription, "1,000,000") << "commas are the text's";
    EXPECT_EQ(texts[3].polygon.size(), 4u);
    EXPECT_EQ(texts[4].polygon[0], (Point{-3, 2.5}));
    EXPECT_EQ(texts[4].transcription, "") << "it may be missing";
    EXPECT_TRUE(parsed("").empty()) << "an image without text";
    for (const char* ending : {"\n", "\r\n", "\r"}) {
        const std::string line = "1,2,3,4,5,6,7,8,a";
        EXPECT_EQ(parsed(line + ending + ending + line + ending).size(), 2u) << int(ending[0]);
        EXPECT_EQ(parsed(line + ending + line)[0].transcription, "a");
        expect_error<IoError>([&] { parsed(line + ending + "x" + ending); }, {"gt_img_1.txt:2:"});
    }
}

TEST(GroundTruth, MayHaveMorePoints) {
    const auto points = [](std::string_view line) { return parsed(line, TruthFormat::polygons).at(0); };
    EXPECT_EQ(points("0,0,5,0,10,1,10,6,5,5,0,5,Coffee").polygon.size(), 6u);
    EXPECT_EQ(points("0,0,5,0,10,1,10,6,5,5,0,5,Coffee").transcription, "Coffee");
    EXPECT_EQ(points("0,0,5,0,10,1,10,6,Coffee, tea").polygon.size(), 4u);
    EXPECT_EQ(points("0,0,5,0,10,1,10,6,Coffee, tea").transcription, "Coffee, tea");
    EXPECT_EQ(points("0,0,5,0,10,1,10,6,2015").transcription, "2015") << "the last cell is text, whatever it holds";
    EXPECT_EQ(points("0,0,5,0,10,1,10,6,1,000").transcription, "1,000");
    EXPECT_TRUE(points("0,0,5,0,10,1,10,6,5,5,0,5,###").dont_care);
}

TEST(GroundTruth, IsRefusedInOneLineThatNamesFileAndLine) {
    expect_error<IoError>([] { parsed("1,2,3,4,5,6,7,8,a\n1,2,3\n"); },
                          {"gt_img_1.txt:2: 3 coordinates, and 8 are the least", "x1,y1,x2,y2,x3,y3,x4,y4"});
    expect_error<IoError>([] { parsed("1,2,3,4,five,6,7,8,a"); }, {"gt_img_1.txt:1: \"five\"", "coordinate 5"});
    expect_error<IoError>([] { parsed("\n\n1,2,3,4,,6,7,8,a"); }, {"gt_img_1.txt:3: \"\" is no number"});
    for (const char* bad : {"nan", "inf", "-inf", "1e9", "-1e300"})
        expect_error<IoError>([&] { parsed("1,2,3,4," + std::string(bad) + ",6,7,8,a"); },
                              {"gt_img_1.txt:1: coordinate 5 is \"" + std::string(bad), "in no image"});
    expect_error<IoError>([] { parsed("1,2,3,4,1e999,6,7,8,a"); }, {"gt_img_1.txt:1: ", "1e999"});
    expect_error<IoError>([] { parsed("1,2,3,4,0x10,6,7,8,a"); }, {"\"0x10\" is no number"});
    expect_error<IoError>([] { parsed(std::string("\xff\xfe") + std::string("1\0,\0", 4)); }, {"gt_img_1.txt:1: "});
    expect_error<IoError>([] { parsed("1,2,3,4,\x1b[2J\n"); }, {"gt_img_1.txt:1: "});
    for (const TruthFormat format : {TruthFormat::quadrilaterals, TruthFormat::polygons})
        expect_error<IoError>([&] { parsed("1,2,3,4,5,6,a,b,c,d", format); },
                              {"gt_img_1.txt:1: \"a\"", "coordinate 7"});
}

TEST(GroundTruth, HasLimits) {
    std::string line;
    for (int i = 0; i < 2 * 129; ++i) line += "1,";
    expect_error<IoError>([&] { parsed(line + "a", TruthFormat::polygons); },
                          {"gt_img_1.txt:1: a polygon of 129 points"});
    std::string many;
    for (int i = 0; i <= 10000; ++i) many += "1,2,3,4,5,6,7,8,a\n";
    expect_error<IoError>([&] { parsed(many); }, {"gt_img_1.txt:10001: more than 10000 texts"});
}

TEST(GroundTruth, IsReadFromAFile) {
    const std::filesystem::path path = std::filesystem::temp_directory_path() / "invar-detect-gt_img_7.txt";
    std::ofstream(path) << "1,2,3,4,5,6,7,8,a\n";
    EXPECT_EQ(read_ground_truth(path).size(), 1u);
    std::ofstream(path) << "x\n";
    expect_error<IoError>([&] { read_ground_truth(path); }, {path.string() + ":1: "});
    std::filesystem::remove(path);
    expect_error<IoError>([&] { read_ground_truth(path); }, {path.string()});
}

TEST(Icdar, MatchesWhatOverlapsByMoreThanAHalf) {
    const std::vector<TextRegion> truths = {text(box(0, 0, 10, 10))};
    EXPECT_EQ(match_image(truths, detections({box(0, 0, 10, 5)})).counts, (DetectionCounts{0, 1, 1}))
        << "just a half is not more";
    EXPECT_EQ(match_image(std::vector{text(box(0, 0, 15, 10))}, detections({box(5, 0, 20, 10)})).counts,
              (DetectionCounts{0, 1, 1}))
        << "nor where each has something of its own: 100 of 200";
    EXPECT_EQ(match_image(truths, detections({box(0, 0, 10, 5.1)})).counts, (DetectionCounts{1, 1, 1}));
    EXPECT_EQ(match_image(truths, detections({box(0, 0, 10, 20)})).counts, (DetectionCounts{0, 1, 1}));
    EXPECT_EQ(match_image(truths, detections({box(0, 0, 10, 19.9)})).counts, (DetectionCounts{1, 1, 1}));
    EXPECT_EQ(match_image(truths, detections({box(0, 0, 10, 5)}), {.iou = 0.49}).counts, (DetectionCounts{1, 1, 1}));
}

TEST(Icdar, MatchesInTheOrderOfTruthsThenDetections) {
    // Both detections fit; the first is taken although the second fits better.
    const std::vector<TextRegion> one = {text(box(0, 0, 10, 10))};
    EXPECT_EQ(match_image(one, detections({box(0, 0, 10, 6), box(0, 0, 10, 10)})).detection_of, (Matches{0}));
    EXPECT_EQ(match_image(one, detections({box(0, 0, 10, 6), box(0, 0, 10, 10)})).counts, (DetectionCounts{1, 1, 2}));
    // The first truth takes the only detection, which the second would fit better.
    const std::vector<TextRegion> two = {text(box(0, 0, 10, 10)), text(box(0, 0, 10, 6))};
    EXPECT_EQ(match_image(two, detections({box(0, 0, 10, 6)})).detection_of, (Matches{0, -1}));
    EXPECT_EQ(match_image(two, detections({box(0, 0, 10, 6), box(0, 0, 10, 7)})).detection_of, (Matches{0, 1}));
}

TEST(Icdar, IgnoresDetectionsOnTextsThatDoNotCount) {
    const std::vector<TextRegion> truths = {text(box(0, 0, 10, 10)), text(box(20, 0, 40, 10), true)};
    EXPECT_EQ(match_image(truths, detections({box(0, 0, 10, 10), box(30, 0, 50, 10)})).counts,
              (DetectionCounts{1, 1, 2}))
        << "just half of it lies there";
    EXPECT_EQ(match_image(truths, detections({box(0, 0, 10, 10), box(29, 0, 49, 10)})).counts,
              (DetectionCounts{1, 1, 1}));
    EXPECT_EQ(match_image(truths, detections({box(22, 2, 24, 4)})).counts, (DetectionCounts{0, 1, 0}))
        << "a small one on a large text";
    EXPECT_EQ(match_image(truths, {}).counts, (DetectionCounts{0, 1, 0}));
    // Ignored detections match nothing, even where they fit.
    const std::vector<TextRegion> covered = {text(box(0, 0, 10, 10)), text(box(0, 0, 10, 9), true)};
    EXPECT_EQ(match_image(covered, detections({box(0, 0, 10, 10)})).counts, (DetectionCounts{0, 1, 0}));
    // No text alone has more than a half of it: two do not add up.
    const std::vector<TextRegion> halves = {text(box(0, 0, 5, 10), true), text(box(5, 0, 10, 10), true)};
    EXPECT_EQ(match_image(halves, detections({box(0, 0, 10, 10)})).counts, (DetectionCounts{0, 0, 1}));
}

TEST(Icdar, AddsCountsOverImagesAndDividesOnce) {
    DetectionCounts all{1, 2, 1};
    all += {2, 2, 4};
    EXPECT_DOUBLE_EQ(all.precision(), 3.0 / 5);
    EXPECT_DOUBLE_EQ(all.recall(), 3.0 / 4);
    EXPECT_DOUBLE_EQ(all.hmean(), 2 * 0.6 * 0.75 / 1.35);
    EXPECT_EQ(DetectionCounts{}.hmean(), 0);
    EXPECT_EQ((DetectionCounts{0, 0, 3}.hmean()), 0);
    EXPECT_EQ((DetectionCounts{0, 3, 0}.precision()), 0);
}

TEST(Icdar, CountsTheBestDetectionsAlone) {
    const std::vector<TextRegion> truths = {text(box(0, 0, 10, 10)), text(box(20, 0, 30, 10))};
    const ImageOverlaps overlaps(truths, detections({box(0, 0, 10, 10), box(50, 0, 60, 10), box(20, 0, 30, 10)}));
    EXPECT_EQ(overlaps.match(0).counts, (DetectionCounts{0, 2, 0}));
    EXPECT_EQ(overlaps.match(1).counts, (DetectionCounts{1, 2, 1}));
    EXPECT_EQ(overlaps.match(2).counts, (DetectionCounts{1, 2, 2}));
    EXPECT_EQ(overlaps.match().counts, (DetectionCounts{2, 2, 3}));
}

TEST(Icdar, SurvivesShapesWithoutArea) {
    const std::vector<TextRegion> truths = {text({}), text({{1, 1}, {1, 1}, {1, 1}}, true),
                                            text(box(0, 0, 10, 10), true)};
    EXPECT_EQ(match_image(truths, detections({{}, {{5, 5}, {5, 5}, {6, 6}}})).counts, (DetectionCounts{0, 1, 2}));
}

}  // namespace invar::detect
