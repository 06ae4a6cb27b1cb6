#include "invar/data/icdar.h"

#include <gtest/gtest.h>

#include "invar/data/file_bytes.h"
#include "invar/data/loader.h"
#include "invar/data/registry.h"
#include "tests/data/pictures.h"

namespace invar {
namespace {

using detect::TextRegion;
using testing::expect_error;
using testing::TempFolder;

constexpr const char* kTruth =
    "\xef\xbb\xbf"
    "10,10,60,10,60,30,10,30,EXIT\r\n80,20,140,24,138,50,78,46,a,b\r\n20,70,50,70,50,90,20,90,###\r\n";

void write_pair(const TempFolder& folder, const std::string& images, const std::string& truths, int number,
                const std::string& truth = kTruth) {
    folder.write(fmt::format("{}/img_{}.jpg", images, number), testing::jpeg_of(testing::picture(120, 160, number)));
    folder.write(fmt::format("{}/gt_img_{}.txt", truths, number), testing::as_bytes(truth));
}

void write_published(const TempFolder& folder, int count) {
    for (int i = 1; i <= count; ++i) {
        write_pair(folder, "ch4_training_images", "ch4_training_localization_transcription_gt", i);
        write_pair(folder, "ch4_test_images", "Challenge4_Test_Task1_GT", i);
    }
}

IcdarDataOptions small(const TempFolder& folder, const std::string& below = "") {
    IcdarDataOptions options;
    options.root = folder.str() + below;
    options.size = 64, options.min_text_size = 2;
    return options;
}

std::vector<std::vector<float>> epoch_of(Loader& loader, std::int64_t epoch, std::int64_t skip = 0) {
    std::vector<std::vector<float>> all;
    loader.start_epoch(epoch, skip);
    while (const std::optional<Batch> batch = loader.next())
        for (const char* name : {"x", "shrink", "shrink_mask", "threshold", "threshold_mask", "polygons"})
            all.push_back((*batch)[name].to_vector<float>());
    return all;
}

LoaderOptions loading(int workers) {
    LoaderOptions options;
    options.batch_size = 2, options.num_workers = workers, options.seed = 7;
    return options;
}

// A picture of one white block, whose corners are its text.
TextImage block_image() {
    TextImage whole{Image(100, 150)};
    for (std::int64_t y = 40; y < 60; ++y)
        for (std::int64_t x = 50; x < 110; ++x)
            for (int c = 0; c < 3; ++c) whole.image.at(y, x)[c] = 255;
    whole.texts.push_back({{{50, 40}, {110, 40}, {110, 60}, {50, 60}}, "block"});
    return whole;
}

double white_area(const Image& image) {
    double area = 0;
    for (std::int64_t y = 0; y < image.height; ++y)
        for (std::int64_t x = 0; x < image.width; ++x) area += image.at(y, x)[0] / 255.0;
    return area;
}

bool is_white(const Image& image, double x, double y) {
    const auto column = std::int64_t(x), row = std::int64_t(y);
    return column >= 0 && row >= 0 && column < image.width && row < image.height && image.at(row, column)[0] > 128;
}

}  // namespace

TEST(TextView, FitsTheWholeImageAndMovesItsTextsAlong) {
    const TextImage view = fitted_view(block_image(), 64);
    ASSERT_EQ(view.texts.size(), 1u);
    const double by = 64.0 / 150;
    EXPECT_NEAR(view.texts[0].polygon[0].x, 50 * by, 0.2);
    EXPECT_NEAR(view.texts[0].polygon[2].y, 60 * by, 0.3);
    EXPECT_NEAR(white_area(view.image), detect::covered_area(view.texts[0].polygon), 8);
    EXPECT_EQ(view.image.at(63, 10)[0], 0);  // padded
}

TEST(TextView, TurnsFlipsAndCutsTextsAsTheirPixels) {
    const TextImage whole = block_image();
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        const TextImage view = augmented_view(whole, 160, {.degrees = 30}, {seed, 0});
        ASSERT_EQ(view.texts.size(), 1u) << "the only text is always kept";
        const detect::Polygon& polygon = view.texts[0].polygon;
        const double area = detect::covered_area(polygon);
        EXPECT_NEAR(white_area(view.image), area, 2 * std::sqrt(area) + 10) << "seed " << seed;
        EXPECT_TRUE(detect::is_clockwise(polygon));
        detect::Point middle;
        for (const detect::Point& p : polygon) middle.x += p.x / 4, middle.y += p.y / 4;
        for (const detect::Point& p : polygon)  // just inside each corner
            EXPECT_TRUE(is_white(view.image, p.x + 0.2 * (middle.x - p.x), p.y + 0.2 * (middle.y - p.y)))
                << "seed " << seed;
    }
}

TEST(TextView, NeverCutsAText) {
    std::vector<TextRegion> texts;
    RandomDraws places({11, 0});
    for (int i = 0; i < 12; ++i) {
        const double x = places.uniform({-5, 180}), y = places.uniform({-5, 140}), w = places.uniform({5, 40});
        texts.push_back({{{x, y}, {x + w, y}, {x + w, y + 9}, {x, y + 9}}, "", i % 4 == 0});
    }
    int smaller = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        RandomDraws draws({seed, 0});
        const PixelBox box = crop_between_texts({150, 200}, texts, {60, 60}, draws);
        ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.width > 0 && box.height > 0);
        ASSERT_TRUE(box.top + box.height <= 150 && box.left + box.width <= 200);
        smaller += box.width < 200 || box.height < 150;
        for (const TextRegion& text : texts) {
            const detect::Bounds b = detect::bounds_of(text.polygon);
            for (const std::int64_t border : {box.left, box.left + box.width})
                EXPECT_FALSE(border > 0 && border < 200 && b.left < double(border) && double(border) < b.right);
            for (const std::int64_t border : {box.top, box.top + box.height})
                EXPECT_FALSE(border > 0 && border < 150 && b.top < double(border) && double(border) < b.bottom);
        }
    }
    EXPECT_GT(smaller, 200);
}

TEST(Icdar, ReadsWhatIsPublished) {
    const TempFolder folder;
    write_published(folder, 3);
    const IcdarDataset train(small(folder), Split::train, 0), test(small(folder), Split::test, 0);
    EXPECT_EQ(train.size(), 3);
    EXPECT_EQ(test.sample_name(1), "img_2.jpg");
    const std::vector<std::int64_t> some = {0, 2};
    const Batch batch = test.read(some);
    EXPECT_EQ(batch["x"].shape(), (Shape{2, 64, 64, 3}));
    EXPECT_EQ(batch["polygons"].shape(), (Shape{2, 3, 4, 2}));
    const auto texts = texts_of(batch);
    ASSERT_EQ(texts[1].size(), 3u);
    EXPECT_NEAR(texts[1][0].polygon[2].x, 60 * 64.0 / 160, 1e-4);
    EXPECT_TRUE(texts[1][2].dont_care);
    const auto shrink = batch["shrink"].to_vector<float>(), mask = batch["shrink_mask"].to_vector<float>();
    EXPECT_EQ(shrink[8 * 64 + 14], 1) << "the middle of EXIT";
    EXPECT_EQ(mask[32 * 64 + 14], 0) << "nobody could read that";
}

TEST(Icdar, FindsFilesInFoldersOfOtherShapes) {
    const TempFolder folder;
    for (int i = 0; i < 10; ++i) write_pair(folder, "a/images", "a/gt", i);
    for (int i = 0; i < 10; ++i) write_pair(folder, "b", "b", i);
    for (int i = 0; i < 2; ++i) write_pair(folder, "c/train/images", "c/train/gt", i);
    for (int i = 0; i < 3; ++i) write_pair(folder, "c/test/images", "c/test/gt", i);
    for (const char* below : {"/a", "/b"}) {
        EXPECT_EQ(IcdarDataset(small(folder, below), Split::train, 1).size(), 8) << below;
        EXPECT_EQ(IcdarDataset(small(folder, below), Split::test, 1).size(), 2) << below;
    }
    EXPECT_EQ(IcdarDataset(small(folder, "/c"), Split::train, 1).size(), 2);
    EXPECT_EQ(IcdarDataset(small(folder, "/c"), Split::test, 1).size(), 3);
}

TEST(Icdar, ReadsPolygonsOfMorePoints) {
    const TempFolder folder;
    for (int i = 0; i < 4; ++i) write_pair(folder, "images", "gt", i, "10,10,40,5,70,10,70,30,40,25,10,30,curved\n");
    IcdarDataOptions options = small(folder);
    options.format = "polygons";
    const std::vector<std::int64_t> first = {0};
    EXPECT_EQ(texts_of(IcdarDataset(options, Split::train, 0).read(first))[0][0].polygon.size(), 6u);
}

TEST(Icdar, ShowsTheSameWhateverTheWorkersAndAfterAResumption) {
    const TempFolder folder;
    write_published(folder, 6);
    const auto open = [&] { return std::make_shared<IcdarDataset>(small(folder), Split::train, 3); };
    Loader one(open(), loading(1)), four(open(), loading(4));
    const auto seen = epoch_of(one, 5);
    EXPECT_EQ(epoch_of(four, 5), seen);
    EXPECT_EQ(epoch_of(four, 5, 1), (std::vector<std::vector<float>>(seen.begin() + 6, seen.end())));
    const std::vector<std::int64_t> first = {0};
    const auto data = open();
    EXPECT_NE(data->read_for({1, false}, first)["x"].to_vector<float>(),
              data->read_for({2, false}, first)["x"].to_vector<float>());
    const IcdarDataset test(small(folder), Split::test, 3);
    EXPECT_EQ(test.read_for({1, false}, first)["x"].to_vector<float>(),
              test.read_for({2, false}, first)["x"].to_vector<float>());
}

TEST(Icdar, SaysInOneLineWhatIsWrongWithItsFiles) {
    const TempFolder folder;
    const auto open = [&](const std::string& below) { (void)IcdarDataset(small(folder, below), Split::train, 0); };
    expect_error<UsageError>([&] { open("/none"); }, {"there is no folder", "/none", "data.root"});
    std::filesystem::create_directories(folder.str() + "/empty");
    expect_error<UsageError>([&] { open("/empty"); }, {"/empty", "no image"});
    write_pair(folder, "a/images", "a/gt", 1);
    folder.write("a/images/img_2.png", testing::png_of(testing::picture(20, 20, 2)));
    expect_error<UsageError>([&] { open("/a"); }, {"img_2.png", "no ground truth gt_img_2.txt"});
    write_pair(folder, "b/images", "b/gt", 1);
    folder.write("b/gt/gt_img_9.txt", testing::as_bytes(kTruth));
    expect_error<UsageError>([&] { open("/b"); }, {"gt_img_9.txt", "without an image"});
    int number = 0;
    for (const std::string hostile :
         {"10,10,60\n", "a,b,c,d,e,f,g,h,x\n", "1,2,3,4,5,6,7,nan,x\n", "1,2,3,4,5,6,7,1e300,x\n", ",,,,,,,,\n"}) {
        const std::string below = fmt::format("h{}", number++);
        write_pair(folder, below + "/images", below + "/gt", 1, hostile);
        write_pair(folder, below + "/images", below + "/gt", 2, hostile);
        expect_error<IoError>([&] { open("/" + below); }, {"gt_img_", ".txt:1"});
    }
}

TEST(Icdar, RefusesABrokenImageByNameOrLeavesItOut) {
    const TempFolder folder;
    write_published(folder, 3);
    folder.write("ch4_training_images/img_2.jpg", {0xff, 0xd8, 0xff, 0, 1});
    const std::vector<std::int64_t> second = {1};
    IcdarDataOptions options = small(folder);
    expect_error<IoError>([&] { IcdarDataset(options, Split::train, 0).read(second); },
                          {"img_2.jpg", "data.on_broken=skip"});
    options.on_broken = "skip";
    const IcdarDataset data(options, Split::train, 0);
    EXPECT_EQ(data.size(), 2);
    EXPECT_TRUE(data.notes().at(0).starts_with("1 of 3 images cannot be read and is left out; the first: "));
}

TEST(Icdar, TextsThatStickOutOrHaveNoAreaAreNoTrouble) {
    const TempFolder folder;
    for (int i = 0; i < 3; ++i)
        write_pair(folder, "images", "gt", i,
                   "-50,-50,-10,-50,-10,-10,-50,-10,outside\n150,100,400,100,400,300,150,300,sticks out\n"
                   "10,10,10,10,10,10,10,10,point\n10,10,60,30,60,10,10,30,crossed\n5,5,5,5,900000,5,5,900000,huge\n");
    const auto data = std::make_shared<IcdarDataset>(small(folder), Split::train, 0);
    Loader loader(data, loading(2));
    for (int epoch = 0; epoch < 20; ++epoch)
        for (const auto& values : epoch_of(loader, epoch))
            for (const float value : values) ASSERT_TRUE(std::isfinite(value));
}

TEST(Icdar, SeesAFileAsValidationDoesAndKnowsWhereItLies) {
    const TempFolder folder;
    write_published(folder, 1);
    const IcdarDataset data(small(folder), Split::test, 1);
    const std::int64_t first = 0;
    const std::string content = read_data_file(folder.str() + "/ch4_test_images/img_1.jpg");
    const std::optional<SeenImage> seen = data.see(bytes_of(content), "file");
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->x.to_vector<float>(), data.read(std::span(&first, 1))["x"].to_vector<float>());
    EXPECT_EQ(seen->whole, data.load(0).image);
    EXPECT_EQ(seen->size, (ImageSize{120, 160}));
    // The square of 64 is 160 pixels wide, and as high: 40 below the image are black.
    EXPECT_DOUBLE_EQ(seen->box.width, 160);
    EXPECT_DOUBLE_EQ(seen->box.height, 160);
    EXPECT_THROW(data.see(bytes_of("no image"), "file"), IoError);
    EXPECT_TRUE(data.info().more_than_labels && describe_data(Part("data", "icdar2015"))->more_than_labels);
}

}  // namespace invar
