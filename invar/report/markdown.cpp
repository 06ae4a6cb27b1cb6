#include "invar/report/markdown.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/report/content.h"
#include "invar/report/monitoring.h"
#include "invar/report/text.h"

namespace invar {

namespace {

std::string overview(const Comparison& c, const ReportContext& context) {
    MarkdownTable table(
        {"Configuration", c.metric, "Training Time", "Memory", "Peak Activations", "Skipped Steps", "Status"});
    const auto bytes = [](double value) { return std::isnan(value) ? "n/a" : human_bytes(value); };
    const auto add = [&](const Arm& arm, const std::string& name, const std::string& status) {
        table.row({name, metric_text(c, arm.metric), report_duration(arm.train_seconds), bytes(arm.memory_of("total")),
                   bytes(arm.memory_of("activations")), skipped_of(arm), status});
    };
    add(c.baseline, context.baseline == "FP32" ? "FP32 baseline" : c.baseline.name,
        c.baseline.failed() ? "INVALID" : "baseline");
    for (const Arm& arm : c.candidates) add(arm, arm.name, std::string(name_of(arm.verdict)));
    return table.str();
}

std::string rows_table(const std::string& first, const ReportContext& context, const Arm& arm,
                       const std::vector<ResultRow>& rows) {
    MarkdownTable table({first, context.baseline, arm.name, "Difference"});
    for (const ResultRow& row : rows) table.row({row.name, row.baseline, row.candidate, row.change});
    return table.str();
}

std::string candidate_section(const Comparison& c, const Arm& arm, const ReportContext& context) {
    std::string text = fmt::format("## {}: {}\n\n{}.\n\n", arm.name, name_of(arm.verdict), arm.reason);
    if (!arm.runs.empty() && !c.baseline.runs.empty()) {
        text += rows_table("Metric", context, arm, result_rows(c, arm)) + "\n";
        if (const auto rows = statistics_rows(c, arm); !rows.empty()) {
            MarkdownTable table({"Statistics", ""});
            for (const auto& [name, value] : rows) table.row({name, value});
            text += table.str() + "\n";
        }
        if (const auto rows = seed_rows(c, arm); !rows.empty())
            text += "Seed by seed:\n\n" + rows_table("Seed", context, arm, rows) + "\n";
    }
    if (const auto rows = monitoring_rows(c, arm, context); !rows.empty()) {
        MarkdownTable table({"Monitored", context.baseline, arm.name, "Wanted", "Met"});
        for (const MonitorRow& row : rows)
            table.row({row.what, row.baseline, row.candidate, row.wanted,
                       !row.met   ? "not measured"
                       : *row.met ? "yes"
                                  : "no"});
        text += "### Monitoring\n\n" + table.str() + "\n";
    }
    if (const auto all = recoveries_of(arm); !all.empty()) {
        text += "### Recoveries\n\n";
        for (const std::string& recovery : all) text += fmt::format("- {}\n", recovery);
        text += "\n";
    }
    text += "### Checklist\n\n";
    for (const CheckItem& item : checklist(c, arm, context))
        text +=
            fmt::format("- [{}] {} ({})\n", item.state == CheckItem::State::done ? 'x' : ' ', item.what, item.measured);
    return text + "\n";
}

std::string fenced(const std::string& text, const char* language) {
    return fmt::format("```{}\n{}{}```\n\n", language, text, text.ends_with('\n') ? "" : "\n");
}

}  // namespace

std::string markdown_report(const Comparison& c, const ReportContext& context) {
    std::string text = fmt::format("# {}\n\n", context.title);
    text += fmt::format("**Verdict: {}**: {}.\n\n", name_of(c.verdict), c.reason);
    for (const auto& [name, value] : context.facts) text += fmt::format("- {}: {}\n", name, value);
    text += "\n## Results\n\n" + overview(c, context) + "\n";
    if (const std::string noise = noise_text(c); !noise.empty())
        text += fmt::format("Noise of the baseline: {}.\n\n", noise);
    for (const Arm& arm : c.candidates) text += candidate_section(c, arm, context);
    if (!context.further.empty())
        text += "## What would decide it\n\nThe runs that are there stay, and seeds are added to them:\n\n" +
                fenced(context.further, "bash");
    text += "## What this cannot show\n\n";
    for (const std::string& paragraph : limits_of(c)) text += paragraph + "\n\n";
    text += "## Approval\n\n" + approval_note(c) + "\n\n";
    for (const std::string& item : approval_items(c)) text += fmt::format("- [ ] {}\n", item);
    text += "\nSigned off by: ______________________\n\nDate: ______________________\n\n";
    text += "## Rollback plan\n\nIf a low-precision run causes trouble, go back to the baseline at once:\n\n";
    if (!context.rollback.empty()) text += fenced(context.rollback, "bash");
    text += context.rollback_note + "\n\n";
    text += "## Reproduce\n\n" + fenced(context.reproduce, "bash");
    if (!context.settings.empty())
        text += "Configuration of the runs, but for precision and folder:\n\n" + fenced(context.settings, "yaml");
    text.pop_back();
    return printable_lines(text);
}

}  // namespace invar
