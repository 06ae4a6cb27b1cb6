#include "invar/report/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "invar/report/plot.h"
#include "invar/report/style.h"
#include "invar/report/text.h"

namespace invar {

namespace {

// Many columns, which should be seen without scrolling.
constexpr const char* kWideTables =
    "main { max-width: 1560px; } .wide table { font-size: 11px; } .wide th, .wide td { padding: 4px 3px; } "
    ".wide thead th { white-space: normal; } .wide { margin-top: 24px; }\n";

// A line for each strategy of one precision, over the ranks as powers of two, as far as there is a value: one for each
// stretch that has them. Nothing where there is none.
std::string figure(const Plan& plan, const std::string& precision, const std::string& title, Plot::Scale scale,
                   const std::function<std::optional<double>(const PlanRow&)>& value) {
    Plot plot;
    plot.title = fmt::format("{}, {}", title, precision);
    plot.x_label = "ranks";
    plot.x_doubles = true;
    plot.scale = scale;
    int strategies = 0;
    for (const PlanRow& first : plan.rows) {
        if (first.precision != precision) continue;
        const int colour = strategies++;
        bool on = false;
        for (const PlanRow& row : plan.scaling) {
            if (row.precision != precision || row.ranks.strategy != first.ranks.strategy) continue;
            const std::optional<double> known = value(row);
            if (known && !std::exchange(on, true))
                plot.lines.push_back({std::string(name_of(first.ranks.strategy)), colour, {}});
            on = known.has_value();
            if (!on) continue;
            plot.lines.back().series.x.push_back(std::log2(double(row.ranks.count)));
            plot.lines.back().series.y.push_back(*known);
        }
    }
    if (plot.lines.empty()) return "";
    return fmt::format("<figure><figcaption>{}</figcaption>{}</figure>\n", html_escaped(plot.title), svg_plot(plot));
}

std::string row_of(const std::vector<std::string>& cells, const char* tag) {
    std::string html = "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
        html += i == 0 ? fmt::format("<th>{}</th>", html_escaped(cells[i]))
                       : fmt::format("<{0}>{1}</{0}>", tag, html_escaped(cells[i]));
    return html + "</tr>\n";
}

std::string table_of(const Plan& plan, const std::vector<PlanRow>& rows) {
    const bool searched = std::any_of(rows.begin(), rows.end(), [](const PlanRow& r) { return r.largest_batch > 0; });
    std::vector<std::string> header = {"precision", "strategy", "ranks", "fits"};
    if (searched) header.emplace_back("largest batch");
    for (int i = 0; i < kPurposes; ++i) header.emplace_back(name_of(Purpose(i)));
    for (const char* more : {"total", "evaluation", "card", "on the wire", "ms/step", "not hidden, ms"})
        header.emplace_back(more);
    header.push_back(plan.unit.name + "/s");
    header.emplace_back("efficiency");
    std::string html = "<div class=\"wide\"><table><thead>" + row_of(header, "th") + "</thead><tbody>\n";
    for (const PlanRow& r : rows) {
        std::vector<std::string> cells = {r.precision, std::string(name_of(r.ranks.strategy)),
                                          std::to_string(r.ranks.count), how_it_fits(r)};
        if (searched) cells.push_back(r.largest_batch > 0 ? std::to_string(r.largest_batch) : "-");
        for (const std::int64_t bytes : r.memory.peak) cells.push_back(human_bytes(double(bytes)));
        for (const std::int64_t bytes : {r.memory.total, r.memory.evaluation, r.memory.held})
            cells.push_back(human_bytes(double(bytes)));
        cells.push_back(human_bytes(r.wire.total()));
        if (r.fits)
            cells.insert(cells.end(),
                         {fmt::format("{:.3f}", 1e3 * r.time.total()), fmt::format("{:.3f}", 1e3 * r.time.exposed),
                          human_rate(r.per_second), fmt::format("{:.1f}%", 100 * r.scaling)});
        else
            cells.insert(cells.end(), 4, "-");
        html += row_of(cells, "td");
    }
    return html + "</tbody></table></div>\n";
}

// The strategies by their lines.
std::string legend_of(const Plan& plan) {
    std::string html = "<div class=\"legend\">";
    int colour = 0;
    for (const PlanRow& row : plan.rows) {
        if (row.precision != plan.rows.front().precision) break;
        html +=
            fmt::format("<span><span class=\"swatch fill{}\"></span>{}</span>", colour++, name_of(row.ranks.strategy));
    }
    return html + "</div>\n";
}

}  // namespace

std::string plan_page(const Plan& plan, std::string_view model) {
    const Card& card = plan.card;
    const std::string title = fmt::format("{} on {}", model, card.is_cpu() ? "this CPU" : card.title);
    std::string html = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\"><title>{0}</title><style>{1}</style></head><body><main>\n"
        "<h1>{0}</h1>\n",
        html_escaped(title), std::string(kReportStyle) + kWideTables);
    html += fmt::format(
        "<dl><div><dt>parameters</dt><dd>{}</dd></div><div><dt>samples a step and rank</dt><dd>{}</dd></div>"
        "<div><dt>memory of a card</dt><dd>{}, and {} for driver and libraries</dd></div>"
        "<div><dt>links</dt><dd>{} of a node at {:.3g} GB/s, {:.3g} GB/s between nodes</dd></div></dl>\n",
        human_count(plan.parameters), plan.samples_per_step, human_bytes(double(card.usable())),
        human_bytes(double(card.reserved)), card.node, 1e-9 * card.link, 1e-9 * card.network);
    html += fmt::format("<h2>On {} ranks</h2>\n", plan.ranks) + table_of(plan, plan.rows);
    if (!plan.any_fits()) html += "<p>Nothing fits: what would be held and sent is told, and no time.</p>\n";
    html += "<h2>From 1 to 1024 ranks</h2>\n" + legend_of(plan) + "<div class=\"plots\">\n";
    const auto where_it_fits = [](const PlanRow& row, double value) {
        return row.fits ? std::optional(value) : std::nullopt;
    };
    std::string last;
    for (const PlanRow& row : plan.rows) {
        if (row.precision == last) continue;
        last = row.precision;
        html += figure(plan, last, plan.unit.name + "/s of all ranks", Plot::Scale::log10,
                       [&](const PlanRow& r) { return where_it_fits(r, r.per_second); });
        html += figure(plan, last, "efficiency: share of as many times one rank, %", Plot::Scale::linear,
                       [&](const PlanRow& r) { return where_it_fits(r, 100 * r.scaling); });
        html += figure(plan, last, "memory of a rank at the peak of a step, GiB", Plot::Scale::linear,
                       [](const PlanRow& r) { return double(r.memory.total) / double(std::int64_t(1) << 30); });
        html += figure(plan, last, "sent by a rank in a step, MiB", Plot::Scale::linear,
                       [](const PlanRow& r) { return r.wire.total() / double(1 << 20); });
    }
    html += "</div>\n" + table_of(plan, plan.scaling);
    return html + "</main></body></html>\n";
}

}  // namespace invar
