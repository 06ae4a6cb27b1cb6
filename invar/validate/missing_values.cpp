#include "invar/validate/missing_values.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace invar {

namespace {

constexpr std::size_t kMostKinds = 64;  // of rows; a log has a few
// Of the rows up to its last value, a column that is logged now and then is empty in at least one of so many.
constexpr std::size_t kFillsOneIn = 3;

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

// Marks the NaN that come between values as those of a column that is logged now and then, and as many after the last.
void mark_gaps(const std::vector<double>& values, std::vector<bool>& missing) {
    std::size_t finite = 0, gaps = 0, gap = 0, longest = 0;
    std::vector<std::size_t> pending, between;
    for (std::size_t row = 0; row < values.size(); ++row) {
        if (missing[row]) continue;
        if (std::isnan(values[row])) {
            pending.push_back(row);
            ++gap;
            continue;
        }
        ++finite, gaps += gap;
        longest = std::max(longest, gap), gap = 0;
        between.insert(between.end(), pending.begin(), pending.end());
        pending.clear();
    }
    if (finite == 0 || kFillsOneIn * gaps < finite + gaps) return;
    for (const std::size_t row : between) missing[row] = true;
    if (pending.size() <= longest)
        for (const std::size_t row : pending) missing[row] = true;
}

}  // namespace

void drop_missing(const std::vector<Series*>& columns) {
    const auto has_nan = [](const Series* series) {
        return std::ranges::any_of(series->y, [](double value) { return std::isnan(value); });
    };
    if (std::ranges::none_of(columns, has_nan)) return;
    const std::size_t rows = columns.front()->y.size();
    std::map<Kind, std::size_t> kinds;
    std::vector<const Kind*> kind_of(rows);
    for (std::size_t row = 0; row < rows && kinds.size() <= kMostKinds; ++row) {
        Kind kind(columns.size());
        for (std::size_t i = 0; i < columns.size(); ++i) kind[i] = !std::isnan(columns[i]->y[row]);
        const auto found = kinds.emplace(std::move(kind), 0).first;
        ++found->second;
        kind_of[row] = &found->first;
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
        Series& series = *columns[i];
        if (!has_nan(&series)) continue;
        std::vector<bool> missing(rows);
        if (kinds.size() <= kMostKinds) {
            std::map<const Kind*, bool> another;
            for (const auto& [kind, count] : kinds) another[&kind] = !kind[i] && is_of_another_kind(kinds, kind, i);
            for (std::size_t row = 0; row < rows; ++row) missing[row] = another[kind_of[row]];
        }
        mark_gaps(series.y, missing);
        Series kept;
        for (std::size_t row = 0; row < rows; ++row) {
            if (missing[row]) continue;
            kept.x.push_back(series.x[row]);
            kept.y.push_back(series.y[row]);
        }
        series = std::move(kept);
    }
}

}  // namespace invar
