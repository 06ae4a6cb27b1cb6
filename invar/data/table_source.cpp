#include "invar/data/table_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "invar/core/error.h"
#include "invar/core/suggest.h"
#include "invar/data/csv.h"
#include "invar/data/npy.h"
#include "invar/io/safetensors.h"

namespace invar {

namespace {

void check_fits(const std::vector<double>& values, const Shape& shape, const std::string& file,
                const std::string& name) {
    const auto fits = [](double v) { return std::isfinite(float(v)); };
    const auto bad = std::find_if_not(values.begin(), values.end(), fits);
    if (bad == values.end()) return;
    const std::string place = place_of(std::size_t(bad - values.begin()), shape);
    check<IoError>(std::isfinite(*bad), "{}: {} of {} is {}; values must be finite floats", file, place, name, *bad);
    fail<IoError>("{}: {} of {} is {:g}, which does not fit FP32, which ends at 3.4e38; scale the values", file, place,
                  name, *bad);
}

// By way of double whatever the dtype, as numbers of text are read: a value is the same float in every format.
std::vector<float> as_floats(const Tensor& tensor, const std::string& file, const std::string& name) {
    const std::vector<double> values = tensor.to_vector<double>();
    check_fits(values, tensor.shape(), file, name);
    return {values.begin(), values.end()};
}

// The columns of one array: one is the target, the others are x.
TableSource from_columns(const Tensor& array, const TableOptions& options, const std::string& file) {
    check<UsageError>(array.rank() == 2 && array.size(1) >= 2,
                      "{}: its array is {}; a column of it can be the target where it is [rows, columns]", file,
                      array.shape().str());
    check<IoError>(array.size(0) > 0, "{}: its array is {}; there is no row", file, array.shape().str());
    const std::int64_t columns = array.size(1), rows = array.size(0);
    const std::optional<std::int64_t> number = whole_number_in(options.target);
    check<UsageError>(number && *number >= -columns && *number < columns,
                      "{}: the target must be the number of one of its {} columns, 0 to {}, and is '{}'", file, columns,
                      columns - 1, options.target);
    const std::int64_t target = *number < 0 ? *number + columns : *number;
    const std::vector<float> floats = as_floats(array, file, "the array");
    std::vector<float> x;
    for (std::int64_t i = 0; i < rows * columns; ++i)
        if (i % columns != target) x.push_back(floats[std::size_t(i)]);
    const auto column = [&](const auto& values) {
        std::remove_cvref_t<decltype(values)> picked;
        for (std::int64_t i = target; i < rows * columns; i += columns) picked.push_back(values[std::size_t(i)]);
        return Tensor::from(picked, {rows});
    };
    TableSource source{.file = file, .x = Tensor::from(x, {rows, columns - 1})};
    // Each kind of number in what holds it exactly.
    source.array =
        is_floating(array.dtype()) ? column(array.to_vector<double>()) : column(array.to_vector<std::int64_t>());
    for (std::int64_t i = 0; i < columns; ++i)
        if (i != target) source.inputs.push_back(std::to_string(i));
    source.target = std::to_string(target);
    return source;
}

// Arrays by name, each read when it is asked for: others may hold what is no number.
struct NamedArrays {
    std::vector<std::string> names, of_numbers;
    std::function<Tensor(const std::string&)> read;
};

TableSource from_arrays(const NamedArrays& arrays, const TableOptions& options, const std::string& file,
                        const TableSource* like) {
    const auto read = [&](const std::string& name, const char* what) {
        check<UsageError>(std::ranges::find(arrays.names, name) != arrays.names.end(),
                          "{}: there is no {} '{}'{}; it has {}", file, what, name, did_you_mean(name, arrays.names),
                          fmt::join(arrays.names, ", "));
        const Tensor array = arrays.read(name);
        check<IoError>(array.rank() >= 1 && array.numel() > 0, "{}: {} is {}; it needs a row for each sample", file,
                       name, array.shape().str());
        return array;
    };
    const Tensor y = read(options.target, "target");
    std::string input = options.input;
    if (input.empty() && like != nullptr && like->names == TableSource::Names::arrays) input = like->inputs.front();
    if (input.empty()) {
        std::vector<std::string> others = arrays.of_numbers;
        std::erase(others, options.target);
        const bool has_x = std::ranges::find(others, "x") != others.end();
        check<UsageError>(!others.empty(), "{}: there is no array of numbers beside {} that could be x", file,
                          options.target);
        check<UsageError>(has_x || others.size() == 1, "{}: which of {} is x is not clear; name it by data.input", file,
                          fmt::join(others, ", "));
        input = has_x ? "x" : others.front();
    }
    const Tensor x = read(input, "array");
    check<IoError>(x.size(0) == y.size(0), "{}: {} has {} rows and {} has {}", file, input, x.size(0), options.target,
                   y.size(0));
    check<IoError>(y.rank() <= 2, "{}: the target {} is {}, expected [rows] or [rows, outputs]", file, options.target,
                   y.shape().str());
    check_fits(y.to_vector<double>(), y.shape(), file, options.target);
    // One number for each row is one column.
    const Shape shape = x.rank() == 1 ? Shape{x.size(0), 1} : x.shape();
    TableSource source{.file = file, .x = Tensor::from(as_floats(x, file, input), shape)};
    source.array = y;
    source.names = TableSource::Names::arrays;
    source.inputs = {input};
    source.target = options.target;
    return source;
}

// Integers of a width that there are no tensors of, as i64.
template <class Stored>
Tensor widened(const std::string& bytes, const Shape& shape, const std::string& where) {
    std::vector<std::int64_t> values(bytes.size() / sizeof(Stored));
    for (std::size_t i = 0; i < values.size(); ++i) {
        Stored value{};
        std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
        if constexpr (std::is_same_v<Stored, std::uint64_t>)
            check<IoError>(value <= std::uint64_t(std::numeric_limits<std::int64_t>::max()),
                           "{}: {} is {}, beyond what i64 holds", where, place_of(i, shape), value);
        values[i] = std::int64_t(value);
    }
    return Tensor::from(values, shape);
}

Tensor read_foreign(const SafetensorsFile& file, const ForeignEntry& entry) {
    const std::string where = fmt::format("{}: {}", file.source(), entry.name);
    check<IoError>(entry.kind == ForeignEntry::Kind::integer, "{}: holds elements of type {}, not numbers; convert it",
                   where, entry.dtype);
    check<IoError>(entry.shape.size() <= std::size_t(kMaxRank), "{}: an array of more than {} dimensions", where,
                   kMaxRank);
    Shape shape;
    for (const std::uint64_t size : entry.shape) shape.push_back(std::int64_t(size));
    std::string bytes(std::size_t(entry.end - entry.begin), '\0');
    file.read({entry.name, Dtype::u8, shape, entry.begin, entry.end, {}}, 0, bytes.data(), bytes.size());
    if (entry.dtype == "I8") return widened<std::int8_t>(bytes, shape, where);
    if (entry.dtype == "I16") return widened<std::int16_t>(bytes, shape, where);
    if (entry.dtype == "U16") return widened<std::uint16_t>(bytes, shape, where);
    if (entry.dtype == "U32") return widened<std::uint32_t>(bytes, shape, where);
    return widened<std::uint64_t>(bytes, shape, where);
}

NamedArrays arrays_of(const SafetensorsFile& file) {
    NamedArrays arrays;
    for (const TensorEntry& entry : file.entries()) arrays.of_numbers.push_back(entry.name);
    for (const ForeignEntry& entry : file.foreign())
        (entry.kind == ForeignEntry::Kind::integer ? arrays.of_numbers : arrays.names).push_back(entry.name);
    arrays.names.insert(arrays.names.end(), arrays.of_numbers.begin(), arrays.of_numbers.end());
    std::ranges::sort(arrays.names);
    std::ranges::sort(arrays.of_numbers);
    arrays.read = [&file](const std::string& name) {
        for (const ForeignEntry& entry : file.foreign())
            if (entry.name == name) return read_foreign(file, entry);
        return file.tensor(name);
    };
    return arrays;
}

NamedArrays arrays_of(const NpzFile& file) {
    NamedArrays arrays;
    arrays.names = file.names();
    for (const std::string& name : arrays.names)
        if (file.holds_numbers(name)) arrays.of_numbers.push_back(name);
    arrays.read = [&file](const std::string& name) { return file.array(name); };
    return arrays;
}

std::string listed(const std::vector<std::string>& names) {
    std::vector<std::string> shown;
    for (const std::string& name : names) shown.push_back(Quoted{name}.str());
    return fmt::format("{}", fmt::join(shown, ", "));
}

// What `of` has beyond `than`.
std::vector<std::string> beyond(const std::vector<std::string>& of, const std::vector<std::string>& than) {
    std::vector<std::string> more;
    for (const std::string& name : of)
        if (std::ranges::find(than, name) == than.end()) more.push_back(name);
    return more;
}

// Puts the columns of a file into the order of the one that is trained on.
void follow(TableSource& source, const TableSource& like) {
    std::vector<std::string> own = source.inputs, wanted = like.inputs;
    own.push_back(source.target), wanted.push_back(like.target);
    const std::vector<std::string> missing = beyond(wanted, own), extra = beyond(own, wanted);
    check<UsageError>(missing.empty(), "{} has {} column{} {}, and {} has {}", like.file,
                      missing.size() == 1 ? "a" : "the", missing.size() == 1 ? "" : "s", listed(missing), source.file,
                      extra.empty() ? "none of that name" : listed(extra) + " instead");
    check<UsageError>(extra.empty(), "{} has {} column{} {}, and {} has none of that name", source.file,
                      extra.size() == 1 ? "a" : "the", extra.size() == 1 ? "" : "s", listed(extra), like.file);
    if (source.inputs == like.inputs && source.target == like.target) return;
    std::vector<std::size_t> from;
    for (const std::string& name : like.inputs) {
        check<UsageError>(std::ranges::count(own, name) == 1 && std::ranges::count(wanted, name) == 1,
                          "{} and {} have their columns in another order, and more than one is called {}; rename them",
                          like.file, source.file, Quoted{name});
        from.push_back(std::size_t(std::ranges::find(source.inputs, name) - source.inputs.begin()));
    }
    const std::vector<float> before = source.x.to_vector<float>();
    std::vector<float> after;
    for (std::size_t row = 0; row < std::size_t(source.rows()); ++row)
        for (const std::size_t column : from) after.push_back(before[row * from.size() + column]);
    source.x = Tensor::from(after, source.x.shape());
    source.inputs = like.inputs;
}

TableSource from_text(const std::string& text, const TableOptions& options, const std::string& file,
                      const TableSource* like) {
    check<UsageError>(options.input.empty(), "{}: data.input names an array, and a table of text has columns", file);
    const bool named = like != nullptr && like->names == TableSource::Names::header;
    CsvTable table = parse_csv(text, file,
                               {.target = options.target,
                                .separator = options.separator,
                                .header = options.header,
                                .target_name = named ? like->target : ""});
    TableSource source{.file = file, .x = table.numbers};
    source.words = std::move(table.target);
    source.names = table.header ? TableSource::Names::header : TableSource::Names::none;
    source.is_text = true;
    source.inputs = std::move(table.columns);
    source.target = std::move(table.target_name);
    if (named && table.header) follow(source, *like);
    return source;
}

}  // namespace

TableSource open_table_source(const std::string& path, const TableOptions& options, const TableSource* like) {
    const std::string bytes = read_data_file(path);
    const auto raw = bytes_of(bytes);
    const PurposeScope purpose(Purpose::data);
    if (is_npy(raw)) return from_columns(parse_npy(raw, path), options, path);
    if (path.ends_with(".npz")) {
        const NpzFile file(raw, path);
        return from_arrays(arrays_of(file), options, path, like);
    }
    if (path.ends_with(".safetensors")) {
        const SafetensorsFile file(bytes, path, ForeignDtypes::list);
        return from_arrays(arrays_of(file), options, path, like);
    }
    const bool pickled = bytes.starts_with('\x80');
    check<IoError>(!pickled, "{}: a Python pickle, which is a program and not read; save it as .npz or .csv", path);
    check<IoError>(!path.ends_with(".npy") && bytes.find('\0') == std::string::npos,
                   "{}: neither a table of text nor one of .npy, .npz and .safetensors", path);
    return from_text(bytes, options, path, like);
}

}  // namespace invar
