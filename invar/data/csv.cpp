#include "invar/data/csv.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "invar/core/error.h"
#include "invar/core/suggest.h"
#include "invar/io/safetensors_header.h"

namespace invar {

namespace {

constexpr std::size_t kMostColumns = 1 << 16;
constexpr std::string_view kSpace = " \t\r";

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(kSpace);
    return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

template <class T>
std::optional<T> parse_all(std::string_view cell) {
    if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
    T value{};
    const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (stop != cell.data() + cell.size() || cell.empty()) return std::nullopt;
    if constexpr (std::is_same_v<T, double>)  // which may be too small, and is 0 then, or too large
        if (error == std::errc::result_out_of_range) return std::strtod(std::string(cell).c_str(), nullptr);
    return error == std::errc() ? std::optional(value) : std::nullopt;
}

// Takes a text apart, row by row; rows without anything in them are passed over.
class Rows {
  public:
    Rows(std::string_view text, const std::string& file, char separator)
        : text_(text), file_(file), separator_(separator) {}

    // The next row's cells, whose memory is used again by the next call; none at the end.
    bool next(std::vector<std::string>& cells) {
        while (at_ < text_.size()) {
            line_ = next_line_;
            std::size_t count = 0;
            bool more = true;
            while (more) {
                check<IoError>(count < kMostColumns, "{}:{}: more than {} columns", file_, line_, kMostColumns);
                if (count == cells.size()) cells.emplace_back();
                more = cell(cells[count++]);
            }
            if (count == 1 && cells[0].empty() && !quoted_) continue;
            cells.resize(count);
            return true;
        }
        return false;
    }
    std::int64_t line() const { return line_; }

  private:
    // One cell; whether another follows in its row.
    bool cell(std::string& out) {
        out.clear();
        const std::size_t first = text_.find_first_not_of(separator_ == '\t' ? " " : " \t", at_);
        quoted_ = first != text_.npos && text_[first] == '"';
        if (quoted_) {
            at_ = first + 1;
            read_quoted(out);
        }
        const char ends[] = {separator_, '\n'};
        const std::size_t end = std::min(text_.find_first_of(std::string_view(ends, 2), at_), text_.size());
        const std::string_view rest = trimmed(text_.substr(at_, end - at_));
        check<IoError>(!quoted_ || rest.empty(), "{}:{}: {} stands behind a closing quote", file_, line_,
                       Quoted{rest.substr(0, 40)});
        if (!quoted_) out = rest;
        at_ = std::min(end + 1, text_.size());
        const bool more = end < text_.size() && text_[end] == separator_;
        if (end < text_.size() && !more) ++next_line_;
        return more;
    }
    void read_quoted(std::string& out) {
        while (true) {
            const std::size_t quote = text_.find('"', at_);
            check<IoError>(quote != text_.npos, "{}:{}: a quote that is opened and never closed", file_, line_);
            const std::string_view part = text_.substr(at_, quote - at_);
            next_line_ += std::count(part.begin(), part.end(), '\n');
            out += part;
            at_ = quote + 1;
            if (at_ >= text_.size() || text_[at_] != '"') return;
            out += '"';
            ++at_;
        }
    }

    std::string_view text_;
    const std::string& file_;
    char separator_;
    std::size_t at_ = 0;
    std::int64_t line_ = 1, next_line_ = 1;
    bool quoted_ = false;
};

// Which of the usual separators the first line has most of, outside quotes.
char guess_separator(std::string_view text) {
    constexpr std::string_view kKnown = ",;\t|";
    std::size_t counts[kKnown.size()] = {};
    bool quoted = false;
    for (const char c : text) {
        if (c == '"') quoted = !quoted;
        if (c == '\n' && !quoted) break;
        if (const std::size_t found = kKnown.find(c); found != kKnown.npos && !quoted) ++counts[found];
    }
    return kKnown[std::size_t(std::max_element(std::begin(counts), std::end(counts)) - std::begin(counts))];
}

std::size_t find_target(const std::vector<std::string>& names, const CsvOptions& options, const std::string& file) {
    for (const std::string& name : {options.target_name, options.target}) {
        const auto found = std::find(names.begin(), names.end(), name);
        if (found == names.end() || name.empty()) continue;
        check<UsageError>(std::count(found, names.end(), name) == 1,
                          "{}: {} of its columns are called {}; rename them, or give the target by its number", file,
                          std::count(found, names.end(), name), Quoted{name});
        return std::size_t(found - names.begin());
    }
    const std::string& target = options.target;
    const std::optional<std::int64_t> number = parse_all<std::int64_t>(target);
    const std::int64_t count = std::int64_t(names.size());
    if (number && *number >= -count && *number < count) return std::size_t(*number < 0 ? *number + count : *number);
    constexpr std::size_t kShown = 8;
    const auto end = names.begin() + std::ptrdiff_t(std::min(names.size(), kShown));
    fail<UsageError>("{}: there is no column {}{}; it has {}{}", file, Quoted{target}, did_you_mean(target, names),
                     fmt::join(names.begin(), end, ", "),
                     names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "");
}

bool is_word(const std::string& cell) {
    return !number_in(cell) && !is_missing(cell);
}

float float_in(const std::string& cell, const std::string& file, std::int64_t line, const std::string& column) {
    const std::optional<double> value = number_in(cell);
    const Quoted shown{std::string_view(cell).substr(0, 60)};
    const bool by_name = value && !std::isfinite(*value) && cell.find_first_of("iInN") != cell.npos;  // "inf"
    check<IoError>(value && !by_name, "{}:{}: {} in column {} is no finite number", file, line, shown, Quoted{column});
    check<IoError>(std::isfinite(float(*value)),
                   "{}:{}: {} in column {} does not fit FP32, which ends at 3.4e38; scale the column", file, line,
                   shown, Quoted{column});
    return float(*value);
}

// With a first row that is a header, or is not.
CsvTable parse_rows(Rows rows, const std::string& file, const CsvOptions& options, bool header) {
    std::vector<std::string> cells;
    bool there = rows.next(cells);
    std::vector<std::string> names = cells;
    for (std::size_t i = 0; i < names.size() && !header; ++i) names[i] = std::to_string(i);
    if (header) there = rows.next(cells);
    const std::size_t width = names.size();
    check<IoError>(width >= 2,
                   "{}: one column alone has nothing to predict the target from; cells are separated by one of , ; tab "
                   "| and not by spaces",
                   file);
    const std::size_t target = find_target(names, options, file);
    check<IoError>(there, "{}: there is a header and no row", file);

    CsvTable table;
    table.header = header;
    std::vector<float> numbers;
    for (; there; there = rows.next(cells)) {
        const std::int64_t line = rows.line();
        check<IoError>(cells.size() == width, "{}:{}: {} cells in this row, and {} in the first", file, line,
                       cells.size(), width);
        for (std::size_t i = 0; i < width; ++i) {
            const std::string& cell = cells[i];
            check<IoError>(!is_missing(cell),
                           "{}:{}: the value of column {} is missing ({}); fill it in, or leave the "
                           "row out",
                           file, line, Quoted{names[i]}, Quoted{cell});
            if (i == target)
                table.target.push_back(cell);
            else
                numbers.push_back(float_in(cell, file, line, names[i]));
        }
        table.lines.push_back(line);
    }
    table.target_name = names[target];
    names.erase(names.begin() + std::ptrdiff_t(target));
    table.columns = std::move(names);
    const PurposeScope purpose(Purpose::data);
    table.numbers = Tensor::from(numbers, {std::int64_t(table.lines.size()), std::int64_t(width - 1)});
    return table;
}

// Whether the target is one of these names, and not a number.
bool asked_by_name(const CsvOptions& options, const std::vector<std::string>& names) {
    const bool known =
        !options.target_name.empty() && std::find(names.begin(), names.end(), options.target_name) != names.end();
    return known || !whole_number_in(options.target);
}

// Whether what was taken for a header is one: a word over numbers, or asked for by name. All columns but the target's
// are numbers, or the table would have been refused.
bool was_header(const CsvTable& table, const CsvOptions& options) {
    return asked_by_name(options, {table.target_name}) ||
           std::any_of(table.columns.begin(), table.columns.end(), is_word) ||
           (is_word(table.target_name) && std::none_of(table.target.begin(), table.target.end(), is_word));
}

// Without it the first row is no header: none of its words has a number below it.
bool has_number_below_word(const std::vector<std::string>& first, const std::vector<std::string>& second) {
    for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i)
        if (is_word(first[i]) && !is_word(second[i])) return true;
    return false;
}

}  // namespace

bool is_missing(std::string_view cell) {
    constexpr std::string_view kMissing[] = {"", "na", "n/a", "nan", "null", "none", "?", "-nan"};
    std::string lower(cell.substr(0, 8));
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
    return std::find(std::begin(kMissing), std::end(kMissing), lower) != std::end(kMissing);
}

std::optional<double> number_in(std::string_view cell) {
    return parse_all<double>(cell);
}

std::optional<std::int64_t> whole_number_in(std::string_view cell) {
    return parse_all<std::int64_t>(cell);
}

CsvTable parse_csv(std::string_view text, const std::string& file, const CsvOptions& options) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
    const Rows rows(text, file, options.separator != 0 ? options.separator : guess_separator(text));
    Rows ahead = rows;
    std::vector<std::string> first, second;
    check<IoError>(ahead.next(first), "{}: there is nothing in it", file);
    const bool words = std::any_of(first.begin(), first.end(), is_word);
    if (options.header || !words) return parse_rows(rows, file, options, options.header.value_or(false));
    // Whoever asks for a column by name has a header. Otherwise the second row may tell that there is none, and all of
    // them tell that there is one.
    if (!asked_by_name(options, first)) {
        const bool may_be = ahead.next(second) ? has_number_below_word(first, second)
                                               : std::all_of(first.begin(), first.end(), is_word);
        if (!may_be) return parse_rows(rows, file, options, false);
    }
    CsvTable table = parse_rows(rows, file, options, true);
    return was_header(table, options) ? table : parse_rows(rows, file, options, false);
}

}  // namespace invar
