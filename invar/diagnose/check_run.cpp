// Whether a run as configured would learn with all its parts: its rate, its layers, its clipping, its evaluation.
#include <algorithm>

#include "invar/diagnose/check_parts.h"
#include "invar/diagnose/diagnose.h"
#include "invar/ops/to.h"

namespace invar {

namespace {

constexpr int kSteps = 3;
constexpr std::int64_t kSamples = 16;  // of a step: whether a layer moves does not take more

bool told_by_other_checks(Concern::Kind kind) {
    return is_of_precision(kind) || kind == Concern::Kind::spike || kind == Concern::Kind::data ||
           kind == Concern::Kind::constant_labels;
}

}  // namespace

RunCheck check_run(std::shared_ptr<const Task> task, const Config& config) {
    Config full = config;
    DiagnoseOptions options = diagnose_options(full, "");
    options.steps = kSteps;
    Setup setup(task, full);
    const std::shared_ptr<const Dataset> data = task->data(Split::train);
    options.before_step = [&](int step, std::vector<Batch>& group) {
        const std::vector<std::int64_t> all = spread_samples(*data, kSteps * kSamples);
        std::vector<std::int64_t> samples;
        for (std::size_t i = std::size_t(step - 1); i < all.size(); i += kSteps) samples.push_back(all[i]);
        if (group.front().size <= kSamples || samples.empty()) return;
        group = {data->read(samples).map([&](const Tensor& tensor) { return ops::to(tensor, setup.device); })};
    };
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
