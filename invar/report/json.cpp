#include "invar/report/json.h"

#include <nlohmann/json.hpp>

#include "invar/report/content.h"
#include "invar/report/monitoring.h"
#include "invar/train/logged_names.h"

namespace invar {

namespace {

using Json = nlohmann::ordered_json;

Json run_of(const RunRecord& run) {
    Json json = {{"name", run.name},
                 {"precision", run.precision},
                 {"seed", nullptr},
                 {"metric", run.metric},
                 {logged::kLoss, run.train_loss},
                 {"val_loss", run.val_loss},
                 {"train_seconds", run.train_seconds},
                 {"samples_per_s", run.samples_per_s},
                 {"waited_share", run.waited_share},
                 {"max_grad_norm", run.max_grad_norm},
                 {logged::kScale, run.final_scale},
                 {"steps", run.steps},
                 {logged::kSkipped, run.skipped}};
    if (run.seed) json["seed"] = *run.seed;
    if (!run.not_learned.empty()) json["not_learned"] = run.not_learned;
    if (!run.not_finite.empty()) json["not_finite"] = run.not_finite;
    if (!run.recoveries.empty()) json["recoveries"] = run.recoveries;
    return json;
}

Json arm_of(const Arm& arm) {
    Json json = {{"name", arm.name},
                 {"metric", arm.metric},
                 {"val_loss", arm.val_loss},
                 {logged::kLoss, arm.train_loss},
                 {"train_seconds", arm.train_seconds},
                 {"samples_per_s", arm.samples_per_s},
                 {"max_grad_norm", arm.max_grad_norm},
                 {logged::kScale, arm.final_scale},
                 {"steps", arm.steps},
                 {logged::kSkipped, arm.skipped},
                 {"all_finite", arm.all_finite()}};
    Json memory = Json::object();
    for (const auto& [name, bytes] : arm.memory) memory[name] = bytes;
    json["peak_bytes"] = memory;
    json["runs"] = Json::array();
    for (const RunRecord& run : arm.runs) json["runs"].push_back(run_of(run));
    return json;
}

Json statistics_of(const Equivalence& e) {
    if (!e.tested) return nullptr;
    Json json = {{"paired", e.paired},
                 {"standard_error", e.standard_error},
                 {"degrees", e.degrees},
                 {"interval_90", {e.ninety.low, e.ninety.high}},
                 {"interval_95", {e.ninety_five.low, e.ninety_five.high}},
                 {"p_equivalent", e.p_equivalent},
                 {"p_harm", e.p_harm},
                 {"sampling_error", e.sampling_error},
                 {"further_seeds", nullptr}};
    if (e.further_seeds) json["further_seeds"] = *e.further_seeds;
    if (e.enough_samples > 0) json["enough_samples"] = e.enough_samples;
    return json;
}

Json candidate_of(const Comparison& c, const Arm& arm, const ReportContext& context) {
    Json json = arm_of(arm);
    json["verdict"] = name_of(arm.verdict);
    json["reason"] = arm.reason;
    json["difference"] = arm.failed() ? kUnknown : arm.equivalence.difference;
    json["speed_up"] = arm.speed_up;
    if (!arm.disturbed.empty()) json["disturbed"] = arm.disturbed;
    json["grad_norm_ratio"] = arm.grad_norm_ratio;
    json["statistics"] = statistics_of(arm.equivalence);
    json["monitoring"] = Json::array();
    for (const MonitorRow& row : monitoring_rows(c, arm, context)) {
        Json each = {{"what", row.what},
                     {"baseline", row.baseline},
                     {"candidate", row.candidate},
                     {"wanted", row.wanted},
                     {"met", nullptr}};
        if (row.met) each["met"] = *row.met;
        json["monitoring"].push_back(std::move(each));
    }
    json["checklist"] = Json::array();
    for (const CheckItem& item : checklist(c, arm, context)) {
        constexpr const char* kStates[] = {"done", "open", "unknown", "open"};
        json["checklist"].push_back(
            {{"what", item.what}, {"state", kStates[static_cast<int>(item.state)]}, {"measured", item.measured}});
    }
    return json;
}

}  // namespace

std::string json_report(const Comparison& c, const ReportContext& context) {
    Json json = {{"title", context.title},
                 {"verdict", name_of(c.verdict)},
                 {"reason", c.reason},
                 {"metric", c.metric},
                 {"better", c.direction == Better::higher ? "higher" : "lower"},
                 {"margin", c.limits.margin},
                 {"harm", c.limits.harm},
                 {"margin_of", c.limits.unit == Limits::Unit::relative ? "the baseline's mean" : "the metric itself"},
                 {"level", c.limits.level},
                 {"warnings", c.warnings}};
    for (const auto& [name, value] : context.facts) json["facts"][name] = value;
    json["baseline"] = arm_of(c.baseline);
    if (c.noise) {
        json["baseline"]["noise"] = {{"spread", c.noise->spread},
                                     {"samples", nullptr},
                                     {"resolution", c.noise->resolution},
                                     {"sampling_error", c.noise->sampling_error}};
        if (c.noise->samples > 0) json["baseline"]["noise"]["samples"] = c.noise->samples;
    }
    json["candidates"] = Json::array();
    for (const Arm& arm : c.candidates) json["candidates"].push_back(candidate_of(c, arm, context));
    json["approval"] = {
        {"note", approval_note(c)}, {"approved", nullptr}, {"signed_off_by", nullptr}, {"date", nullptr}};
    json["rollback"] = context.rollback;
    json["reproduce"] = context.reproduce;
    if (!context.further.empty()) json["further"] = context.further;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace invar
