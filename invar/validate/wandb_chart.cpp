#include "invar/validate/wandb_chart.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/suggest.h"
#include "invar/io/safetensors_header.h"  // Quoted
#include "invar/validate/csv_records.h"

namespace invar {

namespace {

constexpr std::string_view kBetween = " - ";

struct Column {
    std::string run, metric;  // "" and "" where it is the least or the greatest of what another column averages
};

struct Chart {
    std::vector<Column> columns;  // behind the first
    std::size_t at = 0, line = 1;
    bool is_one = false;
};

// A metric has no " - " in its name; a run may.
Chart parse_columns(std::string_view text) {
    Chart chart;
    const CsvRecord header = next_record(text, chart.at, chart.line);
    chart.is_one = header.cells.size() > 1 && trimmed(header.cells[0]).find(kBetween) == std::string_view::npos;
    for (std::size_t i = 1; i < header.cells.size(); ++i) {
        const std::string name = printable(trimmed(header.cells[i]));
        const std::size_t cut = name.rfind(kBetween);
        if (cut == name.npos || cut == 0 || cut + kBetween.size() == name.size()) {
            chart.is_one = false;
            break;
        }
        const bool extreme = name.ends_with("__MIN") || name.ends_with("__MAX");
        chart.columns.push_back(extreme ? Column{} : Column{name.substr(0, cut), name.substr(cut + kBetween.size())});
    }
    return chart;
}

}  // namespace

bool is_wandb_chart(std::string_view text) {
    text = without_mark(text);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    // JSON may be one line from beginning to end, which is not to be cut into cells.
    return first != text.npos && text[first] != '{' && text[first] != '[' && parse_columns(text).is_one;
}

std::vector<std::string> runs_in_chart(std::string_view text) {
    std::vector<std::string> runs;
    for (const Column& column : parse_columns(without_mark(text)).columns)
        if (!column.run.empty() && std::find(runs.begin(), runs.end(), column.run) == runs.end())
            runs.push_back(column.run);
    return runs;
}

RunLog parse_chart_run(std::string_view text, const std::string& run, const std::string& source) {
    const std::vector<std::string> runs = runs_in_chart(text);
    check<UsageError>(std::find(runs.begin(), runs.end(), run) != runs.end(), "{}: no run {} in it{}; there are {}",
                      source, Quoted{run}, did_you_mean(run, runs), fmt::join(runs, ", "));
    text = without_mark(text);
    RunLog log;
    log.source = fmt::format("{}:{}", source, run);
    Chart chart = parse_columns(text);
    std::set<std::string> metrics;
    for (const auto& [name, metric] : chart.columns)
        check<UsageError>(name != run || metrics.insert(metric).second,
                          "{}: two columns are called {}; give the runs names of their own and export the chart again",
                          source, Quoted{run + std::string(kBetween) + metric});
    while (chart.at < text.size()) {
        const std::size_t line = chart.line;
        const CsvRecord record = next_record(text, chart.at, chart.line);
        if (is_blank(record)) continue;
        const bool whole = record.cells.size() == chart.columns.size() + 1;
        if (!record.ended && !whole) {
            log.note = fmt::format("{} ends in the middle of line {}, which is left out", source, line);
            break;
        }
        check<IoError>(whole, "{} line {}: {} cells, but the header names {} columns; the file is damaged", source,
                       line, record.cells.size(), chart.columns.size() + 1);
        double x = 0.0;
        check<IoError>(parse_number(record.cells[0], x),
                       "{} line {}: its position {} is not a number; export the chart "
                       "over Step",
                       source, line, Quoted{record.cells[0]});
        for (std::size_t i = 0; i < chart.columns.size(); ++i) {
            const auto& [name, metric] = chart.columns[i];
            const std::string_view cell = trimmed(record.cells[i + 1]);
            if (name != run || cell.empty()) continue;
            if (double y = 0.0; parse_number(cell, y)) {
                log.series[metric].x.push_back(x);
                log.series[metric].y.push_back(y);
            } else {
                log.spoilt.emplace(metric, fmt::format("{} line {}: {} is {}, not a number", source, line,
                                                       Quoted{metric}, Quoted{cell}));
            }
        }
    }
    check<IoError>(!log.series.empty(), "{}: holds no numbers of the run {}", source, Quoted{run});
    return log;
}

}  // namespace invar
