#include "invar/diagnose/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/diagnose/instruments.h"

namespace invar {

namespace {

// A module whose gradients are this small beside all others' is measured against that, not against next to nothing.
constexpr double kFloor = 0.01;
constexpr double kScaleStep = 16.0;
constexpr std::uint64_t kCountersAGroup = std::uint64_t(1) << 32;

struct Sums {
    double difference = 0.0, full = 0.0;  // squares
};

class Search {
  public:
    Search(Setup& setup, const TuneOptions& options);
    Tuning run();

  private:
    using Set = std::vector<std::size_t>;  // of units_, ascending
    void find_units();
    GradientError error_with(const Set& kept);
    bool good(const Set& kept);
    Set smallest(Set kept);
    Set opened(Set kept);
    bool mend_scaling(const GradientError& before);
    std::vector<double> gradients() const;

    Setup& setup_;
    TuneOptions o_;
    std::vector<std::vector<Batch>> groups_;
    std::vector<StepStart> starts_;
    std::vector<std::vector<double>> full_;  // FP32's gradients, by group
    std::vector<std::pair<std::string, Module*>> units_;
    std::map<Set, GradientError> known_;
    int trials_ = 0;
};

Search::Search(Setup& setup, const TuneOptions& options) : setup_(setup), o_(options) {
    if (!o_.loss) o_.loss = setup.loss;
    check<UsageError>(o_.batches >= 1, "--batches {}: must be at least 1", o_.batches);
    check<UsageError>(o_.target.error > 0 && o_.target.cosine < 1,
                      "--target: the error must be above 0 and the cosine below 1");
    std::int64_t epoch = 0;
    setup.train_data->start_epoch(epoch);
    while (int(groups_.size()) < o_.batches) {
        std::vector<Batch> group = setup.next_group();
        if (group.empty())
            setup.train_data->start_epoch(++epoch);
        else
            groups_.push_back(std::move(group));
    }
    RngState rng = default_generator().state();
    for (const std::vector<Batch>& group : groups_) {
        starts_.push_back({group, rng});
        rng.offset += kCountersAGroup;
        const Replayed full =
            replay(*setup.model, *setup.optimizer, starts_.back(), {kFullPrecision, 1.0, false, o_.loss, nullptr});
        check(full.finite, "FP32 itself gives NaN or Inf on this data (loss {:g}); `{} diagnose` tells where",
              full.loss, program_name());
        full_.push_back(gradients());
    }
    find_units();
}

std::vector<double> Search::gradients() const {
    std::vector<double> all;
    const ParameterStore& store = setup_.optimizer->store();
    const Tensor gradients = store.gradients();
    for (const Segment& place : store.places())
        for (const double value : gradients.window(place.begin, {place.count}).to_vector<double>())
            all.push_back(value);
    return all;
}

// Modules that compute something in low precision; the others have nothing to keep.
void Search::find_units() {
    FormatMap map;
    replay(*setup_.model, *setup_.optimizer, starts_[0], {o_.candidate, 1.0, true, o_.loss, &map});
    std::set<std::string> low;
    for (const FormatMap::Op& op : map.ops)
        if (op.result || std::find(op.inputs.begin(), op.inputs.end(), true) != op.inputs.end()) low.insert(op.module);
    for (const auto& [path, module] : setup_.model->modules())
        if (!path.empty() && low.contains(path) && !module->precision()) units_.emplace_back(path, module);
}

GradientError Search::error_with(const Set& kept) {
    if (const auto found = known_.find(kept); found != known_.end()) return found->second;
    for (const std::size_t unit : kept) units_[unit].second->set_precision(kFullPrecision);
    ++trials_;
    GradientError error;
    std::map<std::string, Sums> modules;
    Sums total;
    double dot = 0.0, low_square = 0.0, scale = o_.candidate.needs_scaler() ? o_.scale : 1.0;
    for (std::size_t g = 0; g < starts_.size() && error.finite; ++g) {
        const auto attempt = [&] {
            return replay(*setup_.model, *setup_.optimizer, starts_[g], {o_.candidate, scale, true, o_.loss, nullptr})
                .finite;
        };
        error.finite = attempt();
        while (!error.finite && scale > 1 && o_.scaling == Scaling::moving) {
            scale = std::max(1.0, scale / kScaleStep);
            error.finite = attempt();
        }
        const std::vector<double> low = gradients();
        std::size_t at = 0;
        for (const Parameter* parameter : setup_.optimizer->store().parameters()) {
            Sums& sums = modules[module_of(parameter->name)];
            for (std::int64_t i = 0; i < parameter->value.numel(); ++i, ++at) {
                const double a = low[at] / scale, b = full_[g][at];
                sums.difference += (a - b) * (a - b), sums.full += b * b;
                dot += a * b, low_square += a * a;
            }
        }
    }
    for (const std::size_t unit : kept) units_[unit].second->set_precision({});
    for (const auto& [name, sums] : modules) total.difference += sums.difference, total.full += sums.full;
    const double floor = kFloor * kFloor * total.full / double(std::max<std::size_t>(1, modules.size()));
    const auto relative = [](double difference, double full) {
        return difference == 0 ? 0.0
               : full > 0      ? std::sqrt(difference / full)
                               : std::numeric_limits<double>::infinity();
    };
    error.overall = relative(total.difference, total.full);
    error.cosine = low_square > 0 && total.full > 0 ? dot / std::sqrt(low_square * total.full)
                   : low_square == total.full       ? 1.0  // nothing against nothing
                                                    : 0.0;
    for (const auto& [name, sums] : modules) {
        const double own = relative(sums.difference, std::max(sums.full, floor));
        if (own > error.worst) error.worst = own, error.worst_module = name;
    }
    known_.emplace(kept, error);
    if (o_.progress) o_.progress(trials_);
    return error;
}

bool Search::good(const Set& kept) {
    return o_.target.met(error_with(kept));
}

// Delta debugging: halves first, then finer parts and what is left without each, until taking away any single module
// breaks the target.
Search::Set Search::smallest(Set kept) {
    std::size_t parts = 2;
    while (kept.size() > 1) {
        parts = std::min(parts, kept.size());
        bool smaller = false;
        for (int without = 0; without < 2 && !smaller; ++without) {
            if (without == 1 && parts == 2) continue;  // the complement of a half is the other half
            for (std::size_t p = 0; p < parts && !smaller; ++p) {
                const std::size_t begin = p * kept.size() / parts, end = (p + 1) * kept.size() / parts;
                Set trial;
                for (std::size_t i = 0; i < kept.size(); ++i)
                    if ((i >= begin && i < end) != (without == 1)) trial.push_back(kept[i]);
                if (trial.empty() || !good(trial)) continue;
                kept = std::move(trial);
                parts = without == 1 ? std::max<std::size_t>(2, parts - 1) : 2;
                smaller = true;
            }
        }
        if (smaller) continue;
        if (parts >= kept.size()) break;
        parts *= 2;
    }
    return kept;
}

// A module that holds others keeps all of them: those are tried in its place, and reduced again.
Search::Set Search::opened(Set kept) {
    for (std::size_t i = 0; i < kept.size();) {
        const std::string inside = units_[kept[i]].first + ".";
        std::set<std::size_t> trial(kept.begin(), kept.end());
        trial.erase(kept[i]);
        for (std::size_t unit = 0; unit < units_.size(); ++unit)
            if (units_[unit].first.starts_with(inside)) trial.insert(unit);
        const Set parts(trial.begin(), trial.end());
        if (parts.size() < kept.size() || !good(parts)) {  // it holds none, or they alone do not serve
            ++i;
            continue;
        }
        kept = smallest(parts);
        i = 0;
    }
    return kept;
}

// Whether a scale that moves brings the gradients nearer to FP32's than the run's own, which does not; it is then kept.
bool Search::mend_scaling(const GradientError& before) {
    constexpr double kNearer = 0.9;
    if (o_.scaling == Scaling::moving || !o_.candidate.needs_scaler()) return false;
    const TuneOptions own = o_;
    o_.scaling = Scaling::moving;
    o_.scale = std::max(o_.scale, ScalerConfig{}.init_scale);
    known_.clear();
    const GradientError now = error_with({});
    if (now.finite && (!before.finite || now.worst < kNearer * before.worst)) return true;
    o_ = own;
    known_.clear();
    return false;
}

Tuning Search::run() {
    Tuning tuning;
    tuning.candidates = int(units_.size());
    Set kept;
    tuning.before = error_with({});
    tuning.met = o_.target.met(tuning.before);
    if (!tuning.met && mend_scaling(tuning.before)) {
        tuning.scaler = true;
        tuning.met = good({});
    }
    if (!tuning.met) {
        for (std::size_t i = 0; i < units_.size(); ++i) kept.push_back(i);
        tuning.met = good(kept);
        if (tuning.met) kept = opened(smallest(kept));
    }
    tuning.after = error_with(kept);
    for (const std::size_t unit : kept) tuning.modules.push_back(units_[unit].first);
    tuning.trials = trials_;
    return tuning;
}

}  // namespace

std::string Tuning::overrides() const {
    std::string text;
    for (const std::string& module : modules) text += fmt::format("{}{}: 32-true", text.empty() ? "" : ", ", module);
    return "{" + text + "}";
}

std::string Tuning::yaml() const {
    const std::string scaling = scaler ? "scaler:\n  enabled: true\n  dynamic: true\n" : "";
    if (modules.empty()) return scaler ? scaling : "trainer:\n  precision_overrides: {}\n";
    std::string text = scaling + "trainer:\n  precision_overrides:\n";
    // Names of blocks are numbers ("0"), which YAML would read as such.
    for (const std::string& module : modules) text += fmt::format("    \"{}\": 32-true\n", module);
    return text;
}

Tuning tune(Setup& setup, const TuneOptions& options) {
    return Search(setup, options).run();
}

}  // namespace invar
