#include "invar/report/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/diagnose/concerns.h"
#include "invar/formats/inspect.h"
#include "invar/report/heat_map.h"
#include "invar/report/plot.h"
#include "invar/report/style.h"

namespace invar {

namespace {

std::string e(std::string_view text) {
    return html_escaped(text);
}

std::string title_of(const std::string& module) {
    return module.empty() ? "(model)" : module;
}

std::string share(double value) {
    if (value == 0) return "-";
    return value < 0.0001 ? fmt::format("{:.1g}%", 100 * value) : fmt::format("{:.2f}%", 100 * value);
}

std::string number(double value) {
    return value == 0 ? "-" : fmt::format("{:.2e}", value);
}

// Forward the farthest of its results; backward the sine of the angle between its gradients.
double off_of(const Significance& s, Direction direction) {
    return direction == Direction::forward ? s.off : std::sqrt(std::max(0.0, 1.0 - s.cosine * std::fabs(s.cosine)));
}

std::string off_text(const Diagnosis& d, const std::string& module, Direction direction) {
    const auto found = std::ranges::find(d.significance, module, &Significance::module);
    return found == d.significance.end() ? "-" : share(off_of(*found, direction));
}

PassageRow row_of(const Diagnosis& d, const std::string& module, Direction direction, const Passage& passage) {
    PassageRow row{title_of(module),
                   std::string(name_of(direction)),
                   number(passage.all.largest),
                   number(passage.all.smallest),
                   "-",
                   "-",
                   "-",
                   "-",
                   off_text(d, module, direction)};
    const Fate fate = fate_of(passage.low, 0, d.format);
    if (fate.empty) return row;
    row.overflow = share(fate.overflow), row.subnormal = share(fate.subnormal), row.vanish = share(fate.vanish);
    row.head_room = fmt::format("{}", fate.head_room);
    row.overflows = overflows(d, passage, direction), row.vanishes = vanishes(d, passage, direction);
    return row;
}

nlohmann::json passage_json(const Passage& passage, Dtype format) {
    const Fate fate = fate_of(passage.low, 0, format);
    nlohmann::json exponents = nlohmann::json::object();
    for (std::size_t i = 0; i < passage.all.exponents.size(); ++i)
        if (passage.all.exponents[i] > 0) exponents[std::to_string(int(i) - 127)] = passage.all.exponents[i];
    return {{"values", passage.all.values},
            {"largest", passage.all.largest},
            {"smallest", passage.all.smallest},
            {"zeros", passage.all.zeros},
            {"in_format", passage.low.values},
            {"overflow", fate.overflow},
            {"subnormal", fate.subnormal},
            {"vanish", fate.vanish},
            {"head_room", fate.empty ? nlohmann::json() : nlohmann::json(fate.head_room)},
            {"exponents", exponents}};
}

std::string table(const std::vector<PassageRow>& rows) {
    std::string text =
        "<div class=\"wide\"><table>\n<thead><tr><th>module</th><th>direction</th><th>largest</th><th>smallest</th>"
        "<th>overflow</th><th>subnormal</th><th>vanish</th><th>head-room, bits</th><th>off "
        "FP32</th></tr></thead>\n<tbody>\n";
    const auto cell = [](const std::string& value, bool poor) {
        return fmt::format("<td{}>{}</td>", poor ? " class=\"poor\"" : "", e(value));
    };
    for (const PassageRow& r : rows)
        text +=
            fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td>{}<td>{}</td>{}<td>{}</td><td>{}</td></tr>\n",
                        e(r.module), r.direction, e(r.largest), e(r.smallest), cell(r.overflow, r.overflows),
                        e(r.subnormal), cell(r.vanish, r.vanishes), e(r.head_room), e(r.off));
    return text + "</tbody></table></div>\n";
}

std::string heat(const Diagnosis& d, Direction direction) {
    std::vector<HeatRow> rows;
    for (const LayerPassages& layer : d.layers)
        rows.push_back(
            {title_of(layer.module), direction == Direction::forward ? &layer.forward.all : &layer.backward.all});
    std::erase_if(rows, [](const HeatRow& row) { return row.tally->counted() == 0; });
    if (direction == Direction::backward) std::reverse(rows.begin(), rows.end());
    return heat_figure(rows, d.format, direction == Direction::forward);
}

std::string findings(const Diagnosis& d) {
    if (d.healthy())
        return fmt::format("<p class=\"verdict\"><span class=\"badge pass\">healthy</span> {}</p>\n",
                           healthy_sentence(d));
    std::string text;
    if (d.finding) text += fmt::format("<pre>{}</pre>\n", e(d.finding.text()));
    for (const Concern& concern : d.concerns)
        text += fmt::format("<p class=\"verdict\"><span class=\"badge marginal\">{}</span> {}{}</p>\n",
                            name_of(concern.kind), e(concern.text),
                            concern.remedy ? fmt::format("; <code>{}</code>", e(concern.remedy.str())) : "");
    return text;
}

std::string updates_table(const Diagnosis& d) {
    std::string rows;
    for (const LostUpdates& u : d.updates)
        rows +=
            fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td></tr>\n", e(u.parameter), u.updates, share(u.share()));
    return fmt::format(
        "<div class=\"wide\"><table>\n<thead><tr><th>weight</th><th>updates</th><th>lost to "
        "rounding</th></tr></thead>\n"
        "<tbody>\n{}</tbody></table></div>\n",
        rows);
}

}  // namespace

std::vector<PassageRow> passage_rows(const Diagnosis& d) {
    std::vector<PassageRow> rows;
    for (const LayerPassages& layer : d.layers)
        rows.push_back(row_of(d, layer.module, Direction::forward, layer.forward));
    for (std::size_t i = d.layers.size(); i-- > 0;)
        if (d.layers[i].ran_backward)
            rows.push_back(row_of(d, d.layers[i].module, Direction::backward, d.layers[i].backward));
    return rows;
}

std::string rows_note(const Diagnosis& d) {
    return judged_scale(d, Direction::backward) != 0 ? "backward: gradients as they are before the loss is scaled" : "";
}

std::string healthy_sentence(const Diagnosis& d) {
    const int scale = judged_scale(d, Direction::backward);
    return "nothing overflows or jumps, no tensor loses more than a tenth of its magnitude, and digits are left" +
           (scale != 0 ? fmt::format(" (gradients at loss scale 2^{})", scale) : "");
}

std::string scale_sentence(const Diagnosis& d) {
    const ScaleRange& s = d.scale;
    if (!d.scaled && d.format == Dtype::bf16) return "no loss scale is needed: bf16 has the range of FP32";
    if (!d.scaled) return d.candidate + " does not scale its loss";
    if (!s.any_gradients)
        return "no gradient is held in " + std::string(name_of(d.format)) + ": no loss scale is needed";
    if (!s.exists())
        return fmt::format(
            "no loss scale serves all gradients: from 2^{} on under 0.1% vanish, beyond 2^{} some overflow; at 2^{}, "
            "{:.2f}% vanish",
            s.least, s.most, s.recommended, 100 * s.vanishing);
    return fmt::format(
        "loss scales from 2^{} to 2^{} keep all but 0.1% of the gradients from vanishing and none overflows; "
        "recommended: 2^{} (scaler.init_scale={:.17g})",
        s.least, s.most, s.recommended, std::exp2(s.recommended));
}

std::string overflow_sentence(const Diagnosis& d) {
    if (d.scale_drops > 0)
        return fmt::format("the loss scale was lowered {} time{}, to {:g}", d.scale_drops,
                           d.scale_drops == 1 ? "" : "s", d.scale_survived);
    if (d.overflows == 0) return "";
    return fmt::format("{} of {} steps overflow at the loss scale {:.17g}, which does not move: each is skipped",
                       d.overflows, d.steps, d.scale_survived);
}

std::string json_diagnosis(const Diagnosis& d) {
    nlohmann::json layers = nlohmann::json::array(), updates = nlohmann::json::array(),
                   concerns = nlohmann::json::array(), significance = nlohmann::json::array(),
                   averages = nlohmann::json::array();
    for (const LayerPassages& layer : d.layers)
        layers.push_back({{"module", layer.module},
                          {"forward", passage_json(layer.forward, d.format)},
                          {"backward", passage_json(layer.backward, d.format)}});
    for (const Significance& s : d.significance)
        significance.push_back({{"module", s.module},
                                {"off", s.off},
                                {"gradient_cosine", s.cosine},
                                {"worst_op", s.op},
                                {"worst_op_given", s.given},
                                {"worst_op_made", s.made}});
    for (const LostUpdates& u : d.updates)
        updates.push_back({{"parameter", u.parameter},
                           {"updates", u.updates},
                           {"lost", u.lost},
                           {"decays", u.decays},
                           {"decays_lost", u.decays_lost}});
    for (const StillAverage& a : d.averages)
        averages.push_back({{"buffer", a.buffer},
                            {"dtype", name_of(a.dtype)},
                            {"values", a.values},
                            {"still", a.still},
                            {"range", a.range}});
    for (const Concern& c : d.concerns)
        concerns.push_back({{"kind", name_of(c.kind)},
                            {"direction", name_of(c.direction)},
                            {"module", c.module},
                            {"step", c.step},
                            {"in_data", c.in_data},
                            {"text", c.text},
                            {"remedy", c.remedy.str()}});
    nlohmann::json all = {{"format", name_of(d.format)},
                          {"candidate", d.candidate},
                          {"steps", d.steps},
                          {"healthy", d.healthy()},
                          {"layers", layers},
                          {"off_fp32", significance},
                          {"scale",
                           {{"used", d.scaled},
                            {"exists", d.scaled && d.scale.any_gradients && d.scale.exists()},
                            {"least_log2", d.scale.least},
                            {"most_log2", d.scale.most},
                            {"recommended_log2", d.scale.recommended},
                            {"vanishing", d.scale.vanishing},
                            {"drops", d.scale_drops},
                            {"survived", d.scale_survived},
                            {"moves", d.scaling == Scaling::moving},
                            {"overflows", d.overflows}}},
                          {"updates", updates},
                          {"masters", d.masters},
                          {"averages", averages},
                          {"finding", nlohmann::json::parse(d.finding.json().text())},
                          {"concerns", concerns}};
    return all.dump();
}

std::string html_diagnosis(const Diagnosis& d, const std::string& title) {
    const std::string note = rows_note(d);
    const std::string measured =
        d.layers.empty() ? "<p>The first step broke, before anything was counted.</p>\n"
                         : fmt::format(
                               "<h2>Exponents</h2>\n{}{}<h2>By module</h2>\n{}"
                               "<h2>Loss scale</h2>\n<p>{}</p>\n<h2>Weights, were they "
                               "kept in {} alone</h2>\n{}",
                               heat(d, Direction::forward), heat(d, Direction::backward),
                               table(passage_rows(d)) + (note.empty() ? "" : fmt::format("<p>{}</p>\n", e(note))),
                               e(scale_sentence(d) + (overflow_sentence(d).empty() ? "" : "; " + overflow_sentence(d))),
                               name_of(d.format), updates_table(d));
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n"
        "<main>\n<h1>{0}</h1>\n<dl><div><dt>steps</dt><dd>{3}</dd></div><div><dt>held against</dt><dd>{4}</dd></div>"
        "<div><dt>candidate</dt><dd>{5}</dd></div></dl>\n{6}{7}</main>\n</body>\n</html>\n",
        e(title), kReportStyle, kHeatStyle, d.steps, name_of(d.format), e(d.candidate), findings(d), measured);
}

}  // namespace invar
