#include "invar/data/table.h"

#include <set>

#include "files.h"
#include "invar/io/safetensors.h"

namespace invar {

using namespace testing;

namespace {

Bytes text(const std::string& content) {
    return {content.begin(), content.end()};
}

// Ten rows: a counts, b is its square, y says whether a is even.
std::string rows_of_text() {
    std::string all = "a,b,y\n";
    for (int i = 0; i < 10; ++i) all += fmt::format("{},{},{}\n", i, i * i, i % 2 == 0 ? "even" : "odd");
    return all;
}

std::vector<std::int64_t> everything(const Dataset& data) {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < data.size(); ++i) all.push_back(i);
    return all;
}

}  // namespace

TEST(Table, SplitsRowsByShareWithoutLosingOrRepeatingAny) {
    const TempFolder folder;
    TableOptions options{.path = folder.write("t.csv", text(rows_of_text())), .target = "y"};
    const Table table = load_table(options);
    EXPECT_EQ(table.train->size(), 8);
    EXPECT_EQ(table.test->size(), 2);
    EXPECT_EQ(table.train->info().input, (Shape{2}));
    EXPECT_EQ(table.train->info().outputs, 2);
    EXPECT_EQ(table.classes, (std::vector<std::string>{"even", "odd"}));
    std::set<float> seen;
    for (const auto& split : {table.train, table.test}) {
        const Batch batch = split->read(everything(*split));
        EXPECT_EQ(batch.size, split->size());
        const std::vector<float> x = batch["x"].to_vector<float>();
        const std::vector<std::int64_t> y = batch["y"].to_vector<std::int64_t>();
        for (std::size_t i = 0; i < y.size(); ++i) {
            seen.insert(x[2 * i]);
            EXPECT_EQ(x[2 * i + 1], x[2 * i] * x[2 * i]);
            EXPECT_EQ(y[i], std::int64_t(x[2 * i]) % 2);
        }
    }
    EXPECT_EQ(seen.size(), 10u);

    const std::vector<float> before = table.test->read(everything(*table.test))["x"].to_vector<float>();
    EXPECT_EQ(load_table(options).test->read(everything(*table.test))["x"].to_vector<float>(), before);
    options.seed = 3;
    EXPECT_NE(load_table(options).test->read(everything(*table.test))["x"].to_vector<float>(), before);
    options.test_share = 0.01;
    expect_error<UsageError>([&] { load_table(options); }, {"leaves a split without any"});
}

TEST(Table, TakesTheTestSplitFromAnotherFile) {
    const TempFolder folder;
    TableOptions options{.path = folder.write("train.csv", text(rows_of_text())),
                         .test_path = folder.write("test.csv", text("a,b,y\n3,9,odd\n")),
                         .target = "y"};
    const Table table = load_table(options);
    EXPECT_EQ(table.train->size(), 10);
    EXPECT_EQ(table.test->read(std::vector<std::int64_t>{0})["y"].item(), 1) << "numbered as in the training data";
    options.test_path = folder.write("unknown.csv", text("a,b,y\n3,9,neither\n"));
    expect_error<IoError>([&] { load_table(options); }, {"unknown.csv", "row 0", "\"neither\""});
    options.test_path = folder.write("wide.csv", text("a,b,c,y\n3,9,1,odd\n"));
    expect_error<IoError>([&] { load_table(options); }, {"samples of [2]", "samples of [3]"});
}

TEST(Table, PredictsWholeNumbersAsClassesAndOthersAsNumbersUnlessToldOtherwise) {
    const TempFolder folder;
    const auto load = [&](const std::string& content, TableOptions::Predict predict = {}) {
        return load_table({.path = folder.write("t.csv", text(content)), .target = "y", .predict = predict});
    };
    using Predict = TableOptions::Predict;
    const std::string whole = "a,y\n1,10\n2,-1\n3,2\n4,10\n5,2\n", real = "a,y\n1,1.5\n2,2\n3,0.25\n4,1\n5,3\n";
    EXPECT_EQ(load(whole).classes, (std::vector<std::string>{"-1", "2", "10"})) << "in the order of numbers";
    const Table numbers = load(real);
    EXPECT_TRUE(numbers.classes.empty());
    EXPECT_EQ(numbers.train->info().outputs, 1);
    EXPECT_EQ(numbers.train->read(std::vector<std::int64_t>{0})["y"].shape(), (Shape{1, 1}));
    EXPECT_TRUE(load(whole, Predict::numbers).classes.empty());
    EXPECT_EQ(load(real, Predict::classes).classes.size(), 5u);
    expect_error<IoError>([&] { load(rows_of_text(), Predict::numbers); }, {"row 0 is 'even'"});
    expect_error<UsageError>([&] { load("a,y\n1,7\n2,7\n3,7\n4,7\n5,7\n"); }, {"1 classes"});
}

TEST(Table, ReadsArraysByNameFromSafetensors) {
    const TempFolder folder;
    const std::string path = folder.str() + "/t.safetensors";
    std::vector<float> pixels(5 * 2 * 2 * 1);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = float(i);
    TensorMap tensors = {{"images", Tensor::from(pixels, {5, 2, 2, 1})},
                         {"labels", Tensor::from<std::int64_t>({0, 1, 0, 1, 1}, {5})}};
    save_safetensors(path, tensors);
    TableOptions options{.path = path, .target = "labels"};
    const Table table = load_table(options);
    EXPECT_EQ(table.train->info().input, (Shape{2, 2, 1}));
    EXPECT_EQ(table.classes.size(), 2u);

    tensors.emplace("boxes", Tensor::from(std::vector<double>(10, 0.5), {5, 2}));
    save_safetensors(path, tensors);
    expect_error<UsageError>([&] { load_table(options); }, {"boxes, images", "not clear"});
    options.input = "images";
    options.target = "boxes";
    EXPECT_EQ(load_table(options).train->info().outputs, 2);
    options.target = "lables";
    expect_error<UsageError>([&] { load_table(options); }, {"did you mean 'labels'?"});

    pixels[13] = std::numeric_limits<float>::quiet_NaN();
    tensors.at("images") = Tensor::from(pixels, {5, 4});
    save_safetensors(path, tensors);
    options.target = "labels";
    expect_error<IoError>([&] { load_table(options); }, {"row 3, column 1 of images is nan"});
    tensors.at("images") = Tensor::from(std::vector<float>(8), {4, 2});
    save_safetensors(path, tensors);
    expect_error<IoError>([&] { load_table(options); }, {"images has 4 rows and labels has 5"});
}

TEST(Table, TakesAColumnOfOneArrayByItsNumber) {
    const TempFolder folder;
    Bytes bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 60, 0};
    const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (5, 3)} \n";
    bytes[8] = std::uint8_t(header.size());
    bytes.insert(bytes.end(), header.begin(), header.end());
    for (std::uint8_t i = 0; i < 15; ++i) bytes.push_back(i % 3 == 2 ? i % 2 : i);
    const std::string path = folder.write("t.npy", bytes);
    const Table table = load_table({.path = path, .target = "-1"});
    EXPECT_EQ(table.train->info().input, (Shape{2}));
    EXPECT_EQ(table.classes, (std::vector<std::string>{"0", "1"}));
    expect_error<UsageError>([&] { load_table({.path = path, .target = "y"}); },
                             {"the number of one of its 3 columns"});
}

TEST(Table, SaysWhatIsMissing) {
    const TempFolder folder;
    expect_error<UsageError>([] { load_table({}); }, {"the path of its file"});
    const std::string path = folder.write("t.csv", text(rows_of_text()));
    expect_error<UsageError>([&] { load_table({.path = path}); }, {"which column or array is to be predicted"});
    expect_error<IoError>([&] { load_table({.path = folder.write("t.bin", Bytes(9)), .target = "y"}); },
                          {"neither a table of text"});
}

}  // namespace invar
