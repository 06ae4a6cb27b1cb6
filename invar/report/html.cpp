#include "invar/report/html.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/report/content.h"
#include "invar/report/json.h"
#include "invar/report/markdown.h"
#include "invar/report/monitoring.h"
#include "invar/report/pictures.h"
#include "invar/report/plot.h"
#include "invar/report/style.h"
#include "invar/report/text.h"
#include "invar/train/logged_names.h"

namespace invar {

namespace {

constexpr int kColours = 6;  // that style.h knows; more candidates use them again

std::string e(std::string_view text) {
    return html_escaped(text);
}

// Escaped, and what stands between backticks set as code.
std::string prose(std::string_view text) {
    std::string out;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t open = text.find('`', begin), close = open == text.npos ? open : text.find('`', open + 1);
        out += e(text.substr(begin, close == text.npos ? text.npos : open - begin));
        if (close == text.npos) break;
        out += fmt::format("<code>{}</code>", e(text.substr(open + 1, close - open - 1)));
        begin = close + 1;
    }
    return out;
}

int colour_of(std::size_t candidate) {
    return 1 + int(candidate % (kColours - 1));
}

std::string badge(Verdict verdict) {
    constexpr const char* kClasses[] = {"pass", "marginal", "fail", "invalid"};
    return fmt::format("<span class=\"badge {}\">{}</span>", kClasses[static_cast<int>(verdict)], name_of(verdict));
}

const char* tone(int good) {
    return good > 0 ? " class=\"good\"" : good < 0 ? " class=\"poor\"" : "";
}

std::string section(const std::string& title, const std::string& body) {
    return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", e(title), body);
}

std::string rows_table(const std::string& first, const std::string& from, const std::string& to,
                       const std::vector<ResultRow>& rows) {
    std::string text = fmt::format(
        "<div "
        "class=\"wide\"><table>\n<thead><tr><th>{}</th><th>{}</th><th>{}</th><th>difference</th></tr></"
        "thead>\n<tbody>\n",
        e(first), e(from), e(to));
    for (const ResultRow& row : rows)
        text += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td{}>{}</td></tr>\n", e(row.name), e(row.baseline),
                            e(row.candidate), tone(row.good), e(row.change));
    return text + "</tbody></table></div>\n";
}

std::string overview(const Comparison& c, const ReportContext& context) {
    std::string text = fmt::format(
        "<div "
        "class=\"wide\"><table>\n<thead><tr><th>configuration</th><th>{}</th><th>difference</th><th>time</"
        "th><th>speed</th>"
        "<th>memory</th><th>skipped</th><th>verdict</th></tr></thead>\n<tbody>\n",
        e(c.metric));
    const auto row = [&](const Arm& arm, int colour, const std::string& name, const std::string& difference,
                         const std::string& verdict) {
        text += fmt::format(
            "<tr><th><span class=\"swatch "
            "fill{}\"></span>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></"
            "tr>\n",
            colour, e(name), e(metric_text(c, arm.metric)), difference, e(report_duration(arm.train_seconds)),
            !arm.disturbed.empty()     ? "disturbed"
            : std::isnan(arm.speed_up) ? "n/a"
                                       : fmt::format("{:.2f}x", arm.speed_up),
            std::isnan(arm.memory_of("total")) ? "n/a" : human_bytes(arm.memory_of("total")), skipped_of(arm), verdict);
    };
    row(c.baseline, 0, context.baseline == "FP32" ? "FP32 baseline" : c.baseline.name, "",
        c.baseline.failed() ? badge(Verdict::invalid) : "baseline");
    for (std::size_t i = 0; i < c.candidates.size(); ++i) {
        const Arm& arm = c.candidates[i];
        row(arm, colour_of(i), arm.name, arm.failed() ? "n/a" : e(report_change(c.baseline.metric, arm.metric)),
            badge(arm.verdict));
    }
    return text + "</tbody></table></div>\n";
}

// One line for each run of each arm; the baseline first, so that candidates are drawn over it.
Plot plot_of(const Comparison& c, const std::string& title, Series RunRecord::*curve) {
    Plot plot;
    plot.title = title;
    const auto add = [&](const Arm& arm, int colour) {
        for (const RunRecord& run : arm.runs)
            if (!(run.*curve).empty())
                plot.lines.push_back(
                    {fmt::format("{}{}", arm.name, run.seed ? fmt::format(", seed {}", *run.seed) : ""), colour,
                     run.*curve});
    };
    add(c.baseline, 0);
    for (std::size_t i = 0; i < c.candidates.size(); ++i) add(c.candidates[i], colour_of(i));
    return plot;
}

// Whether the values spread over so many decades that a linear axis would hide most of them.
bool spreads(const Plot& plot) {
    double low = INFINITY, high = 0.0;
    for (const PlotLine& line : plot.lines)
        for (const double value : line.series.y) {
            if (!std::isfinite(value)) continue;
            if (value <= 0) return false;
            low = std::min(low, value), high = std::max(high, value);
        }
    return high > 50 * low;
}

std::string plots(const Comparison& c, const ReportContext& context) {
    std::string legend = fmt::format("<p class=\"legend\"><span><span class=\"swatch fill0\"></span>{}</span>",
                                     e(context.baseline == "FP32" ? "FP32 baseline" : c.baseline.name));
    for (std::size_t i = 0; i < c.candidates.size(); ++i)
        legend +=
            fmt::format(" <span><span class=\"swatch fill{}\"></span>{}</span>", colour_of(i), e(c.candidates[i].name));
    std::string text = legend + "</p>\n<div class=\"plots\">\n";
    const std::pair<std::string, Series RunRecord::*> all[] = {{logged::kLoss, &RunRecord::loss},
                                                               {c.metric, &RunRecord::metric_curve},
                                                               {logged::kGradNorm, &RunRecord::grad_norm},
                                                               {logged::kScale, &RunRecord::scale}};
    for (const auto& [title, curve] : all) {
        Plot plot = plot_of(c, title, curve);
        if (plot.lines.empty() && curve == &RunRecord::scale) continue;  // there may be nothing to scale
        if (plot.lines.empty()) {
            text += fmt::format("<figure><figcaption>{}</figcaption><p class=\"none\">not in the logs</p></figure>\n",
                                e(title));
            continue;
        }
        plot.scale = curve == &RunRecord::scale ? Plot::Scale::log2
                     : spreads(plot)            ? Plot::Scale::log10
                                                : Plot::Scale::linear;
        text += fmt::format("<figure><figcaption>{}</figcaption>{}</figure>\n", e(title), svg_plot(plot));
    }
    return text + "</div>\n";
}

std::string intervals(const Comparison& c) {
    std::vector<IntervalRow> rows;
    for (std::size_t i = 0; i < c.candidates.size(); ++i) {
        const Arm& arm = c.candidates[i];
        if (arm.failed() || !std::isfinite(arm.equivalence.difference)) continue;
        rows.push_back(
            {arm.name, colour_of(i), arm.equivalence.difference, arm.equivalence.ninety, arm.equivalence.ninety_five});
    }
    if (rows.empty()) return "";
    const bool tested = c.candidates.front().equivalence.tested;
    return fmt::format(
        "<figure class=\"intervals\"><figcaption>{}</figcaption>{}</figure>\n",
        tested ? "Difference with its 90% (thick) and 95% (thin) interval; the dashed lines are the limit of harm"
               : "Difference of one run; the dashed lines are the limit of harm",
        svg_intervals(rows, c.limits.relative_to(c.baseline.metric)));
}

std::string checklist_html(const Comparison& c, const Arm& arm, const ReportContext& context) {
    std::string text = "<ul class=\"checklist\">\n";
    for (const CheckItem& item : checklist(c, arm, context)) {
        constexpr const char* kStates[] = {"done", "open", "unknown", "todo"};
        constexpr const char* kLabels[] = {"done", "open", "unknown", "to do"};
        constexpr const char* kMarks[] = {"✓", "✗", "?", ""};
        const int state = static_cast<int>(item.state);
        text += fmt::format(
            "<li class=\"{}\"><span class=\"box\" aria-label=\"{}\">{}</span><span>{} <small>{}</small></span></li>\n",
            kStates[state], kLabels[state], kMarks[state], e(item.what), prose(item.measured));
    }
    return text + "</ul>\n";
}

std::string monitoring_html(const Comparison& c, const Arm& arm, const ReportContext& context) {
    const std::vector<MonitorRow> rows = monitoring_rows(c, arm, context);
    if (rows.empty()) return "";
    std::string text = fmt::format(
        "<h3>Monitoring</h3>\n<div class=\"wide\"><table "
        "class=\"wraps\">\n<thead><tr><th></th><th>{}</th><th>{}</th><th>wanted</th>"
        "<th>met</th></tr></thead>\n<tbody>\n",
        e(context.baseline), e(arm.name));
    for (const MonitorRow& row : rows)
        text += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td{}>{}</td></tr>\n", e(row.what),
                            e(row.baseline), e(row.candidate), e(row.wanted),
                            tone(!row.met   ? 0
                                 : *row.met ? 1
                                            : -1),
                            !row.met   ? "not measured"
                            : *row.met ? "yes"
                                       : "no");
    return text + "</tbody></table></div>\n";
}

std::string approval_html(const Comparison& c) {
    std::string text = fmt::format("<p>{}</p>\n<ul class=\"checklist\">\n", e(approval_note(c)));
    for (const std::string& item : approval_items(c))
        text += fmt::format("<li><span class=\"box\" aria-label=\"to do\"></span><span>{}</span></li>\n", e(item));
    return text + "</ul>\n<p>Signed off by: ______________________</p>\n<p>Date: ______________________</p>\n";
}

std::string candidate(const Comparison& c, const Arm& arm, const ReportContext& context) {
    std::string text =
        fmt::format("<section>\n<h2>{} {}</h2>\n<p>{}.</p>\n", e(arm.name), badge(arm.verdict), prose(arm.reason));
    text += "<div class=\"columns\"><div>\n<h3>Figures</h3>\n";
    if (!arm.runs.empty() && !c.baseline.runs.empty())
        text += rows_table("", context.baseline, arm.name, result_rows(c, arm));
    else
        text += fmt::format("<p class=\"none\">{}</p>\n",
                            arm.runs.empty() && arm.verdict == Verdict::invalid ? "not trained" : "no run finished");
    text += "</div><div>\n<h3>Checklist</h3>\n" + checklist_html(c, arm, context) + "</div></div>\n";
    if (const auto rows = statistics_rows(c, arm); !rows.empty()) {
        text += "<div class=\"columns\"><div>\n<h3>Statistics</h3>\n<div class=\"wide\"><table><tbody>\n";
        for (const auto& [name, value] : rows)
            text += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", e(name), e(value));
        text += "</tbody></table></div>\n</div><div>\n<h3>Seed by seed</h3>\n" +
                rows_table("seed", context.baseline, arm.name, seed_rows(c, arm)) + "</div></div>\n";
    }
    text += monitoring_html(c, arm, context);
    if (const auto all = recoveries_of(arm); !all.empty()) {
        text += "<h3>Recoveries</h3>\n<ul>\n";
        for (const std::string& recovery : all) text += fmt::format("<li>{}</li>\n", e(recovery));
        text += "</ul>\n";
    }
    return text + "</section>\n";
}

// What the arms made of the same samples, side by side.
std::string pictures(const Comparison& c) {
    std::string text;
    for (const PictureRow& row : picture_rows(c)) {
        text += "<div class=\"plots\">\n";
        for (const PictureRow::Shown& shown : row.shown)
            text += fmt::format(
                "<figure><figcaption>{0}</figcaption><img alt=\"what {0} predicts\" src=\"{1}\" "
                "/></figure>\n",
                e(shown.arm), shown.uri);
        text += "</div>\n";
    }
    return text;
}

std::string command_block(const std::string& command) {
    return fmt::format("<pre><code>{}</code></pre>\n", e(command));
}

}  // namespace

std::string html_report(const Comparison& c, const ReportContext& context) {
    std::string body = fmt::format("<header>\n<h1>{}</h1>\n<p class=\"verdict\">{} {}.</p>\n<dl>\n", e(context.title),
                                   badge(c.verdict), prose(c.reason));
    for (const auto& [name, value] : context.facts)
        body += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", e(name), e(value));
    body += "</dl>\n</header>\n";
    const std::string noise = noise_text(c);
    body += section("Results", overview(c, context) +
                                   (noise.empty() ? "" : fmt::format("<p>Noise of the baseline: {}.</p>\n", e(noise))) +
                                   intervals(c));
    body += section("Curves", plots(c, context));
    if (const std::string shown = pictures(c); !shown.empty()) body += section("Pictures", shown);
    for (const Arm& arm : c.candidates) body += candidate(c, arm, context);
    if (!context.further.empty())
        body += section("What would decide it", "<p>The runs that are there stay, and seeds are added to them:</p>\n" +
                                                    command_block(context.further));
    std::string limits;
    for (const std::string& paragraph : limits_of(c)) limits += fmt::format("<p>{}</p>\n", prose(paragraph));
    body += section("What this cannot show", limits);
    body += section("Approval", approval_html(c));
    body +=
        section("Rollback plan", "<p>If a low-precision run causes trouble, go back to the baseline at once:</p>\n" +
                                     (context.rollback.empty() ? "" : command_block(context.rollback)) +
                                     fmt::format("<p>{}</p>\n", prose(context.rollback_note)));
    std::string again = command_block(context.reproduce);
    if (!context.settings.empty())
        again += "<details><summary>Configuration of the runs, but for precision and folder</summary>\n" +
                 command_block(context.settings) + "</details>\n";
    body += section("Reproduce", again);
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<title>{}: {}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</html>\n",
        name_of(c.verdict), e(context.title), kReportStyle, body);
}

ReportFiles write_reports(const std::filesystem::path& folder, const Comparison& comparison,
                          const ReportContext& context) {
    make_folders(folder);
    const ReportFiles files{folder / "report.md", folder / "report.json", folder / "report.html"};
    write_file_atomically(files.markdown, markdown_report(comparison, context));
    write_file_atomically(files.json, json_report(comparison, context));
    write_file_atomically(files.html, html_report(comparison, context));
    return files;
}

}  // namespace invar
