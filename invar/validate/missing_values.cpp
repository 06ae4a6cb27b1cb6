#include "invar/validate/missing_values.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "invar/validate/metric_names.h"
#include "invar/validate/metric_words.h"

namespace invar {

namespace {

constexpr std::size_t kMostKinds = 64;  // of rows; a log has a few
// Of the rows in which the loss on validation data has a value, its accuracy has one in at least one of so many; a
// metric that is measured in fewer is one of its own.
constexpr std::size_t kTogetherOneIn = 3;

using Columns = std::map<std::string, Series>;  // as they were read

// The columns that have a value in a row.
using Kind = std::vector<bool>;

bool holds_all(const Kind& kind, const Kind& part) {
    for (std::size_t i = 0; i < kind.size(); ++i)
        if (part[i] && !kind[i]) return false;
    return true;
}

// Whether a row of this kind is one in which the column is never logged: it holds what no row with the column holds.
bool is_of_another_kind(const std::map<Kind, std::size_t>& kinds, const Kind& row, std::size_t column) {
    bool logged = false;
    for (const auto& [kind, rows] : kinds) {
        if (!kind[column]) continue;
        logged = true;
        if (holds_all(kind, row)) return false;
    }
    return logged;
}

// How many NaN come before each value: nothing where the first row has one, and the last for those after the last
// value.
struct Gaps {
    std::vector<std::size_t> before_values;
    std::size_t at_end = 0;
};

Gaps gaps_of(const std::vector<double>& values, const std::vector<bool>& missing) {
    Gaps gaps;
    bool first = true;
    for (std::size_t row = 0; row < values.size(); ++row) {
        if (missing[row]) continue;
        if (std::isnan(values[row])) {
            ++gaps.at_end;
            continue;
        }
        // Whoever logs every tenth step may begin with the first.
        if (!first || gaps.at_end > 0) gaps.before_values.push_back(gaps.at_end);
        first = false;
        gaps.at_end = 0;
    }
    return gaps;
}

// Whether values come as those that are logged now and then: never two in a row, and at least twice after equally many
// empty rows, give or take one. A single gap could as well be an overflow.
bool are_regular(const std::vector<std::size_t>& gaps) {
    if (gaps.size() < 2) return false;
    const auto [least, most] = std::ranges::minmax(gaps);
    return least > 0 && most - least <= 1;
}

// Marks the NaN that come between values as regularly as what is logged now and then, and as many after the last.
void mark_gaps(const std::vector<double>& values, std::vector<bool>& missing) {
    const Gaps gaps = gaps_of(values, missing);
    if (!are_regular(gaps.before_values)) return;
    const bool due_at_end = gaps.at_end > std::ranges::max(gaps.before_values);
    bool past_last = true;
    for (std::size_t row = values.size(); row-- > 0;) {
        if (missing[row]) continue;
        past_last = past_last && std::isnan(values[row]);
        missing[row] = std::isnan(values[row]) && !(past_last && due_at_end);
    }
}

// "val" of val_loss and of val/accuracy, "" where a name does not begin with what was measured on.
std::string split_of(const std::string& name) {
    static constexpr std::string_view kTraining = " train training ";
    const std::string first = metric_words(name).front();
    return is_held_out(first) || is_one_of(first, kTraining) ? first : "";
}

// Whether the two are computed together: wherever one has a value, the other has one, and not much more often.
bool go_together(const Series& one, const Series& other) {
    std::size_t both = 0, other_only = 0;
    for (std::size_t row = 0; row < one.y.size(); ++row) {
        const bool has_other = !std::isnan(other.y[row]);
        if (std::isnan(one.y[row]))
            other_only += has_other;
        else if (has_other)
            ++both;
        else
            return false;
    }
    return both > 0 && kTogetherOneIn * both >= both + other_only;
}

// Where accuracy was measured on validation data, so was the loss on it.
void unmark_computed(const Columns& columns, const std::string& name, std::vector<bool>& missing) {
    const std::string split = split_of(name);
    if (split.empty()) return;
    for (const auto& [other_name, other] : columns) {
        if (other_name == name || split_of(other_name) != split || !go_together(columns.at(name), other)) continue;
        for (std::size_t row = 0; row < missing.size(); ++row)
            if (!std::isnan(other.y[row])) missing[row] = false;
    }
}

// How many values it has at each step.
std::map<double, std::size_t> values_by_step(const Series& series) {
    std::map<double, std::size_t> counts;
    for (std::size_t i = 0; i < series.x.size(); ++i) counts[series.x[i]] += std::isfinite(series.y[i]);
    return counts;
}

// The series with NaN at further steps; both are in order.
Series with_nan_at(const Series& series, const std::vector<double>& steps) {
    Series all;
    auto next = steps.begin();
    const auto add = [&](double x, double y) { all.x.push_back(x), all.y.push_back(y); };
    for (std::size_t i = 0; i < series.x.size(); ++i) {
        for (; next != steps.end() && *next < series.x[i]; ++next) add(*next, std::nan(""));
        add(series.x[i], series.y[i]);
    }
    for (; next != steps.end(); ++next) add(*next, std::nan(""));
    return all;
}

}  // namespace

void drop_missing(RunLog& log, const std::vector<std::string>& names) {
    Columns columns;
    for (const std::string& name : names) columns.emplace(name, log.series.at(name));
    const auto has_nan = [](const auto& column) {
        return std::ranges::any_of(column.second.y, [](double value) { return std::isnan(value); });
    };
    if (std::ranges::none_of(columns, has_nan)) return;
    const std::size_t rows = columns.begin()->second.y.size();
    std::map<Kind, std::size_t> kinds;
    std::vector<const Kind*> kind_of(rows);
    for (std::size_t row = 0; row < rows && kinds.size() <= kMostKinds; ++row) {
        Kind kind;
        for (const auto& column : columns) kind.push_back(!std::isnan(column.second.y[row]));
        const auto found = kinds.emplace(std::move(kind), 0).first;
        ++found->second;
        kind_of[row] = &found->first;
    }
    std::size_t i = 0;
    for (const auto& column : columns) {
        const std::size_t number = i++;
        if (!has_nan(column)) continue;
        const auto& [name, series] = column;
        std::vector<bool> missing(rows);
        if (kinds.size() <= kMostKinds) {
            std::map<const Kind*, bool> another;
            for (const auto& [kind, count] : kinds)
                another[&kind] = !kind[number] && is_of_another_kind(kinds, kind, number);
            for (std::size_t row = 0; row < rows; ++row) missing[row] = another[kind_of[row]];
        }
        mark_gaps(series.y, missing);
        unmark_computed(columns, name, missing);
        Series kept;
        for (std::size_t row = 0; row < rows; ++row) {
            if (missing[row]) {
                log.passed_over[name].push_back(series.x[row]);
                continue;
            }
            kept.x.push_back(series.x[row]);
            kept.y.push_back(series.y[row]);
        }
        log.series[name] = std::move(kept);
    }
}

void restore_computed(RunLog& log, const RunLog& baseline) {
    for (const auto& [name, steps] : log.passed_over) {
        const auto theirs = baseline.series.find(name);
        if (theirs == baseline.series.end()) continue;
        Series& series = log.series[name];
        std::map<double, std::size_t> here = values_by_step(series), there = values_by_step(theirs->second);
        std::vector<double> computed;
        // A row of training and one of validation may have the same step: then there is a value here as well.
        for (const double x : steps)
            if (here[x] < there[x]) computed.push_back(x), ++here[x];
        if (!computed.empty()) series = with_nan_at(series, computed);
    }
}

}  // namespace invar
