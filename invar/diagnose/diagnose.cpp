#include "invar/diagnose/diagnose.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/diagnose/concerns.h"
#include "invar/diagnose/find_first_bad.h"
#include "invar/diagnose/lost_updates.h"
#include "invar/diagnose/run_faults.h"
#include "invar/diagnose/significance.h"
#include "invar/formats/inspect.h"
#include "invar/kernels/devices.h"

namespace invar {

namespace {

// Counters no step of ours uses up, so that each step draws dropout masks of its own.
constexpr std::uint64_t kCountersAStep = std::uint64_t(1) << 32;

class Run {
  public:
    Run(Setup& setup, const DiagnoseOptions& options) : setup_(setup), o_(options) {
        if (!o_.loss) o_.loss = setup.loss;
        d_.format = o_.format;
        d_.candidate = o_.candidate.name();
        d_.scaled = o_.candidate.needs_scaler() || !o_.replays;
        d_.scaling = o_.scaling;
        d_.masters = o_.candidate.mixed() || !is_sixteen_bit(o_.candidate.compute_dtype());
        d_.scale_survived = o_.candidate.needs_scaler() ? o_.scale : 1.0;
        setup.train_data->start_epoch(epoch_);
    }
    Diagnosis run();

  private:
    std::vector<Batch> next_group();
    Replayed replayed(const StepStart& start, const Precision& precision, double scale, OpWatcher* watcher) {
        const bool overrides = precision.name() != kFullPrecision.name();
        return replay(*setup_.model, *setup_.optimizer, start, {precision, scale, overrides, o_.loss, watcher});
    }
    // Whether the step goes on: false where FP32 itself is not finite.
    bool step(const StepStart& start);
    // What the candidate made of it; nothing where that was not finite, or was not tried.
    std::optional<SampledStep> try_candidate(const StepStart& start);
    Finding find(const StepStart& start, const Precision& precision, double scale);
    // Of the run itself, by a step that was done.
    void add_run_faults(const StepStart& start);

    Setup& setup_;
    DiagnoseOptions o_;
    Diagnosis d_;
    FormatMap map_;
    SpikeWatch spikes_;
    GradientWatch gradients_;
    std::vector<Concern> run_faults_;  // told before all others: what else is seen may follow from them
    std::int64_t epoch_ = 0;
};

std::vector<Batch> Run::next_group() {
    std::vector<Batch> group = setup_.next_group();
    if (!group.empty()) return group;
    setup_.train_data->start_epoch(++epoch_);
    return setup_.next_group();
}

Finding Run::find(const StepStart& start, const Precision& precision, double scale) {
    const Precision before = setup_.precision;
    setup_.precision = precision;
    const Finding finding = find_first_bad(setup_, start.group, start.rng, scale, o_.loss);
    setup_.precision = before;
    return finding;
}

// A scale that is too large is a scaler's daily bread and no finding, as long as it moves and a smaller one serves.
std::optional<SampledStep> Run::try_candidate(const StepStart& start) {
    const bool moves = o_.scaling == Scaling::moving || !d_.scaled;
    if (!o_.replays || (d_.finding && moves)) return std::nullopt;
    SampledStep made;
    if (replayed(start, o_.candidate, d_.scale_survived, &made.ops).finite) {
        made.sample_gradients(*setup_.optimizer);
        return made;
    }
    if (!moves) ++d_.overflows;
    if (d_.finding) return std::nullopt;
    const Finding finding = find(start, o_.candidate, d_.scale_survived);
    if (finding.blame != Blame::loss_scale || !moves) {
        d_.finding = finding;
        return std::nullopt;
    }
    ++d_.scale_drops;
    while (d_.scale_survived > 1 && !replayed(start, o_.candidate, d_.scale_survived, nullptr).finite)
        d_.scale_survived /= 2;
    return std::nullopt;
}

bool Run::step(const StepStart& start) {
    // Formats follow from the precision alone, so they are learnt once; a format that cannot be run goes by BF16's.
    if (map_.ops.empty())
        replayed(start, o_.replays ? o_.candidate : Precision::parse("bf16-mixed"), d_.scale_survived, &map_);
    const bool found_before = bool(d_.finding);
    const std::optional<SampledStep> low = spikes_.astray() ? std::nullopt : try_candidate(start);
    Instruments now(map_, o_.format);
    SampledStep exact;
    BothWatch both(now, exact.ops);
    const Replayed full = replayed(start, kFullPrecision, 1.0, &both);  // last: its gradients are what the step takes
    if (!full.finite) {
        d_.finding = find(start, kFullPrecision, 1.0);  // outweighs what the candidate met
        return false;
    }
    if (low) {
        exact.sample_gradients(*setup_.optimizer);
        compare_steps(*low, exact, *setup_.optimizer, d_.significance);
    }
    gradients_.observe(*setup_.optimizer);
    UpdateWatch updates(*setup_.optimizer, o_.format);
    setup_.optimizer->step(setup_.clip);
    updates.add_to(d_.updates);

    StepFigures figures{full.loss, double(setup_.optimizer->state().grad_norm)};
    spikes_.observe(figures, now.layers, start.group, setup_.optimizer->groups()[0].lr, d_.concerns);
    if (spikes_.astray() && !found_before) d_.finding = {};
    d_.figures.push_back(figures);
    for (const LayerPassages& layer : now.layers) {
        const auto same = [&](const LayerPassages& other) { return other.module == layer.module; };
        const auto known = std::find_if(d_.layers.begin(), d_.layers.end(), same);
        if (known == d_.layers.end()) {
            d_.layers.push_back(layer);
        } else {
            known->forward.add(layer.forward), known->backward.add(layer.backward);
            known->ran_backward = known->ran_backward || layer.ran_backward;
        }
    }
    return true;
}

void Run::add_run_faults(const StepStart& start) {
    const auto add = [&](MaybeConcern concern) {
        if (concern) run_faults_.push_back(std::move(*concern));
    };
    if (d_.scaled && o_.replays && d_.scaling != Scaling::off && o_.scale > 1)
        add(scaled_clip_fault(setup_, start, o_.loss, o_.scale));
    add(clip_fault(setup_.clip, d_.figures));
    add(gradients_.fault(setup_, start, o_.loss, o_.freeze, d_.updates));
    d_.averages = still_averages(setup_, start, o_.loss);
    add(average_fault(d_.averages));
}

Diagnosis Run::run() {
    if (o_.run_faults) run_faults_ = faults_before_steps(setup_, o_.loss);
    RngState rng = default_generator().state();
    std::vector<Batch> last;
    bool goes_on = true;
    while (d_.steps < o_.steps) {
        std::vector<Batch> group = next_group();
        if (o_.before_step) o_.before_step(d_.steps + 1, group);
        ++d_.steps;
        goes_on = step({group, rng});
        rng.offset += kCountersAStep;
        if (o_.progress) o_.progress(double(d_.steps) / double(o_.steps));
        if (!goes_on) break;
        last = std::move(group);
    }
    if (o_.run_faults && goes_on) add_run_faults({last, rng});
    Tally gradients(1);
    for (const LayerPassages& layer : d_.layers) gradients.add(layer.backward.low);
    d_.scale = scale_range(gradients, o_.format);
    if (!spikes_.astray()) {
        add_range_concerns(d_);
        add_significance_concern(d_);
        if (o_.replays) add_update_concern(d_, o_.candidate);
    }
    d_.concerns.insert(d_.concerns.begin(), run_faults_.begin(), run_faults_.end());
    return d_;
}

}  // namespace

Diagnosis diagnose(Setup& setup, const DiagnoseOptions& options) {
    check<UsageError>(options.steps >= 1, "--steps {}: must be at least 1", options.steps);
    return Run(setup, options).run();
}

DiagnoseOptions diagnose_options(Config& config, const std::string& as) {
    DiagnoseOptions options;
    const Precision own = config.trainer.resolved_precision();
    require_precisions(config.trainer, resolve_device(config.trainer.device));
    if (!as.empty()) {
        const std::vector<Dtype> formats = parse_formats(as);
        check<UsageError>(formats.size() == 1, "--as {}: one format at a time; for FP8 say e4m3 or e5m2", as);
        options.format = formats[0];
    } else if (is_sixteen_bit(own.compute_dtype())) {
        options.format = own.compute_dtype();
    }
    options.replays = is_sixteen_bit(options.format);
    if (own.compute_dtype() == options.format)
        options.candidate = own;
    else
        options.candidate = Precision::parse(options.format == Dtype::f16 ? "16-mixed" : "bf16-mixed");
    options.scale = config.scaler.enabled ? config.scaler.init_scale : 1.0;
    options.scaling = scaling_of(config.scaler);
    options.freeze = config.trainer.freeze;
    config.trainer.precision = kFullPrecision.name();
    config.trainer.amp_level = "auto";
    config.trainer.precision_schedule.clear();  // one that begins at step 0 would be the precision
    config.trainer.recompute = "none";          // the same numbers, and every op runs once
    return options;
}

}  // namespace invar
