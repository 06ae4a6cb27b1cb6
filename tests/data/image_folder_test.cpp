#include "invar/data/image_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "invar/config/config.h"
#include "invar/data/file_bytes.h"
#include "invar/data/loader.h"
#include "invar/data/registry.h"
#include "tests/data/pictures.h"

namespace invar {
namespace {

using testing::expect_error;
using testing::TempFolder;

// `count` images of each class, of several sizes and formats.
void write_classes(const TempFolder& folder, const std::string& below, const std::vector<std::string>& classes,
                   int count) {
    int number = 0;
    for (const std::string& name : classes)
        for (int i = 0; i < count; ++i, ++number) {
            const Image image = testing::picture(20 + number % 7, 26 + number % 5, number);
            folder.write(fmt::format("{}{}/{:02}.{}", below, name, i, i % 2 == 0 ? "png" : "JPG"),
                         i % 2 == 0 ? testing::png_of(image) : testing::jpeg_of(image));
        }
}

ImageFolderOptions small(const TempFolder& folder) {
    ImageFolderOptions options;
    options.root = folder.str();
    options.size = 16;
    options.brightness = 0.2, options.hue = 0.1, options.degrees = 10;
    return options;
}

std::vector<float> epoch_of(Loader& loader, std::int64_t epoch, std::int64_t skip = 0) {
    std::vector<float> values;
    loader.start_epoch(epoch, skip);
    while (const std::optional<Batch> batch = loader.next()) {
        const auto x = (*batch)["x"].to_vector<float>();
        values.insert(values.end(), x.begin(), x.end());
    }
    return values;
}

LoaderOptions loading(int workers, bool shuffle = true) {
    LoaderOptions options;
    options.batch_size = 3, options.num_workers = workers, options.seed = 7, options.shuffle = shuffle;
    return options;
}

}  // namespace

TEST(ImageFolder, NumbersClassesByNameAndReadsBothSplits) {
    const TempFolder folder;
    write_classes(folder, "train/", {"rose", "lily", "Aster"}, 4);
    write_classes(folder, "val/", {"rose", "lily"}, 2);
    folder.write("train/rose/.hidden.png", {1, 2});
    folder.write("train/rose/readme.txt", {1, 2});
    folder.write("train/.cache/x.png", {1, 2});
    const ImageFolderDataset train(small(folder), Split::train, 0), test(small(folder), Split::test, 0);
    EXPECT_EQ(train.class_names(), (std::vector<std::string>{"Aster", "lily", "rose"}));
    EXPECT_EQ(train.description().at("classes"), "Aster, lily, rose");
    EXPECT_EQ(train.size(), 12);
    EXPECT_EQ(test.size(), 4);
    EXPECT_EQ(test.info().outputs, 3);
    EXPECT_EQ(train.info().input, (Shape{16, 16, 3}));
    EXPECT_TRUE(train.notes().empty());
    const std::vector<std::int64_t> some = {0, 2};
    EXPECT_EQ(test.read(some)["y"].to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2}));
}

TEST(ImageFolder, KeepsAShareOfEachClassToValidateOnBySeed) {
    const TempFolder folder;
    write_classes(folder, "", {"a", "b"}, 10);
    ImageFolderOptions options = small(folder);
    options.val_share = 0.3;
    const ImageFolder train = list_image_folder(options, Split::train, 1),
                      test = list_image_folder(options, Split::test, 1);
    EXPECT_EQ(train.files.size(), 14u);
    EXPECT_EQ(test.files.size(), 6u);
    EXPECT_EQ(std::count(test.labels.begin(), test.labels.end(), 1), 3);
    std::set<std::filesystem::path> all(train.files.begin(), train.files.end());
    all.insert(test.files.begin(), test.files.end());
    EXPECT_EQ(all.size(), 20u);
    EXPECT_EQ(list_image_folder(options, Split::test, 1).files, test.files);
    EXPECT_NE(list_image_folder(options, Split::test, 2).files, test.files);
    // Without one image the others stay where they were, but for one of its class.
    std::filesystem::remove(train.files.front());
    const ImageFolder fewer = list_image_folder(options, Split::test, 1);
    const auto kept = std::ranges::count_if(fewer.files, [&](const std::filesystem::path& file) {
        return std::ranges::find(test.files, file) != test.files.end();
    });
    EXPECT_GE(kept, 5) << "of " << fewer.files.size();
}

TEST(ImageFolder, ShowsTheSamePixelsWhateverTheWorkersAndAfterAResumption) {
    const TempFolder folder;
    write_classes(folder, "", {"a", "b"}, 8);
    const auto open = [&] { return std::make_shared<ImageFolderDataset>(small(folder), Split::train, 3); };
    Loader one(open(), loading(1)), four(open(), loading(4)), none(open(), loading(0));
    const std::vector<float> pixels = epoch_of(one, 5);
    EXPECT_EQ(epoch_of(four, 5), pixels);
    EXPECT_EQ(epoch_of(none, 5), pixels);
    const std::size_t behind = 2 * 3 * 16 * 16 * 3;  // two batches
    EXPECT_EQ(epoch_of(four, 5, 2), std::vector<float>(pixels.begin() + behind, pixels.end()));
}

TEST(ImageFolder, ShowsOtherPixelsInAnotherEpochAndWithAnotherSeed) {
    const TempFolder folder;
    write_classes(folder, "", {"a", "b"}, 4);
    const std::vector<std::int64_t> all = {0, 1, 2, 3};
    const ImageFolderDataset data(small(folder), Split::train, 3), other(small(folder), Split::train, 4);
    const auto pixels = data.read_for({1, false}, all)["x"].to_vector<float>();
    EXPECT_EQ(data.read_for({1, false}, all)["x"].to_vector<float>(), pixels);
    EXPECT_NE(data.read_for({2, false}, all)["x"].to_vector<float>(), pixels);
    EXPECT_NE(other.read_for({1, false}, all)["x"].to_vector<float>(), pixels);
}

TEST(ImageFolder, NeverAugmentsWhatItValidatesOn) {
    const TempFolder folder;
    write_classes(folder, "", {"a", "b"}, 6);
    const std::vector<std::int64_t> all = {0, 1};
    const ImageFolderDataset data(small(folder), Split::test, 3);
    const auto pixels = data.read(all)["x"].to_vector<float>();
    EXPECT_EQ(data.read_for({1, false}, all)["x"].to_vector<float>(), pixels);
    EXPECT_EQ(data.read_for({2, false}, all)["x"].to_vector<float>(), pixels);
}

TEST(ImageFolder, GivesBytesThatBecomeTheSameNumbers) {
    const TempFolder folder;
    write_classes(folder, "", {"a", "b"}, 6);
    const std::vector<std::int64_t> all = {3, 0, 1};
    const ImageFolderDataset data(small(folder), Split::train, 3);
    const Tensor numbers = data.read_for({1, false}, all)["x"], bytes = data.read_for({1, true}, all)["x"];
    EXPECT_EQ(bytes.dtype(), Dtype::u8);
    const DevicePixels pixels(*data.pixels(), Device::cpu());
    const auto expected = numbers.to_vector<float>(), made = pixels.numbers(bytes).to_vector<float>();
    for (std::size_t i = 0; i < made.size(); ++i) ASSERT_NEAR(made[i], expected[i], 4e-7);
    std::vector<std::uint8_t> back(expected.size());
    PixelTable(*data.pixels()).bytes(expected, back.data());
    EXPECT_EQ(back, bytes.to_vector<std::uint8_t>());
}

TEST(ImageFolder, RefusesABrokenImageByNameOrLeavesItOutAndCounts) {
    const TempFolder folder;
    write_classes(folder, "train/", {"a", "b"}, 4);
    write_classes(folder, "val/", {"a", "b"}, 1);
    Bytes cut = testing::png_of(testing::picture(30, 30, 1));
    cut.resize(cut.size() / 2);
    folder.write("train/a/zz.png", cut);
    folder.write("train/b/not.jpg", {'h', 'e', 'l', 'l', 'o'});
    ImageFolderOptions options = small(folder);
    const auto data = std::make_shared<ImageFolderDataset>(options, Split::train, 0);
    EXPECT_EQ(data->size(), 10);
    Loader loader(data, loading(2));
    expect_error<IoError>([&] { epoch_of(loader, 0); }, {folder.str(), "data.on_broken=skip"});

    options.on_broken = "skip";
    const auto left = std::make_shared<ImageFolderDataset>(options, Split::train, 0);
    EXPECT_EQ(left->size(), 8);
    ASSERT_EQ(left->notes().size(), 1u);
    EXPECT_TRUE(left->notes()[0].starts_with("2 of 10 images cannot be read and are left out; the first: "));
    EXPECT_NE(left->notes()[0].find("train/a/zz.png"), std::string::npos) << left->notes()[0];
    Loader good(left, loading(2));
    EXPECT_EQ(epoch_of(good, 0).size(), 8u * 16 * 16 * 3);
}

TEST(ImageFolder, SaysInOneLineWhatIsWrongWithAFolder) {
    const TempFolder folder;
    const auto open = [&](const std::string& below, Split split = Split::train) {
        ImageFolderOptions options = small(folder);
        options.root += below;
        (void)ImageFolderDataset(options, split, 0);
    };
    expect_error<UsageError>([&] { open("/none"); }, {"there is no folder", "/none", "data.root"});
    expect_error<UsageError>([&] { open(""); }, {"no folder in it"});
    write_classes(folder, "one/", {"only"}, 2);
    expect_error<UsageError>([&] { open("/one"); }, {"a single class, only"});
    write_classes(folder, "empty/", {"a", "b"}, 1);
    std::filesystem::create_directories(folder.str() + "/empty/c");
    expect_error<UsageError>([&] { open("/empty"); }, {"/empty/c", "no image"});
    write_classes(folder, "late/val/", {"a", "b"}, 1);
    expect_error<UsageError>([&] { open("/late"); }, {"none called train"});
    write_classes(folder, "odd/train/", {"a", "b"}, 1);
    write_classes(folder, "odd/val/", {"c"}, 1);
    expect_error<UsageError>([&] { open("/odd", Split::test); }, {"/odd/val/c", "no such class"});
    write_classes(folder, "few/", {"a", "b"}, 1);
    expect_error<UsageError>([&] { open("/few", Split::test); }, {"no image to validate on", "val_share"});
    ImageFolderOptions turned{.root = folder.str() + "/few", .scale = {0.5, 0.1}};
    expect_error<UsageError>([&] { (void)ImageFolderDataset(turned, Split::train, 0); }, {"data.scale=[0.5, 0.1]"});
    folder.write("few/a/old.bmp", {1});
    EXPECT_EQ(list_image_folder({.root = folder.str() + "/few"}, Split::train, 0).notes.size(), 1u);
}

TEST(ImageFolder, IsOpenedByNameWithItsKeys) {
    const TempFolder folder;
    write_classes(folder, "", {"a", "b"}, 6);
    Part part("data", "image_folder");
    part.set("root", folder.str()).set("size", "8").set("mean", "[0, 0, 0]").set("std", "[1, 1, 1]");
    EXPECT_EQ(describe_data(part)->input, (Shape{8, 8, 3}));
    const auto data = open_data(part, Split::train, 1);
    const std::vector<std::int64_t> first = {0};
    for (const float value : data->read(first)["x"].to_vector<float>()) EXPECT_TRUE(value >= 0 && value <= 1);
}

// A file that is none of the samples is seen as validation sees its own.
TEST(ImageFolder, SeesAFileAsValidationDoes) {
    const TempFolder folder;
    write_classes(folder, "", {"rose", "lily"}, 4);
    const ImageFolderDataset data(small(folder), Split::test, 3);
    const ImageFolder files = list_image_folder(small(folder), Split::test, 3);
    for (std::int64_t i = 0; i < data.size(); ++i) {
        const std::string content = read_data_file(files.files[std::size_t(i)]);
        const std::optional<SeenImage> seen = data.see(bytes_of(content), "file");
        ASSERT_TRUE(seen);
        EXPECT_EQ(seen->x.to_vector<float>(), data.read(std::span(&i, 1))["x"].to_vector<float>());
        EXPECT_EQ(seen->size, data.stored_size(i));
        // 16 of 18 pixels of the shorter side, from its middle.
        EXPECT_NEAR(seen->box.height, double(seen->size.height) * 16 / 18, 1e-9);
        EXPECT_NEAR(seen->box.top, double(seen->size.height) / 18, 1e-9);
    }
    EXPECT_THROW(data.see(bytes_of("no image"), "file"), IoError);
}

}  // namespace invar
