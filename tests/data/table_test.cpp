#include "invar/data/table.h"

#include <zlib.h>

#include <set>
#include <sstream>

#include "files.h"
#include "invar/data/registry.h"
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
    EXPECT_EQ(table.train->name(), "train.csv");
    EXPECT_EQ(table.test->name(), "test.csv");
    EXPECT_EQ(table.test->read(std::vector<std::int64_t>{0})["y"].item(), 1) << "numbered as in the training data";
    options.test_path = folder.write("unknown.csv", text("a,b,y\n3,9,neither\n"));
    expect_error<IoError>([&] { load_table(options); }, {"unknown.csv", "row 0", "\"neither\""});
    options.test_path = folder.write("wide.csv", text("a,b,c,y\n3,9,1,odd\n"));
    expect_error<UsageError>([&] { load_table(options); }, {"wide.csv has a column \"c\""});
    options.test_path = folder.write("plain.csv", text("3,9,1,odd\n"));
    options.target = "-1";
    expect_error<IoError>([&] { load_table(options); }, {"samples of [2]", "samples of [3]"});
}

TEST(Table, MatchesTheColumnsOfTwoFilesByName) {
    const TempFolder folder;
    TableOptions options{.path = folder.write("train.csv", text(rows_of_text())),
                         .test_path = folder.write("test.csv", text("y,b,a\nodd,9,3\n")),
                         .target = "y"};
    for (const char* target : {"y", "2", "-1"}) {
        options.target = target;
        const Batch batch = load_table(options).test->read(std::vector<std::int64_t>{0});
        EXPECT_EQ(batch["x"].to_vector<float>(), (std::vector<float>{3, 9})) << target;
        EXPECT_EQ(batch["y"].item(), 1) << target;
    }
    options.test_path = folder.write("other.csv", text("b,c,y\n9,3,odd\n"));
    expect_error<UsageError>([&] { load_table(options); },
                             {"train.csv has a column \"a\"", "other.csv has \"c\" instead"});
    options.test_path = folder.write("wider.csv", text("b,a,c,y\n9,3,1,odd\n"));
    expect_error<UsageError>([&] { load_table(options); }, {"wider.csv has a column \"c\"", "train.csv has none"});
    options.test_path = folder.write("plain.csv", text("3,9,odd\n"));
    EXPECT_EQ(load_table(options).test->read(std::vector<std::int64_t>{0})["y"].item(), 1) << "without names, by place";
    options.path = folder.write("twice.csv", text("a,a,b,y\n1,2,3,odd\n2,3,4,even\n"));
    options.test_path = folder.write("turned.csv", text("b,a,a,y\n1,2,3,odd\n"));
    expect_error<UsageError>([&] { load_table(options); }, {"more than one is called \"a\""});
}

TEST(Table, DescribesItsColumnsClassesAndSplit) {
    const TempFolder folder;
    TableOptions options{.path = folder.write("t.csv", text(rows_of_text())), .target = "y"};
    const DataDescription found = load_table(options).train->description();
    EXPECT_EQ(found, (DataDescription{{"input", "a, b"},
                                      {"target", "y"},
                                      {"classes", "even, odd"},
                                      {"rows to validate on", "2 of 10, chosen by seed 0"}}));
    options.test_path = folder.write("plain.csv", text("3,9,odd\n4,16,even\n"));
    options.target = "-1";
    EXPECT_FALSE(load_table(options).train->description().contains("rows to validate on"));
    std::swap(options.path, options.test_path);
    EXPECT_EQ(load_table(options).train->description().at("input"), "2 without names (no header)");
    std::string wide, row;
    for (int i = 0; i < 3000; ++i) wide += fmt::format("column{},", i), row += "1,";
    options = {.path = folder.write("wide.csv", text(wide + "y\n" + row + "a\n" + row + "b\n")), .target = "y"};
    options.test_share = 0.5;
    EXPECT_LT(load_table(options).train->description().at("input").size(), 200u) << "it is kept in checkpoints";
}

// 1, 2, 1, 3, 2 as text, as whole floats and as integers of every width are the same classes, and 0.5 is a number.
TEST(Table, MeansTheSameInEveryFormat) {
    const TempFolder folder;
    const std::vector<std::string> expected = {"1", "2", "3"};
    for (const char* cells : {"1 2 1 3 2", "1.0 2.0 1.0 3.0 2.0", "1 2.0 1e0 3 +2"}) {
        std::istringstream words(cells);
        std::string csv = "a,y\n";
        for (std::string word; words >> word;) csv += "0.5," + word + "\n";
        EXPECT_EQ(load_table({.path = folder.write("t.csv", text(csv)), .target = "y"}).classes, expected) << cells;
    }
    const std::string path = folder.str() + "/t.safetensors";
    const auto classes_of = [&](const Tensor& y) {
        save_safetensors(path, {{"x", Tensor::from(std::vector<float>(5, 0.5f), {5})}, {"y", y}});
        return load_table({.path = path, .target = "y"}).classes;
    };
    for (const Dtype dtype : {Dtype::u8, Dtype::i32, Dtype::i64, Dtype::f16, Dtype::bf16, Dtype::f32, Dtype::f64})
        EXPECT_EQ(classes_of(Tensor::from(std::vector<double>{1, 2, 1, 3, 2}, {5}, dtype)), expected) << name_of(dtype);
    EXPECT_TRUE(classes_of(Tensor::from(std::vector<double>{1, 2, 1, 3, 0.5}, {5})).empty());
    const std::int64_t large = (std::int64_t(1) << 60) + 1;
    EXPECT_EQ(classes_of(Tensor::from<std::int64_t>({large, large + 1, large, 0, 0}, {5})).size(), 3u)
        << "whole numbers are told apart to the last digit";
    expect_error<IoError>(
        [&] {
            classes_of(Tensor::from(std::vector<double>{1, 2, 1e39, 3, 2}, {5}));
        },
        {"row 2 of y is 1e+39, which does not fit FP32"});
}

namespace {

// A safetensors file of one x [2, 2] of some integer type and y = 0, 1.
Bytes foreign_file(const std::string& dtype, const Bytes& x) {
    const std::string header = fmt::format(
        R"({{"x":{{"dtype":"{}","shape":[2,2],"data_offsets":[0,{}]}},"y":{{"dtype":"U8","shape":[2],"data_offsets":[{},{}]}}}})",
        dtype, x.size(), x.size(), x.size() + 2);
    Bytes file;
    for (int i = 0; i < 8; ++i) file.push_back(std::uint8_t(std::uint64_t(header.size()) >> (8 * i)));
    file.insert(file.end(), header.begin(), header.end());
    file.insert(file.end(), x.begin(), x.end());
    file.insert(file.end(), {0, 1});
    return file;
}

template <class T>
Bytes bytes_of_numbers(std::initializer_list<T> values) {
    const auto* raw = reinterpret_cast<const std::uint8_t*>(values.begin());
    return {raw, raw + values.size() * sizeof(T)};
}

}  // namespace

TEST(Table, ReadsIntegersOfEveryWidthFromSafetensors) {
    const TempFolder folder;
    const auto first_row = [&](const char* dtype, const Bytes& x) {
        TableOptions options{.path = folder.write("t.safetensors", foreign_file(dtype, x)), .target = "y"};
        options.test_path = options.path;
        return load_table(options).train->read(std::vector<std::int64_t>{0})["x"].to_vector<float>();
    };
    using Floats = std::vector<float>;
    EXPECT_EQ(first_row("I8", bytes_of_numbers<std::int8_t>({-3, 7, 0, 0})), (Floats{-3, 7}));
    EXPECT_EQ(first_row("I16", bytes_of_numbers<std::int16_t>({-3, 700, 0, 0})), (Floats{-3, 700}));
    EXPECT_EQ(first_row("U16", bytes_of_numbers<std::uint16_t>({65535, 7, 0, 0})), (Floats{65535, 7}));
    EXPECT_EQ(first_row("U32", bytes_of_numbers<std::uint32_t>({4000000000, 7, 0, 0})), (Floats{4e9f, 7}));
    EXPECT_EQ(first_row("U64", bytes_of_numbers<std::uint64_t>({4000000000, 7, 0, 0})), (Floats{4e9f, 7}));
    expect_error<IoError>(
        [&] {
            first_row("U64", bytes_of_numbers<std::uint64_t>({1, 2, 3, ~std::uint64_t(0)}));
        },
        {"t.safetensors: x: row 1, column 1 is 18446744073709551615, beyond what i64 holds"});
    expect_error<UsageError>([&] { first_row("C64", Bytes(32)); }, {"no array of numbers beside y"});
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
    expect_error<IoError>([&] { load(rows_of_text(), Predict::numbers); }, {"row 0 is \"even\""});
    expect_error<UsageError>([&] { load("a,y\n1,7\n2,7\n3,7\n4,7\n5,7\n"); }, {"1 classes", "data.predict=numbers"});
    std::string prices = "a,y\n";
    for (int i = 0; i < 60; ++i) prices += fmt::format("{},{}\n", i, 1000 + 7 * i);
    expect_error<UsageError>([&] { load(prices); }, {"60 different whole numbers", "data.predict=numbers"});
    EXPECT_EQ(load(prices, Predict::classes).classes.size(), 60u);
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

namespace {

Bytes npy_bytes(const std::string& descr, const std::string& shape, const Bytes& data) {
    const std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
    Bytes bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, std::uint8_t(header.size()), 0};
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
}

// A zip archive of files as they are.
Bytes zip_bytes(const std::vector<std::pair<std::string, Bytes>>& files) {
    Bytes archive, directory;
    const auto put = [](Bytes& to, std::uint64_t value, int width) {
        for (int i = 0; i < width; ++i) to.push_back(std::uint8_t(value >> (8 * i)));
    };
    // From the version to the length of the extra field, in the archive and in its directory alike.
    const auto describe = [&](Bytes& to, const std::string& name, const Bytes& file) {
        put(to, 20, 2), put(to, 0, 8), put(to, crc32_z(0, file.data(), file.size()), 4);
        put(to, file.size(), 4), put(to, file.size(), 4), put(to, name.size(), 2), put(to, 0, 2);
    };
    for (const auto& [name, file] : files) {
        put(directory, 0x02014b50, 4), put(directory, 20, 2);
        describe(directory, name, file);
        put(directory, 0, 10), put(directory, archive.size(), 4);
        directory.insert(directory.end(), name.begin(), name.end());
        put(archive, 0x04034b50, 4);
        describe(archive, name, file);
        archive.insert(archive.end(), name.begin(), name.end());
        archive.insert(archive.end(), file.begin(), file.end());
    }
    const std::size_t at = archive.size();
    archive.insert(archive.end(), directory.begin(), directory.end());
    put(archive, 0x06054b50, 4), put(archive, 0, 4), put(archive, files.size(), 2), put(archive, files.size(), 2);
    put(archive, directory.size(), 4), put(archive, at, 4), put(archive, 0, 2);
    return archive;
}

}  // namespace

TEST(Table, TakesOneNumberForEachRowForOneColumnAndPassesOverArraysThatAreNone) {
    const TempFolder folder;
    const Bytes y = npy_bytes("|u1", "(5,)", {0, 1, 0, 1, 1}), heights = npy_bytes("|u1", "(5,)", {9, 8, 7, 6, 5});
    const Bytes words = npy_bytes("<U1", "(5,)", Bytes(20)), objects = npy_bytes("|O", "(5,)", {1});
    const std::string path =
        folder.write("t.npz", zip_bytes({{"y.npy", y}, {"h.npy", heights}, {"who.npy", words}, {"o.npy", objects}}));
    const Table table = load_table({.path = path, .target = "y"});
    EXPECT_EQ(table.train->info().input, (Shape{1})) << "h is the only array of numbers beside y";
    EXPECT_EQ(table.train->description().at("input"), "h");
    expect_error<IoError>([&] { load_table({.path = path, .target = "who"}); }, {"t.npz: who: holds text"});
    expect_error<IoError>([&] { load_table({.path = path, .target = "y", .input = "o"}); }, {"t.npz: o:", "pickle"});
    expect_error<UsageError>(
        [&] {
            load_table({.path = folder.write("alone.npz", zip_bytes({{"y.npy", y}})), .target = "y"});
        },
        {"no array of numbers beside y that could be x"});
}

TEST(Table, IsReadOnceForBothSplits) {
    const TempFolder folder;
    const std::string path = folder.write("t.csv", text("a,y\n1,u\n1,v\n1,u\n1,v\n1,u\n"));
    const auto written = std::filesystem::last_write_time(path);
    Part part("data", "table");
    part.set("path", path).set("target", "y");
    auto train = open_data(part, Split::train);
    folder.write("t.csv", text("a,y\n2,u\n2,v\n2,u\n2,v\n2,u\n"));
    std::filesystem::last_write_time(path, written);  // so that nothing tells that it is another file
    auto test = open_data(part, Split::test);
    EXPECT_EQ(test->read(std::vector<std::int64_t>{0})["x"].item(), 1);
    train.reset(), test.reset();
    EXPECT_EQ(open_data(part, Split::test)->read(std::vector<std::int64_t>{0})["x"].item(), 2) << "nobody has it";
    train = open_data(part, Split::train);
    part.set("target", "0").set("predict", "numbers").set("header", "true");
    expect_error<IoError>([&] { open_data(part, Split::test); },
                          {"\"u\" in column \"y\""});  // other options, read anew
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
    expect_error<IoError>(
        [&] {
            load_table({.path = folder.write("t.npy", {0x80, 4, 0}), .target = "y"});
        },
        {"pickle"});
    expect_error<UsageError>([&] { load_table({.path = path, .target = "y", .input = "a"}); }, {"data.input"});
}

}  // namespace invar
