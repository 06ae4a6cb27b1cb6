#include "invar/data/csv.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
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
    const bool all = error == std::errc() && stop == cell.data() + cell.size() && !cell.empty();
    return all ? std::optional(value) : std::nullopt;
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

std::size_t find_target(const std::vector<std::string>& names, const std::string& target, const std::string& file) {
    const auto found = std::find(names.begin(), names.end(), target);
    if (found != names.end()) return std::size_t(found - names.begin());
    const std::optional<std::int64_t> number = parse_all<std::int64_t>(target);
    const std::int64_t count = std::int64_t(names.size());
    if (number && *number >= -count && *number < count) return std::size_t(*number < 0 ? *number + count : *number);
    constexpr std::size_t kShown = 8;
    const auto end = names.begin() + std::ptrdiff_t(std::min(names.size(), kShown));
    fail<UsageError>("{}: there is no column {}{}; it has {}{}", file, Quoted{target}, did_you_mean(target, names),
                     fmt::join(names.begin(), end, ", "),
                     names.size() > kShown ? fmt::format(" and {} more", names.size() - kShown) : "");
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
    Rows rows(text, file, options.separator != 0 ? options.separator : guess_separator(text));
    std::vector<std::string> cells;
    bool there = rows.next(cells);
    check<IoError>(there, "{}: there is nothing in it", file);
    const bool names_first = options.header.value_or(std::any_of(
        cells.begin(), cells.end(), [](const std::string& cell) { return !number_in(cell) && !is_missing(cell); }));
    std::vector<std::string> names = cells;
    if (!names_first)
        for (std::size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
    if (names_first) there = rows.next(cells);
    const std::size_t target = find_target(names, options.target, file), width = names.size();
    check<IoError>(there, "{}: there is a header and no row", file);
    check<IoError>(width >= 2, "{}: one column alone has nothing to predict the target from", file);

    CsvTable table;
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
            if (i == target) {
                table.target.push_back(cell);
                continue;
            }
            const std::optional<double> value = number_in(cell);
            check<IoError>(value && std::isfinite(float(*value)), "{}:{}: {} in column {} is no finite number", file,
                           line, Quoted{std::string_view(cell).substr(0, 60)}, Quoted{names[i]});
            numbers.push_back(float(*value));
        }
        table.lines.push_back(line);
    }
    names.erase(names.begin() + std::ptrdiff_t(target));
    table.columns = std::move(names);
    const PurposeScope purpose(Purpose::data);
    table.numbers = Tensor::from(numbers, {std::int64_t(table.lines.size()), std::int64_t(width - 1)});
    return table;
}

}  // namespace invar
