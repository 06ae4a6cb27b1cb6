// What the target of a table is: one rule for cells of text and for arrays.
#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/data/csv.h"
#include "invar/data/table_source.h"
#include "invar/io/safetensors_header.h"

namespace invar {

namespace {

constexpr double kLargestWhole = 0x1p53;  // beyond it a double does not tell neighbours apart

std::optional<std::int64_t> whole(double value) {
    if (value != std::floor(value) || std::fabs(value) > kLargestWhole) return std::nullopt;
    return std::int64_t(value);
}

std::optional<std::int64_t> whole(const std::string& cell) {
    if (const std::optional<std::int64_t> value = whole_number_in(cell)) return value;
    const std::optional<double> value = number_in(cell);
    return value ? whole(*value) : std::nullopt;
}

// A number as a class is called: equal numbers have one name, however they are written.
template <class T>
std::string name_of_number(T value) {
    const std::optional<std::int64_t> integer = whole(double(value));
    return integer ? std::to_string(*integer) : fmt::format("{}", value);
}

bool all_numbers(const std::vector<std::string>& words) {
    return std::ranges::all_of(words, [](const std::string& cell) { return number_in(cell).has_value(); });
}

}  // namespace

bool has_class_target(const TableSource& source) {
    if (!source.array) {
        return !all_numbers(source.words) ||
               std::ranges::all_of(source.words, [](const std::string& cell) { return whole(cell).has_value(); });
    }
    if (source.array.numel() != source.rows()) return false;
    if (!is_floating(source.array.dtype())) return true;
    return std::ranges::all_of(source.array.to_vector<double>(), [](double v) { return whole(v).has_value(); });
}

std::vector<std::string> class_target(const TableSource& source) {
    std::vector<std::string> names;
    if (!source.array) {
        if (!all_numbers(source.words)) return source.words;
        for (const std::string& cell : source.words) {
            const std::optional<std::int64_t> integer = whole(cell);
            names.push_back(integer ? std::to_string(*integer) : name_of_number(*number_in(cell)));
        }
        return names;
    }
    check<UsageError>(source.array.numel() == source.rows(), "{}: the target is {}; classes need one for each row",
                      source.file, source.array.str());
    if (!is_floating(source.array.dtype()))
        for (const std::int64_t label : source.array.to_vector<std::int64_t>()) names.push_back(std::to_string(label));
    else if (source.array.dtype() == Dtype::f64)
        for (const double label : source.array.to_vector<double>()) names.push_back(name_of_number(label));
    else
        for (const float label : source.array.to_vector<float>()) names.push_back(name_of_number(label));
    return names;
}

Tensor number_target(const TableSource& source) {
    std::vector<float> values;
    if (source.array) {
        for (const double value : source.array.to_vector<double>()) values.push_back(float(value));
        return Tensor::from(values, {source.rows(), source.array.numel() / source.rows()});
    }
    for (std::size_t i = 0; i < source.words.size(); ++i) {
        const std::optional<double> value = number_in(source.words[i]);
        const std::string_view shown = std::string_view(source.words[i]).substr(0, 60);
        check<IoError>(value.has_value(), "{}: the target of row {} is {}, which is no number", source.file, i,
                       Quoted{shown});
        check<IoError>(std::isfinite(float(*value)),
                       "{}: the target of row {} is {}, which does not fit FP32, which ends at 3.4e38", source.file, i,
                       Quoted{shown});
        values.push_back(float(*value));
    }
    return Tensor::from(values, {source.rows(), 1});
}

bool class_before(const std::string& a, const std::string& b) {
    if (const auto x = whole_number_in(a), y = whole_number_in(b); x && y) return *x < *y;
    const std::optional<double> x = number_in(a), y = number_in(b);
    if (x && y && *x != *y) return *x < *y;
    return x.has_value() != y.has_value() ? x.has_value() : a < b;
}

}  // namespace invar
