#include "invar/data/table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/data/loader.h"
#include "invar/data/table_source.h"
#include "invar/io/checksum.h"
#include "invar/io/safetensors_header.h"

namespace invar {

namespace {

constexpr std::size_t kMostClasses = 10000;
constexpr std::int64_t kManyClasses = 50, kFewRows = 4;  // so many with so few rows each are doubtful
constexpr std::size_t kLongestList = 1000;               // characters of a description

// Names in one line. A long list is told by its beginning, its number and a checksum of it all.
std::string listed(const std::vector<std::string>& names) {
    const std::string all = printable(fmt::format("{}", fmt::join(names, ", ")));
    if (all.size() <= kLongestList) return all;
    const std::vector<std::string> first(names.begin(), names.begin() + std::min<std::ptrdiff_t>(3, std::ssize(names)));
    return fmt::format("{} ... {} in all, checksum {:08x}",
                       printable(fmt::format("{}", fmt::join(first, ", ")).substr(0, kLongestList)), names.size(),
                       crc32c(all));
}

DataDescription describe(const TableSource& source, const std::vector<std::string>& classes) {
    using Names = TableSource::Names;
    DataDescription description;
    const std::string unnamed =
        fmt::format("{} without names{}", source.inputs.size(), source.is_text ? " (no header)" : "");
    description["input"] = source.names == Names::none ? unnamed : listed(source.inputs);
    description["target"] = source.names == Names::none ? "column " + source.target : printable(source.target);
    if (!classes.empty()) description["classes"] = listed(classes);
    return description;
}

Tensor numbered(const std::vector<std::string>& labels, const std::vector<std::string>& classes,
                const std::string& file) {
    std::map<std::string, std::int64_t> numbers;
    for (std::size_t i = 0; i < classes.size(); ++i) numbers[classes[i]] = std::int64_t(i);
    std::vector<std::int64_t> y;
    for (std::size_t i = 0; i < labels.size(); ++i) {
        const auto found = numbers.find(labels[i]);
        check<IoError>(found != numbers.end(), "{}: the target of row {} is {}, a class that no row to train on has",
                       file, i, Quoted{std::string_view(labels[i]).substr(0, 60)});
        y.push_back(found->second);
    }
    return Tensor::from(y, {std::int64_t(y.size())});
}

}  // namespace

DataInfo TableDataset::info() const {
    Shape sample = content_.x.shape();
    sample.erase(0);
    return {sample, content_.outputs};
}

Batch TableDataset::read(std::span<const std::int64_t> indices) const {
    const std::int64_t n = std::int64_t(indices.size());
    const PurposeScope purpose(Purpose::data);
    const auto picked = [&](const Tensor& from) {
        Shape shape = from.shape();
        const std::size_t bytes = from.bytes() / std::size_t(shape[0]);
        shape[0] = n;
        const Tensor to = Tensor::empty(shape, from.dtype());
        for (std::int64_t i = 0; i < n; ++i) {
            const std::int64_t index = indices[std::size_t(i)];
            check(index >= 0 && index < size(), "{}: sample {} does not exist; it has {}", name(), index, size());
            const auto row = std::size_t(content_.rows[std::size_t(index)]);
            std::memcpy(static_cast<char*>(to.raw()) + std::size_t(i) * bytes,
                        static_cast<const char*>(from.raw()) + row * bytes, bytes);
        }
        return to;
    };
    return Batch({{"x", picked(content_.x)}, {"y", picked(content_.y)}}, n);
}

Table load_table(const TableOptions& options) {
    using Predict = TableOptions::Predict;
    check<UsageError>(!options.path.empty(), "a table needs the path of its file");
    check<UsageError>(!options.target.empty(), "{}: say which column or array is to be predicted", options.path);
    std::vector<TableSource> sources = {open_table_source(options.path, options)};
    if (!options.test_path.empty()) sources.push_back(open_table_source(options.test_path, options, &sources.front()));
    const TableSource &first = sources.front(), &last = sources.back();
    const std::int64_t rows = first.rows();

    std::vector<std::int64_t> train = shuffled_order(rows, options.seed, 0), test;
    const std::int64_t held = std::int64_t(std::llround(double(rows) * options.test_share));
    if (sources.size() == 1) {
        check<UsageError>(held > 0 && held < rows, "{}: a share of {} of {} rows leaves a split without any",
                          options.path, options.test_share, rows);
        test.assign(train.end() - held, train.end());
        train.resize(std::size_t(rows - held));
        std::sort(test.begin(), test.end());
    } else {
        for (std::int64_t i = 0; i < last.rows(); ++i) test.push_back(i);
        Shape a = first.x.shape(), b = last.x.shape();
        a.erase(0), b.erase(0);
        check<IoError>(a == b, "{} has samples of {}, and {} has samples of {}", first.file, a.str(), last.file,
                       b.str());
    }
    std::sort(train.begin(), train.end());  // the loader shuffles

    Table table;
    std::vector<Tensor> y;
    std::int64_t outputs = 0;
    const bool classes =
        options.predict == Predict::classes || (options.predict == Predict::automatic && has_class_target(first));
    if (classes) {
        table.classes = class_target(first);
        std::sort(table.classes.begin(), table.classes.end(), class_before);
        table.classes.erase(std::unique(table.classes.begin(), table.classes.end()), table.classes.end());
        outputs = std::int64_t(table.classes.size());
        check<UsageError>(outputs >= 2 && table.classes.size() <= kMostClasses,
                          "{}: the target has {} classes, expected 2 to {}; if they are numbers to predict: "
                          "data.predict=numbers task=regression",
                          first.file, outputs, kMostClasses);
        // A price in whole numbers is no class: hardly one comes again.
        const bool seldom = outputs > kManyClasses && first.rows() < kFewRows * outputs;
        check<UsageError>(options.predict == Predict::classes || !seldom,
                          "{}: the target has {} different whole numbers or words in {} rows; say which it is: "
                          "data.predict=numbers task=regression, or data.predict=classes",
                          first.file, outputs, first.rows());
        for (const TableSource& source : sources)
            y.push_back(numbered(class_target(source), table.classes, source.file));
    } else {
        for (const TableSource& source : sources) y.push_back(number_target(source));
        outputs = y[0].size(1);
        check<IoError>(y.back().size(1) == outputs, "{} has {} numbers to predict, and {} has {}", first.file, outputs,
                       last.file, y.back().size(1));
    }
    DataDescription description = describe(first, table.classes);
    if (sources.size() == 1)
        description["rows to validate on"] = fmt::format("{} of {}, chosen by seed {}", held, rows, options.seed);
    const auto make = [&](const TableSource& source, const Tensor& labels, std::vector<std::int64_t> chosen) {
        const std::string name = std::filesystem::path(source.file).filename().string();
        return std::make_shared<TableDataset>(
            TableDataset::Content{name, source.x, labels, std::move(chosen), outputs, description});
    };
    table.train = make(first, y.front(), std::move(train));
    table.test = make(last, y.back(), std::move(test));
    return table;
}

}  // namespace invar
