// Whether a run as configured would learn with all its parts: its rate, its layers, its clipping, its evaluation.
#include <algorithm>

#include "invar/diagnose/check_parts.h"
#include "invar/diagnose/diagnose.h"

namespace invar {

namespace {

constexpr int kSteps = 3;

bool told_by_other_checks(Concern::Kind kind) {
    return is_of_precision(kind) || kind == Concern::Kind::spike || kind == Concern::Kind::data ||
           kind == Concern::Kind::constant_labels;
}

}  // namespace

RunCheck check_run(std::shared_ptr<const Task> task, const Config& config) {
    Config full = config;
    DiagnoseOptions options = diagnose_options(full, "");
    options.steps = kSteps;
    Setup setup(std::move(task), full);
    Diagnosis d = diagnose(setup, options);
    RunCheck result;
    result.steps = d.steps;
    std::erase_if(d.concerns, [](const Concern& c) { return told_by_other_checks(c.kind); });
    if (!d.concerns.empty()) {
        const Concern& first = d.concerns.front();
        // What is frozen or idle may be meant so.
        const bool may_be_meant = first.kind == Concern::Kind::frozen || first.kind == Concern::Kind::no_gradient;
        result.mark = may_be_meant ? Mark::warn : Mark::fail;
        result.kind = name_of(first.kind);
        result.module = first.module;
        result.text = first.text;
        return result;
    }
    if (d.finding && !d.finding.step_finite) {
        result.mark = Mark::warn;
        result.text = fmt::format("a step in FP32 gives NaN or Inf: {}", d.finding.where());
        return result;
    }
    result.text =
        fmt::format("over {} steps all {} parameters that learn move, and evaluation gives the same twice", d.steps,
                    std::ranges::count_if(d.updates, [](const LostUpdates& u) { return u.updates > 0; }));
    return result;
}

}  // namespace invar
