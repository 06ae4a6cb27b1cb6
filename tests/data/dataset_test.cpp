#include "invar/data/dataset.h"

#include <cmath>
#include <numeric>

#include "files.h"
#include "invar/data/image_set.h"
#include "invar/data/registry.h"
#include "invar/data/synthetic.h"

namespace invar {

using namespace testing;

namespace {

Part part_of(const std::string& name, const std::string& root) {
    Part part("data", name);
    part.as<ImageOptions>().root = root;
    return part;
}

void write_idx(const TempFolder& folder, const std::string& prefix, bool packed) {
    const Bytes images = idx_bytes({4, 3, 5}, counting(60, 100)), labels = idx_bytes({4}, {1, 2, 3, 9});
    const std::string suffix = packed ? ".gz" : "";
    folder.write(prefix + "-images-idx3-ubyte" + suffix, packed ? gzip_bytes(images) : images);
    folder.write(prefix + "-labels-idx1-ubyte" + suffix, packed ? gzip_bytes(labels) : labels);
}

Batch read_all(const Dataset& dataset) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(dataset.size()));
    std::iota(indices.begin(), indices.end(), std::int64_t(0));
    return dataset.read(indices);
}

}  // namespace

TEST(Dataset, OpensPlainAndGzipFilesAlike) {
    const TempFolder folder;
    write_idx(folder, "train", false);
    write_idx(folder, "t10k", true);
    const auto train = open_data(part_of("mnist", folder.str()), Split::train);
    const auto test = open_data(part_of("mnist", folder.str()), Split::test);
    for (const auto& dataset : {train, test}) {
        EXPECT_EQ(dataset->name(), "mnist");
        EXPECT_EQ(dataset->size(), 4);
        EXPECT_EQ(dataset->info().outputs, 10);
        EXPECT_EQ(dataset->info().input, (Shape{3, 5, 1}));
    }
    EXPECT_EQ(read_all(*train)["x"].to_vector<float>(), read_all(*test)["x"].to_vector<float>());
}

TEST(Dataset, FindsFilesInTheFolderOfTheSetsName) {
    const TempFolder folder;
    write_idx(folder, "FashionMNIST/raw/train", true);
    EXPECT_EQ(open_data(part_of("fashion_mnist", folder.str()), Split::train)->size(), 4);
}

TEST(Dataset, NormalisesAsAskedWhenABatchIsMade) {
    const TempFolder folder;
    write_idx(folder, "train", false);
    Part data = part_of("mnist", folder.str());
    const std::vector<std::int64_t> indices = {3, 0};
    const Batch usual = open_data(data, Split::train)->read(indices);
    EXPECT_EQ(usual.size, 2);
    EXPECT_EQ(usual["x"].shape(), (Shape{2, 3, 5, 1}));
    EXPECT_EQ(usual["y"].dtype(), Dtype::i64);
    EXPECT_EQ(usual["y"].to_vector<std::int64_t>(), (std::vector<std::int64_t>{9, 1}));
    const auto x = usual["x"].to_vector<double>();
    EXPECT_FLOAT_EQ(float(x[0]), float((145.0 / 255 - 0.5) / 0.5));
    EXPECT_FLOAT_EQ(float(x[15]), float((100.0 / 255 - 0.5) / 0.5));

    data.set("mean", "0.1307").set("std", "0.3081");
    const auto z = open_data(data, Split::train)->read(indices)["x"].to_vector<double>();
    EXPECT_FLOAT_EQ(float(z[29]), float((114.0 / 255 - 0.1307) / 0.3081));
}

TEST(Dataset, AccountsBatchesAsData) {
    const SyntheticDataset dataset({}, Split::train);
    const auto live = [] { return memory_stats({}).live[static_cast<int>(Purpose::data)]; };
    const std::int64_t before = live();
    const std::vector<std::int64_t> indices = {0, 1};
    const Batch batch = dataset.read(indices);
    EXPECT_EQ(live() - before, 2 * 784 * 4 + 2 * 8);
}

TEST(Dataset, OpensBothCifars) {
    const TempFolder folder;
    const auto record = [](Bytes labels) {
        const Bytes image = counting(3072);
        labels.insert(labels.end(), image.begin(), image.end());
        return labels;
    };
    for (std::uint8_t i = 1; i <= 5; ++i) folder.write(fmt::format("data_batch_{}.bin", i), record({i}));
    folder.write("test_batch.bin", record({0}));
    folder.write("cifar-100-binary/train.bin", record({4, 77}));
    folder.write("cifar-100-binary/test.bin", record({5, 78}));

    const auto ten = open_data(part_of("cifar10", folder.str()), Split::train);
    EXPECT_EQ(ten->info().input, (Shape{32, 32, 3}));
    EXPECT_EQ(read_all(*ten)["y"].to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
    EXPECT_EQ(open_data(part_of("cifar10", folder.str()), Split::test)->size(), 1);
    const auto hundred = open_data(part_of("cifar100", folder.str()), Split::test);
    EXPECT_EQ(hundred->info().outputs, 100);
    EXPECT_EQ(read_all(*hundred)["y"].to_vector<std::int64_t>(), (std::vector<std::int64_t>{78}));
}

TEST(Dataset, SaysWhatIsMissingWhereItLookedAndWhatToDo) {
    const TempFolder folder;
    const auto open = [&](const char* name, Split split) { open_data(part_of(name, folder.str()), split); };
    expect_error<UsageError>([&] { open("mnist", Split::test); },
                             {"mnist", "t10k-images-idx3-ubyte", folder.str(), "https://", "data=synthetic"});
    expect_error<UsageError>([&] { open("cifar10", Split::train); },
                             {"data_batch_1.bin", folder.str(), "cifar-10-binary.tar.gz", "data=synthetic"});
    expect_error<UsageError>([&] { open("cifar100", Split::test); }, {"test.bin", "cifar-100-binary.tar.gz"});
    if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
        expect_error<UsageError>([&] { open("fashion_mnist", Split::train); },
                                 {"train-labels-idx1-ubyte", "/usr/share/datasets/fashion-mnist",
                                  "apt install dataset-fashion-mnist", "data=synthetic"});
    }
    // Half of a pair is not a data set.
    folder.write("t10k-images-idx3-ubyte", idx_bytes({1, 1, 1}, {0}));
    expect_error<UsageError>([&] { open("mnist", Split::test); }, {"t10k-labels-idx1-ubyte"});
}

TEST(Dataset, NamesTheDamagedFile) {
    const TempFolder folder;
    write_idx(folder, "train", false);
    const std::string path = folder.write("train-labels-idx1-ubyte", idx_bytes({4}, {1, 2, 3}));
    expect_error<IoError>([&] { open_data(part_of("mnist", folder.str()), Split::train); },
                          {path, "holds 11 bytes", "expected 12"});
}

TEST(Dataset, SuggestsTheNearestKnownName) {
    const auto open = [](const char* name) { open_data(Part("data", name), Split::train); };
    expect_error<UsageError>([&] { open("fashionmnist"); },
                             {"'fashionmnist'", "did you mean 'fashion_mnist'", "cifar100", "synthetic"});
    expect_error<UsageError>([&] { open("cifar-10"); }, {"did you mean 'cifar10'"});
}

TEST(Dataset, RefusesBadNumbers) {
    const auto with = [](auto change) {
        SyntheticOptions options;
        change(options);
        SyntheticDataset(options, Split::train);
    };
    expect_error<UsageError>([&] { with([](auto& o) { o.std = 0; }); }, {"data.std is 0"});
    expect_error<UsageError>([&] { with([](auto& o) { o.std = std::nan(""); }); }, {"data.std is nan"});
    expect_error<UsageError>([&] { with([](auto& o) { o.mean = INFINITY; }); }, {"data.mean is inf"});
    expect_error<UsageError>([&] { with([](auto& o) { o.size = 0; }); }, {"size is 0"});
    expect_error<UsageError>([&] { with([](auto& o) { o.classes = -1; }); }, {"classes is -1"});
    expect_error<UsageError>([&] { with([](auto& o) { o.height = 1 << 20; }); }, {"height is 1048576"});
    expect_error<UsageError>([&] { with([](auto& o) { o.height = o.width = o.channels = 4096; }); }, {"at most"});
}

TEST(Dataset, RefusesSamplesThatDoNotExist) {
    const SyntheticDataset dataset({}, Split::train);
    const std::vector<std::int64_t> indices = {dataset.size()};
    expect_error<Error>([&] { dataset.read(indices); }, {"sample 10000"});
}

TEST(Idx, TakesSizesAndClassesFromItsFiles) {
    const TempFolder folder;
    folder.write("train-images-idx3-ubyte", idx_bytes({2, 32, 32}, Bytes(2048)));
    folder.write("train-labels-idx1-ubyte", idx_bytes({2}, {0, 46}));
    folder.write("t10k-images-idx3-ubyte", idx_bytes({1, 32, 32}, Bytes(1024)));
    folder.write("t10k-labels-idx1-ubyte", idx_bytes({1}, {3}));
    const Part any = part_of("idx", folder.str());
    for (const DataInfo& info :
         {*describe_data(any), open_data(any, Split::train)->info(), open_data(any, Split::test)->info()}) {
        EXPECT_EQ(info.input, (Shape{32, 32, 1}));
        EXPECT_EQ(info.outputs, 47);
    }
    EXPECT_EQ(describe_data(part_of("mnist", folder.str() + "/nowhere"))->input, (Shape{28, 28, 1})) << "as published";
    expect_error<IoError>([&] { open_data(part_of("mnist", folder.str()), Split::train); }, {"label 46", "0 to 9"});
    folder.write("t10k-labels-idx1-ubyte", idx_bytes({1}, {47}));
    expect_error<IoError>([&] { open_data(any, Split::test); }, {"label 47", "0 to 46"});
}

TEST(FashionMnist, HasTheSizesItsAuthorsPublished) {
    if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist")) {
        GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
    }
    const TempFolder empty;
    for (const Split split : {Split::train, Split::test}) {
        const auto dataset = open_data(part_of("fashion_mnist", empty.str()), split);
        const std::int64_t expected = split == Split::train ? 60000 : 10000;
        ASSERT_EQ(dataset->size(), expected);
        EXPECT_EQ(dataset->info().input, (Shape{28, 28, 1}));
        EXPECT_EQ(dataset->info().outputs, 10);
        std::vector<std::int64_t> count(10);
        for (const std::int64_t label : read_all(*dataset)["y"].to_vector<std::int64_t>()) ++count[std::size_t(label)];
        EXPECT_EQ(count, std::vector<std::int64_t>(10, expected / 10));
    }
}

}  // namespace invar
