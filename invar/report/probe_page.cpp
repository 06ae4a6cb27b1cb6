#include "invar/report/probe_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/core/format_info.h"
#include "invar/core/printable.h"
#include "invar/report/heat_map.h"
#include "invar/report/plot.h"
#include "invar/report/style.h"

namespace invar {

namespace {

using Json = nlohmann::json;

std::string e(std::string_view text) {
    return html_escaped(printable_lines(text));
}

std::string dumped(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string page(const std::string& title, const std::string& body) {
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
        "content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n"
        "<main>\n<h1>{0}</h1>\n{3}</main>\n</body>\n</html>\n",
        e(title), kReportStyle, kHeatStyle, body);
}

std::string badge(std::string_view kind, std::string_view word, std::string_view text) {
    return fmt::format("<p class=\"verdict\"><span class=\"badge {}\">{}</span> {}</p>\n", kind, e(word), e(text));
}

std::string heat(const ProbeDiagnosis& d, Direction direction) {
    std::vector<HeatRow> rows;
    for (const ProbeRow& row : d.rows)
        if (row.direction == direction && row.tally.counted() > 0) rows.push_back({printable(row.module), &row.tally});
    return heat_figure(rows, d.format, direction == Direction::forward);
}

std::string table(const ProbeDiagnosis& d) {
    std::string text =
        "<div class=\"wide\"><table>\n<thead><tr><th>module</th><th>class</th><th>direction</th><th>ran in</th>"
        "<th>largest</th><th>smallest</th>";
    for (const Dtype format : kProbeFormats) text += fmt::format("<th>{}</th>", name_of(format));
    text += "</tr></thead>\n<tbody>\n";
    for (const ProbeRow& row : d.rows) {
        text += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{:.2e}</td><td>{:.2e}</td>",
                            e(row.module), e(row.class_name), name_of(row.direction), name_of(row.ran_in),
                            row.tally.largest, row.tally.smallest);
        for (std::size_t i = 0; i < kProbeFormats.size(); ++i)
            text += fmt::format("<td{}>{}</td>", row.verdicts[i].trouble != Trouble::none ? " class=\"poor\"" : "",
                                verdict_word(row, i));
        text += "</tr>\n";
    }
    return text + "</tbody></table></div>\n";
}

Json verdict_json(const ProbeRow& row, std::size_t i) {
    const FormatVerdict& v = row.verdicts[i];
    return {{"trouble", name_of(v.trouble)}, {"share", v.share}, {"with_scale", v.by_scaling}};
}

std::string_view name_of_why(ProbeParting::Why why) {
    constexpr std::string_view kNames[] = {"rounding", "between modules", "not finite", "random",
                                           "data",     "weights",         "shape",      "skips"};
    return kNames[static_cast<std::size_t>(why)];
}

// A difference of its size on a GPU, where a product may have been made: by the module itself, by code between modules,
// or on the way of a gradient.
bool tf32_may_explain(const ProbeComparison& c) {
    using Why = ProbeParting::Why;
    const ProbeParting& p = *c.parting;
    const bool of_product = p.why == Why::between_modules ||
                            (p.why == Why::rounding &&
                             (p.direction == Direction::backward || autocast_rule(p.class_name) == AutocastRule::low));
    return c.on_cuda && of_product && c.lower == Dtype::f32 && p.difference > p.allowed &&
           p.difference < 4 * tf32_info().epsilon;
}

std::string counted_steps(std::int64_t count) {
    return count == 0 ? "no step" : fmt::format("{} step{}", count, count == 1 ? "" : "s");
}

}  // namespace

std::string verdict_word(const ProbeRow& row, std::size_t format) {
    if (row.rule == AutocastRule::fp32 || (row.rule == AutocastRule::follows && size_of(kProbeFormats[format]) == 1))
        return "-";
    const FormatVerdict& v = row.verdicts[format];
    if (v.trouble == Trouble::none && row.tally.counted() == 0 && row.tally.nans + row.tally.infinities > 0)
        return "nan";
    constexpr const char* kWords[] = {"ok", "digits", "under", "over"};
    return v.trouble == Trouble::none && v.by_scaling ? "scale" : kWords[static_cast<std::size_t>(v.trouble)];
}

std::string verdict_words() {
    return "over: overflows; under: vanishes; digits: varies by less than rounding;\n"
           "scale: needs a power of two of its own; nan: nothing finite; -: not held in it";
}

std::string scale_sentence(const ProbeDiagnosis& d) {
    const ScaleRange& s = d.scale;
    if (d.format == Dtype::bf16) return "no loss scale is needed: bf16 has the range of FP32";
    if (!s.any_gradients)
        return "every gradient that was probed is zero or not finite, and tells no loss scale; probe some steps in "
               "BF16 or FP32";
    std::string text = s.exists()
                           ? fmt::format(
                                 "loss scales from 2^{} to 2^{} keep all but 0.1% of the gradients that were seen in "
                                 "FP16; recommended: GradScaler(init_scale=2.0**{})",
                                 s.least, s.most, s.recommended)
                           : fmt::format(
                                 "no loss scale serves all gradients in FP16: from 2^{} on under 0.1% vanish, beyond "
                                 "2^{} some overflow; at 2^{}, {:.2f}% vanish",
                                 s.least, s.most, s.recommended, 100 * s.vanishing);
    if (d.weights_bound_scale)
        text += fmt::format("; the gradient of {} overflows first", printable(d.largest_weight_gradient));
    if (d.ran_fp16)
        text += "; this run was FP16 already: gradients that had vanished are not among them";
    else if (d.vanish_unscaled >= 0.001)
        text += fmt::format("; without one, {:.1f}% vanish", 100 * d.vanish_unscaled);
    return text;
}

std::string skips_sentence(const ProbeDiagnosis& d) {
    if (d.skips == 0 && d.overflows == 0) return "";
    std::string text =
        fmt::format("the scaler had skipped {} step{} before the last one here", d.skips, d.skips == 1 ? "" : "s");
    if (d.overflows > 0)
        text += fmt::format("; in {} of those probed, gradients overflowed at its loss scale", d.overflows);
    return text;
}

std::string healthy_sentence(const ProbeDiagnosis& d) {
    return fmt::format("nothing overflows or loses its digits in {}, and of no tensor does more than a tenth vanish",
                       name_of(d.format));
}

std::string patch_note(const ProbeDiagnosis& d) {
    const bool held =
        std::any_of(d.rows.begin(), d.rows.end(), [&](const ProbeRow& r) { return r.ran_in == d.format; });
    return held && !d.keep_fp32.empty() ? "what they hide in the modules after them shows in a probe with the patch"
                                        : "";
}

std::string parting_sentence(const ProbeComparison& c) {
    if (!c.parting) {
        std::string text = fmt::format("they agree in all {} step{} to within rounding in {}", c.steps.size(),
                                       c.steps.size() == 1 ? "" : "s", name_of(c.lower));
        if (c.steps.size() > 1) text += " and what that has made of their weights";
        if (!c.other_calls.empty())
            text += fmt::format("; {} of them up to a module that ran more often in one", c.other_calls.size());
        if (c.other_weights_from)
            text += fmt::format("; from step {} on their weights differ too much to compare", *c.other_weights_from);
        return text;
    }
    const ProbeParting& p = *c.parting;
    const std::string classes = p.class_name == p.class_in_b
                                    ? printable(p.class_name)
                                    : fmt::format("{} in a, {} in b", printable(p.class_name), printable(p.class_in_b));
    const std::string where = fmt::format("{} ({}), {}", p.module.empty() ? "the model itself" : printable(p.module),
                                          classes, name_of(p.direction));
    const std::string amount =
        fmt::format("by {:.2g}, and rounding in {} allows {:.2g}", p.difference, name_of(c.lower), p.allowed);
    using Why = ProbeParting::Why;
    std::string text = fmt::format("step {}: ", p.step);
    if (p.why == Why::data)
        text += fmt::format("the batches differ {}; give both runs the same data in the same order", amount);
    else if (p.why == Why::weights)
        text +=
            fmt::format("the weights of {} differ {} before the step; start both from the same ones", where, amount);
    else if (p.why == Why::shape)
        text += fmt::format("the tensors of {} have different shapes; give both runs the same batches", where);
    else if (p.why == Why::not_finite)
        text += fmt::format("they part at {}: one is finite there and the other is not", where);
    else if (p.why == Why::random)
        text += fmt::format("they part at {}, {}: its random masks differ; seed both alike or switch it off", where,
                            amount);
    else if (p.why == Why::between_modules)
        text += fmt::format("they part before {}: its inputs differ {}, in code between modules", where, amount);
    else if (p.why == Why::skips)
        text += fmt::format(
            "they part at {}, {}: by then a scaler had skipped {} in a and {} in b, so their weights have not had the "
            "same "
            "updates; compare steps before that, or begin both with a scale that skips none",
            where, amount, counted_steps(p.skips_in_a), counted_steps(p.skips_in_b));
    else if (p.direction == Direction::backward)
        text += fmt::format("they part at the gradients that reach {}, {}", where, amount);
    else
        text +=
            fmt::format("they part at {}: its results differ {}; its inputs differ by {:.2g}", where, amount, p.inputs);
    if (tf32_may_explain(c)) text += "; TF32 in one of them would explain it (torch.backends.cuda.matmul.allow_tf32)";
    return text;
}

std::string json_probe(const ProbeDiagnosis& d) {
    Json rows = Json::array(), concerns = Json::array(), finding = {{"found", d.finding.has_value()}};
    for (const ProbeRow& row : d.rows) {
        Json formats = Json::object();
        for (std::size_t i = 0; i < kProbeFormats.size(); ++i)
            formats[std::string(name_of(kProbeFormats[i]))] = verdict_json(row, i);
        rows.push_back({{"module", row.module},
                        {"class", row.class_name},
                        {"direction", name_of(row.direction)},
                        {"ran_in", name_of(row.ran_in)},
                        {"kept_fp32_by_autocast", row.rule == AutocastRule::fp32},
                        {"values", row.tally.values},
                        {"largest", row.tally.largest},
                        {"smallest", row.tally.smallest},
                        {"formats", formats}});
    }
    for (const ProbeConcern& c : d.concerns)
        concerns.push_back({{"kind", name_of(c.trouble)},
                            {"direction", name_of(c.direction)},
                            {"module", c.module},
                            {"text", c.text}});
    if (d.finding)
        finding.update({{"step", d.finding->step},
                        {"direction", name_of(d.finding->direction)},
                        {"module", d.finding->module},
                        {"blame", name_of(d.finding->blame)},
                        {"text", d.finding->text},
                        {"remedy", d.finding->remedy}});
    return dumped({{"probe", d.title},
                   {"ran_in", d.ran_in},
                   {"format", name_of(d.format)},
                   {"steps", d.steps},
                   {"passed_over", d.passed_over},
                   {"healthy", d.healthy()},
                   {"rows", rows},
                   {"scale",
                    {{"run", d.run_scale},
                     {"skips", d.skips},
                     {"overflows", d.overflows},
                     {"vanish_unscaled", d.vanish_unscaled},
                     {"exists", d.scale.any_gradients && d.scale.exists()},
                     {"least_log2", d.scale.least},
                     {"most_log2", d.scale.most},
                     {"bound_by_weight", d.weights_bound_scale ? Json(d.largest_weight_gradient) : Json()},
                     {"recommended_log2", d.scale.recommended}}},
                   {"finding", finding},
                   {"concerns", concerns},
                   {"keep_fp32", d.keep_fp32}});
}

std::string html_probe(const ProbeDiagnosis& d, const std::string& patch) {
    std::string body = fmt::format(
        "<dl><div><dt>probed</dt><dd>{}</dd></div><div><dt>steps</dt><dd>{}</dd></div><div><dt>ran in</dt><dd>{}</dd>"
        "</div><div><dt>held against</dt><dd>{}</dd></div></dl>\n",
        e(d.title), fmt::join(d.steps, ", "), d.ran_in, name_of(d.format));
    if (d.finding)
        body += badge("fail", name_of(d.finding->blame),
                      fmt::format("step {}: {}; {}", d.finding->step, d.finding->text, d.finding->remedy));
    for (const ProbeConcern& c : d.concerns) body += badge("marginal", name_of(c.trouble), c.text);
    if (d.healthy()) body += badge("pass", "healthy", healthy_sentence(d));
    body += fmt::format("<h2>Loss scale</h2>\n<p>{}</p>\n<p>{}</p>\n", e(scale_sentence(d)), e(skips_sentence(d)));
    body += fmt::format("<h2>By module</h2>\n{}<p>{}</p>\n<h2>Exponents</h2>\n{}{}", table(d), e(verdict_words()),
                        heat(d, Direction::forward), heat(d, Direction::backward));
    const std::string note = patch_note(d).empty() ? "" : fmt::format("<p>{}</p>\n", e(patch_note(d)));
    if (!patch.empty()) body += fmt::format("<h2>Modules to keep in FP32</h2>\n{}<pre>{}</pre>\n", note, e(patch));
    return page("Diagnosis of " + d.title, body);
}

std::string json_comparison(const ProbeComparison& c) {
    Json rows = Json::array(), parting = {{"found", c.parting.has_value()}};
    for (const ProbeDifference& row : c.rows)
        rows.push_back({{"module", row.module},
                        {"class", row.class_name},
                        {"direction", name_of(row.direction)},
                        {"in_a", name_of(row.in_a)},
                        {"in_b", name_of(row.in_b)},
                        {"difference", row.difference},
                        {"allowed", row.allowed},
                        {"parts", row.parts}});
    if (c.parting)
        parting.update({{"why", name_of_why(c.parting->why)},
                        {"step", c.parting->step},
                        {"module", c.parting->module},
                        {"direction", name_of(c.parting->direction)},
                        {"difference", c.parting->difference},
                        {"allowed", c.parting->allowed},
                        {"inputs", c.parting->inputs},
                        {"text", parting_sentence(c)}});
    return dumped({{"a", c.title_a},
                   {"b", c.title_b},
                   {"lower", name_of(c.lower)},
                   {"steps", c.steps},
                   {"other_weights_from", c.other_weights_from ? Json(*c.other_weights_from) : Json()},
                   {"only_in_one", c.only_in_one},
                   {"other_calls", c.other_calls},
                   {"rows", rows},
                   {"parting", parting}});
}

std::string html_comparison(const ProbeComparison& c) {
    std::string body = fmt::format(
        "<dl><div><dt>a</dt><dd>{}</dd></div><div><dt>b</dt><dd>{}</dd></div><div><dt>steps</dt><dd>{}</dd></div>"
        "</dl>\n{}",
        e(c.title_a), e(c.title_b), fmt::join(c.steps, ", "),
        badge(c.parting ? "fail" : "pass", c.parting ? "parts" : "agrees", parting_sentence(c)));
    for (const std::string& sentence : c.other_calls) body += fmt::format("<p>{}</p>\n", e(sentence));
    body += fmt::format(
        "<h2>Step {}</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>module</th><th>class</th><th>direction</th>"
        "<th>a</th><th>b</th><th>difference</th><th>allowed</th></tr></thead>\n<tbody>\n",
        c.steps.back());
    for (const ProbeDifference& row : c.rows)
        body += fmt::format(
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td{}>{:.2e}</td><td>{:.2e}</td></tr>\n",
            e(row.module), e(row.class_name), name_of(row.direction), name_of(row.in_a), name_of(row.in_b),
            row.parts ? " class=\"poor\"" : "", row.difference, row.allowed);
    return page("Two probes", body + "</tbody></table></div>\n");
}

}  // namespace invar
