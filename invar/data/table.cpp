#include "invar/data/table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "invar/core/error.h"
#include "invar/core/suggest.h"
#include "invar/data/csv.h"
#include "invar/data/loader.h"
#include "invar/data/npy.h"
#include "invar/io/safetensors.h"

namespace invar {

namespace {

constexpr std::size_t kMostClasses = 10000;

// A file's x as f32 [rows, ...], and its target: cells as written, or an array of [rows] or [rows, outputs].
struct Source {
    std::string file;
    Tensor x;
    std::vector<std::string> words;
    Tensor array;
    std::int64_t rows() const { return x.size(0); }
};

Tensor as_floats(const Tensor& tensor) {
    return Tensor::from(tensor.to_vector<float>(), tensor.shape());
}

// "row 3, column 2" of element i.
std::string place_of(std::size_t i, const Shape& shape) {
    const std::size_t width =
        std::size_t(std::max<std::int64_t>(1, shape.numel() / std::max<std::int64_t>(1, shape[0])));
    return fmt::format("row {}{}", i / width, width > 1 ? fmt::format(", column {}", i % width) : "");
}

void check_finite(const Tensor& tensor, const std::string& file, const std::string& name) {
    if (!is_floating(tensor.dtype())) return;
    const std::vector<float> values = tensor.to_vector<float>();
    const auto bad = std::find_if_not(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
    if (bad == values.end()) return;
    fail<IoError>("{}: {} of {} is {}; values must be finite floats", file,
                  place_of(std::size_t(bad - values.begin()), tensor.shape()), name, *bad);
}

// The columns of one array: one is the target, the others are x.
Source from_columns(const Tensor& array, const TableOptions& options, const std::string& file) {
    check<UsageError>(array.rank() == 2 && array.size(1) >= 2,
                      "{}: its array is {}; a column of it can be the target where it is [rows, columns]", file,
                      array.shape().str());
    const std::int64_t columns = array.size(1), rows = array.size(0);
    const std::optional<std::int64_t> number = whole_number_in(options.target);
    check<UsageError>(number && *number >= -columns && *number < columns,
                      "{}: the target must be the number of one of its {} columns, 0 to {}, and is '{}'", file, columns,
                      columns - 1, options.target);
    check_finite(array, file, "the array");
    const std::int64_t target = *number < 0 ? *number + columns : *number;
    const std::vector<double> values = array.to_vector<double>();
    std::vector<float> x;
    std::vector<double> y;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
        if (i % columns == target)
            y.push_back(values[std::size_t(i)]);
        else
            x.push_back(float(values[std::size_t(i)]));
    }
    // One array has one dtype: where it is floating, whole numbers all the way down are meant as such.
    const bool whole =
        std::all_of(y.begin(), y.end(), [](double v) { return v == std::floor(v) && std::fabs(v) < 1e15; });
    Source source{file, Tensor::from(x, {rows, columns - 1}), {}, {}};
    source.array = Tensor::from(y, {rows}, whole ? Dtype::i64 : Dtype::f64);
    return source;
}

Source from_arrays(const std::map<std::string, Tensor>& arrays, const TableOptions& options, const std::string& file) {
    std::vector<std::string> names;
    for (const auto& [name, array] : arrays) names.push_back(name);
    const auto find = [&](const std::string& name, const char* what) -> const Tensor& {
        const auto found = arrays.find(name);
        check<UsageError>(found != arrays.end(), "{}: there is no {} '{}'{}; it has {}", file, what, name,
                          did_you_mean(name, names), fmt::join(names, ", "));
        check<IoError>(found->second.rank() >= 1 && found->second.numel() > 0, "{}: {} is {}; it needs a row a sample",
                       file, name, found->second.shape().str());
        return found->second;
    };
    const Tensor& y = find(options.target, "target");
    std::string input = options.input;
    if (input.empty()) {
        std::vector<std::string> others = names;
        std::erase(others, options.target);
        input = arrays.contains("x") ? "x" : others.size() == 1 ? others.front() : "";
        check<UsageError>(!input.empty(), "{}: which of {} is x is not clear; name it", file, fmt::join(others, ", "));
    }
    const Tensor& x = find(input, "array");
    check<IoError>(x.size(0) == y.size(0), "{}: {} has {} rows and {} has {}", file, input, x.size(0), options.target,
                   y.size(0));
    check<IoError>(y.rank() <= 2, "{}: the target {} is {}, expected [rows] or [rows, outputs]", file, options.target,
                   y.shape().str());
    check_finite(x, file, input);
    check_finite(y, file, options.target);
    return {file, as_floats(x), {}, y};
}

Source open(const std::string& path, const TableOptions& options) {
    const std::string bytes = read_data_file(path);
    const auto raw = bytes_of(bytes);
    if (is_npy(raw)) return from_columns(parse_npy(raw, path), options, path);
    if (path.ends_with(".npz")) return from_arrays(parse_npz(raw, path), options, path);
    if (path.ends_with(".safetensors")) return from_arrays(parse_safetensors(bytes, path).tensors, options, path);
    check<IoError>(!path.ends_with(".npy") && bytes.find('\0') == std::string::npos,
                   "{}: neither a table of text nor one of .npy, .npz and .safetensors", path);
    CsvTable table = parse_csv(bytes, path, {options.target, options.separator, options.header});
    return {path, table.numbers, std::move(table.target), {}};
}

bool is_whole(const Source& source) {
    if (source.array) return !is_floating(source.array.dtype()) && source.array.numel() == source.rows();
    return std::ranges::all_of(source.words, [](const std::string& cell) { return whole_number_in(cell).has_value(); });
}
bool is_number(const Source& source) {
    return source.array ||
           std::ranges::all_of(source.words, [](const std::string& cell) { return number_in(cell).has_value(); });
}

// The target's numbers, f32 [rows, outputs].
Tensor numbers_of(const Source& source) {
    if (source.array)
        return Tensor::from(source.array.to_vector<float>(), {source.rows(), source.array.numel() / source.rows()});
    std::vector<float> values;
    for (std::size_t i = 0; i < source.words.size(); ++i) {
        const std::optional<double> value = number_in(source.words[i]);
        check<IoError>(value && std::isfinite(float(*value)),
                       "{}: the target of row {} is '{}', which is no finite number", source.file, i,
                       std::string_view(source.words[i]).substr(0, 60));
        values.push_back(float(*value));
    }
    return Tensor::from(values, {source.rows(), 1});
}

// The target's classes, by name; whole numbers in their order, words in the alphabet's.
std::vector<std::string> labels_of(const Source& source) {
    if (!source.array) return source.words;
    check<UsageError>(source.array.numel() == source.rows() && is_whole(source),
                      "{}: the target is {}; classes need one whole number or word for each row", source.file,
                      source.array.str());
    std::vector<std::string> names;
    for (const std::int64_t label : source.array.to_vector<std::int64_t>()) names.push_back(std::to_string(label));
    return names;
}

bool before(const std::string& a, const std::string& b) {
    const std::optional<std::int64_t> x = whole_number_in(a), y = whole_number_in(b);
    return x && y ? *x < *y : x.has_value() != y.has_value() ? x.has_value() : a < b;
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
    Shape sample = x_.shape();
    sample.erase(0);
    return {sample, outputs_};
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
            check(index >= 0 && index < size(), "{}: sample {} does not exist; it has {}", name_, index, size());
            std::memcpy(static_cast<char*>(to.raw()) + std::size_t(i) * bytes,
                        static_cast<const char*>(from.raw()) + std::size_t(rows_[std::size_t(index)]) * bytes, bytes);
        }
        return to;
    };
    return Batch({{"x", picked(x_)}, {"y", picked(y_)}}, n);
}

Table load_table(const TableOptions& options) {
    using Predict = TableOptions::Predict;
    check<UsageError>(!options.path.empty(), "a table needs the path of its file");
    check<UsageError>(!options.target.empty(), "{}: say which column or array is to be predicted", options.path);
    std::vector<Source> sources = {open(options.path, options)};
    if (!options.test_path.empty()) sources.push_back(open(options.test_path, options));
    const Source &first = sources.front(), &last = sources.back();
    const std::int64_t rows = first.rows();

    std::vector<std::int64_t> train = shuffled_order(rows, options.seed, 0), test;
    if (sources.size() == 1) {
        const std::int64_t held = std::int64_t(std::llround(double(rows) * options.test_share));
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
    const bool classes = options.predict == Predict::classes ||
                         (options.predict == Predict::automatic && (is_whole(first) || !is_number(first)));
    if (classes) {
        table.classes = labels_of(first);
        std::sort(table.classes.begin(), table.classes.end(), before);
        table.classes.erase(std::unique(table.classes.begin(), table.classes.end()), table.classes.end());
        outputs = std::int64_t(table.classes.size());
        check<UsageError>(outputs >= 2 && table.classes.size() <= kMostClasses,
                          "{}: the target has {} classes, expected 2 to {}; if they are numbers, predict them as such",
                          first.file, outputs, kMostClasses);
        for (const Source& source : sources) y.push_back(numbered(labels_of(source), table.classes, source.file));
    } else {
        for (const Source& source : sources) y.push_back(numbers_of(source));
        outputs = y[0].size(1);
        check<IoError>(y.back().size(1) == outputs, "{} has {} numbers to predict, and {} has {}", first.file, outputs,
                       last.file, y.back().size(1));
    }
    const std::string name = std::filesystem::path(options.path).filename().string();
    table.train = std::make_shared<TableDataset>(name, first.x, y.front(), std::move(train), outputs);
    table.test = std::make_shared<TableDataset>(name, last.x, y.back(), std::move(test), outputs);
    return table;
}

}  // namespace invar
