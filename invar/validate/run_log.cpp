#include "invar/validate/run_log.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/safetensors_header.h"  // Quoted
#include "invar/validate/csv_records.h"
#include "invar/validate/missing_values.h"

namespace invar {

namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 6;  // of nested keys; what lies deeper is not a metric

// What loggers call the step, best first; an epoch will do where there is none.
constexpr std::string_view kStepNames[] = {
    "step", "global_step", "trainer/global_step", "_step", "iteration", "iterations", "iter", "it", "steps", "batch"};
constexpr std::string_view kEpochNames[] = {"epoch", "_epoch", "epochs"};

bool is_position(std::string_view name) {
    return std::ranges::find(kStepNames, name) != std::end(kStepNames) ||
           std::ranges::find(kEpochNames, name) != std::end(kEpochNames);
}

// Rows, each with its numbers by name in any order, put into the log under the row's step.
class Rows {
  public:
    explicit Rows(RunLog& log) : log_(log) {}
    void begin(std::size_t line) { line_ = line; }
    void number(std::string name, double value) { numbers_.emplace_back(std::move(name), value); }
    void text(const std::string& name, std::string_view what) {
        if (!log_.spoilt.contains(name))
            log_.spoilt.emplace(name, fmt::format("{} line {}: {} is {}, not a number", log_.source, line_,
                                                  Quoted{name}, Quoted{what}));
    }
    void end() {
        const double x = position().value_or(double(++count_));
        for (const auto& [name, value] : numbers_) {
            if (std::isnan(value) && is_position(name)) continue;  // nowhere is no place to be
            Series& series = log_.series[name];
            series.x.push_back(x);
            series.y.push_back(value);
        }
        numbers_.clear();
    }
    // Of a table: where a row is as good as any other, NaN may be what was not there to be logged.
    void finish() {
        std::vector<std::string> table;
        for (const auto& [name, series] : log_.series) {
            if (is_position(name)) continue;
            if (series.y.size() != count_) return;
            table.push_back(name);
        }
        drop_missing(log_, table);
    }

  private:
    std::optional<double> position() const {
        for (const auto& names :
             {std::span<const std::string_view>(kStepNames), std::span<const std::string_view>(kEpochNames)})
            for (const std::string_view wanted : names)
                for (const auto& [name, value] : numbers_)
                    if (name == wanted && std::isfinite(value)) return value;
        return std::nullopt;
    }
    RunLog& log_;
    std::size_t line_ = 0, count_ = 0;
    std::vector<std::pair<std::string, double>> numbers_;
};

void add_value(Rows& row, const std::string& name, const Json& value, int depth) {
    if (value.is_number()) {
        row.number(name, value.get<double>());
    } else if (value.is_string()) {
        double number = 0.0;
        const auto& text = value.get_ref<const std::string&>();
        parse_number(text, number) ? row.number(name, number) : row.text(name, text);
    } else if (value.is_object() && depth < kMaxDepth) {
        for (const auto& [key, inner] : value.items())
            add_value(row, name.empty() ? printable(key) : name + "." + printable(key), inner, depth + 1);
    }
}

// Python writes NaN and Infinity as bare words, which JSON does not have: here in quotes.
std::string with_quoted_words(std::string_view line) {
    std::string out;
    bool inside = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        if (line[i] == '"') inside = !inside;
        if (inside && line[i] == '\\' && i + 1 < line.size()) out += line[i++];
        bool word = false;
        if (!inside)
            for (const std::string_view name : {"NaN", "-Infinity", "Infinity", "nan", "-inf", "inf"})
                if (line.substr(i).starts_with(name)) {
                    out.append("\"").append(name).append("\"");
                    i += name.size() - 1;
                    word = true;
                    break;
                }
        if (!word) out += line[i];
    }
    return out;
}

Json parse_json(std::string_view text) {
    if (text.find('\0') != text.npos) return Json(Json::value_t::discarded);
    Json value = Json::parse(text, nullptr, false);
    // Values are moved, never copied: a copy of one that is nested without end would overflow the stack.
    if (value.is_discarded()) value = Json::parse(with_quoted_words(text), nullptr, false);
    return value;
}

// The rows of a text that is one JSON value, where it is one and holds some.
std::optional<Json> whole_array(std::string_view text) {
    Json value = parse_json(text);
    if (value.is_object() && value.contains("log_history")) {
        Json history = std::move(value["log_history"]);
        value = std::move(history);
    }
    if (!value.is_array()) return std::nullopt;
    return value;
}

void check_not_empty(const RunLog& log) {
    check<IoError>(!log.series.empty(), "{}: holds no numbers; a log of metrics was expected, as CSV or JSON lines",
                   log.source);
}

}  // namespace

bool parse_number(std::string_view text, double& value) {
    text = trimmed(text);
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || end != text.data() + text.size()) return false;
    // Too large or too small for a double, and yet a number.
    if (error == std::errc::result_out_of_range) value = std::strtod(std::string(text).c_str(), nullptr);
    return error == std::errc() || error == std::errc::result_out_of_range;
}

const Series& RunLog::at(const std::string& name) const {
    if (const auto bad = spoilt.find(name); bad != spoilt.end()) throw IoError(bad->second);
    const auto found = series.find(name);
    check<IoError>(found != series.end(), "{}: there is no {} in it", source, Quoted{name});
    return found->second;
}

std::vector<std::string> RunLog::names() const {
    std::vector<std::string> names;
    for (const auto& entry : series) names.push_back(entry.first);
    return names;
}

RunLog parse_csv_log(std::string_view text, const std::string& source) {
    RunLog log;
    log.source = source;
    text = without_mark(text);
    std::size_t at = 0, line = 1;
    const CsvRecord header = next_record(text, at, line);
    check<IoError>(!is_blank(header), "{} line 1: empty; a CSV file of metrics begins with the names of its columns",
                   source);
    std::vector<std::string> names;
    for (const std::string& cell : header.cells) {
        std::string name = printable(trimmed(cell));
        check<IoError>(name.empty() || std::ranges::find(names, name) == names.end(),
                       "{} line 1: two columns are called {}, and nobody can tell which counts; rename one", source,
                       Quoted{name});
        names.push_back(std::move(name));
    }
    Rows rows(log);
    while (at < text.size()) {
        const std::size_t first_line = line;
        const CsvRecord record = next_record(text, at, line);
        if (is_blank(record)) continue;
        if (!record.ended) {
            log.note = fmt::format("{} ends in the middle of line {}, which is left out", source, first_line);
            break;
        }
        check<IoError>(record.cells.size() == names.size(),
                       "{} line {}: {} cells, but the header names {} columns; the file is damaged", source, first_line,
                       record.cells.size(), names.size());
        rows.begin(first_line);
        for (std::size_t i = 0; i < names.size(); ++i) {
            const std::string_view cell = trimmed(record.cells[i]);
            if (double value = 0.0; cell.empty() || names[i].empty())
                continue;
            else if (parse_number(cell, value))
                rows.number(names[i], value);
            else
                rows.text(names[i], cell);
        }
        rows.end();
    }
    rows.finish();
    check_not_empty(log);
    return log;
}

RunLog parse_json_log(std::string_view text, const std::string& source) {
    RunLog log;
    log.source = source;
    text = without_mark(text);
    Rows rows(log);
    const auto add = [&](const Json& object, std::size_t line) {
        rows.begin(line);
        add_value(rows, "", object, 0);
        rows.end();
    };
    std::size_t begin = 0, number = 1;
    for (std::size_t line = 1; begin < text.size(); ++line) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view content = trimmed(text.substr(begin, end - begin));
        const bool torn = end == text.size();
        begin = end + 1;
        if (content.empty()) continue;
        const Json value = parse_json(content);
        if (value.is_object() && !(number == 1 && value.contains("log_history"))) {
            add(value, line);
            ++number;
            continue;
        }
        if (number == 1)
            if (const std::optional<Json> array = whole_array(text)) {
                for (const Json& row : *array) {
                    check<IoError>(row.is_object(), "{}: entry {} of its array is not a JSON object", source, number);
                    add(row, number);
                    ++number;
                }
                break;
            }
        if (torn && number > 1) {  // a run that was killed while writing it
            log.note = fmt::format("{} ends in the middle of line {}, which is left out", source, line);
            break;
        }
        fail<IoError>("{} line {}: not a JSON object; give a file with one object a line, or a CSV file", source, line);
    }
    rows.finish();
    check_not_empty(log);
    return log;
}

RunLog parse_log(std::string_view text, const std::string& source) {
    const std::string_view content = trimmed(without_mark(text));
    check<IoError>(!content.empty(), "{}: empty; a log of metrics was expected, as CSV or JSON lines", source);
    return content[0] == '{' || content[0] == '[' ? parse_json_log(text, source) : parse_csv_log(text, source);
}

}  // namespace invar
