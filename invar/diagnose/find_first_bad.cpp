// find_first_bad: from the first bad operation to who is to blame and what mends it. Whatever can be tried is tried, by
// replaying the step, rather than guessed.
#include "invar/diagnose/find_first_bad.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "invar/core/error.h"
#include "invar/diagnose/finding.h"
#include "invar/diagnose/first_bad.h"
#include "invar/diagnose/vanished.h"
#include "invar/train/low_precision.h"

namespace invar {

namespace {

constexpr std::size_t kMostModules = 8;  // that are named one by one

class Search {
  public:
    Search(Setup& setup, const StepStart& start, double scale, const LossFunction& loss)
        : setup_(setup), start_(start), scale_(scale), loss_(loss ? loss : setup.loss) {}
    Finding run();

  private:
    // The step again; false for `overrides` runs every module in `precision`.
    bool finite_in(const Precision& precision, double scale, bool overrides = true, OpWatcher* watcher = nullptr) {
        return replay(*setup_.model, *setup_.optimizer, start_, {precision, scale, overrides, loss_, watcher}).finite;
    }
    bool finite_with_modules_in_fp32(const std::vector<std::string>& paths, OpWatcher* watcher = nullptr);
    bool finite_with_those_that_fail_in_fp32(const std::string& first);
    std::string bad_sample() const;
    std::string bad_weight() const;
    Tensor master_of(const Tensor& tensor) const;
    std::string name_of_input(const Tensor& tensor, std::size_t i) const;
    void blame_scale();
    void blame_precision();
    void blame_model(const std::string& fp32_fails_at);
    void set_in_fp32(const InFp32& alone) {
        f_.op_tried = true, f_.op_finite = alone.finite, f_.op_largest = alone.largest;
    }
    void set_remedy(Remedy remedy, bool verified) { f_.remedy = std::move(remedy), f_.verified = verified; }
    double lower_rate() const { return setup_.optimizer->groups()[0].lr / 10; }

    Setup& setup_;
    const StepStart& start_;
    double scale_;
    LossFunction loss_;
    Finding f_;
};

std::string module_title(const std::string& path) {
    return path.empty() ? "the model itself" : path;
}

std::string Search::bad_sample() const {
    for (std::size_t b = 0; b < start_.group.size(); ++b) {
        const Batch& batch = start_.group[b];
        for (const auto& [name, tensor] : batch.tensors()) {
            if (!is_floating(tensor.dtype()) || all_finite(tensor)) continue;
            const std::vector<double> values = tensor.to_vector<double>();
            const std::size_t each =
                std::max<std::size_t>(1, values.size() / std::size_t(std::max<std::int64_t>(1, batch.size)));
            for (std::size_t i = 0; i < values.size(); ++i)
                if (!std::isfinite(values[i]))
                    return start_.group.size() > 1 ? fmt::format("sample {} of batch {} of the step", i / each, b)
                                                   : fmt::format("sample {} of the batch", i / each);
        }
    }
    return {};
}

std::string Search::bad_weight() const {
    for (const Parameter* parameter : setup_.optimizer->store().parameters())
        if (!all_finite(parameter->value)) return parameter->name;
    return {};
}

Tensor Search::master_of(const Tensor& tensor) const {
    for (const Parameter* parameter : setup_.optimizer->store().parameters()) {
        const Tensor shadow = parameter->value.shadow();
        if (shadow && shadow.raw() == tensor.raw() && shadow.shape() == tensor.shape()) return parameter->value;
    }
    return tensor;
}

std::string Search::name_of_input(const Tensor& tensor, std::size_t i) const {
    for (const Batch& batch : start_.group)
        for (const auto& [name, given] : batch.tensors())
            if (given.raw() == tensor.raw()) return name == "x" ? "batch" : fmt::format("{} of the batch", name);
    const Tensor master = master_of(tensor);
    for (const Parameter* parameter : setup_.optimizer->store().parameters())
        if (parameter->value.raw() == master.raw() && parameter->value.numel() > 0)
            return parameter->name + (master.same_as(tensor) ? "" : " (16-bit copy)");
    return fmt::format("input {}", i);
}

Finding Search::run() {
    FirstBad first;
    const bool finite = finite_in(setup_.precision, scale_, true, &first);
    if (finite) return {};
    f_.found = true;
    f_.scale = scale_;
    f_.direction = first.direction;
    f_.module = first.module, f_.op = first.op;
    f_.dtype = first.dtype;
    f_.result = first.result;
    if (!first.found) f_.direction = Direction::backward, f_.op = "sum of weight gradients";
    if (first.number) {
        FirstBad kept(first.number);
        finite_in(setup_.precision, scale_, true, &kept);
        for (std::size_t i = 0; i < kept.inputs.size(); ++i)
            if (kept.inputs[i]) f_.inputs.push_back(range_of(name_of_input(kept.inputs[i], i), kept.inputs[i]));
        if (kept.incoming && f_.direction == Direction::backward)
            f_.inputs.push_back(range_of("incoming gradient", kept.incoming));
        // Not the same on a device that adds in another order each time: then there is nothing to compare.
        if (kept.again && kept.found && kept.op == first.op && kept.direction == first.direction) {
            set_in_fp32(run_in_fp32(kept, [this](const Tensor& t) { return master_of(t); }));
        }
    } else if (first.summed) {
        FirstBad kept(first.summed);
        finite_in(setup_.precision, scale_, true, &kept);
        for (std::size_t i = 0; i < kept.parts.size(); ++i)
            f_.inputs.push_back(range_of(fmt::format("gradient {}", i), kept.parts[i]));
        if (kept.found && kept.op == first.op && kept.parts.size() > 1) set_in_fp32(sum_in_fp32(kept.parts));
    }
    FirstBad in_fp32;
    f_.step_finite = finite_in(kFullPrecision, 1.0, false, &in_fp32);

    if (const std::string sample = bad_sample(); !sample.empty()) {
        f_.blame = Blame::data;
        f_.explanation =
            fmt::format("{} holds NaN or Inf before anything is computed; the data has to be mended", sample);
    } else if (const std::string weight = bad_weight(); !weight.empty()) {
        f_.blame = Blame::weights;
        f_.explanation = fmt::format(
            "{} was not finite before this step: an earlier one spoilt it; resume from a checkpoint before that",
            weight);
        set_remedy(Remedy::of_learning_rate(lower_rate()), false);
    } else if (scale_ > 1 && finite_in(setup_.precision, 1.0)) {
        blame_scale();
    } else if (f_.step_finite) {
        blame_precision();
    } else {
        blame_model(in_fp32.found ? fmt::format("{} in {}, {}", in_fp32.op, module_title(in_fp32.module),
                                                name_of(in_fp32.direction))
                                  : "the sum of weight gradients");
    }
    return f_;
}

void Search::blame_scale() {
    int good = 0, bad = std::max(1, std::ilogb(scale_) + 1);  // exponents; the scale itself is bad
    if (std::exp2(bad - 1) == scale_) --bad;
    while (bad - good > 1) {
        const int middle = (good + bad) / 2;
        (finite_in(setup_.precision, std::exp2(middle)) ? good : bad) = middle;
    }
    f_.blame = Blame::loss_scale;
    f_.explanation = fmt::format(
        "all is finite when the loss is not scaled so far: at 2^{} the whole step is, at {:g} it overflows "
        "{}; "
        "a dynamic scaler (scaler.dynamic=true) finds this by itself and loses a step each time",
        good, scale_, name_of(f_.dtype));
    set_remedy(Remedy::of_init_scale(std::exp2(std::max(0, good - 1))), true);
}

bool Search::finite_with_modules_in_fp32(const std::vector<std::string>& paths, OpWatcher* watcher) {
    std::vector<std::pair<Module*, std::optional<Precision>>> changed;
    for (const auto& [path, module] : setup_.model->modules())
        for (const std::string& wanted : paths)
            if (path == wanted && !path.empty()) {
                changed.emplace_back(module, module->precision());
                module->set_precision(kFullPrecision);
            }
    // Where nothing would be left to compute in the precision asked for, another precision is the better advice.
    const bool finite = changed.size() == paths.size() && finite_in(setup_.precision, scale_, true, watcher) &&
                        computes_low(*setup_.model, setup_.precision);
    PrecisionOverrides overrides;
    for (const auto& [path, module] : setup_.model->modules())
        if (module->precision()) overrides.emplace_back(path, module->precision()->name());
    if (finite) set_remedy(Remedy::of_overrides(std::move(overrides)), true);
    for (const auto& [module, before] : changed) module->set_precision(before);
    return finite;
}

// Keeps this module in FP32, then the one that fails first all the same, and so on, as long as each is another one: two
// heads that overflow are two modules, not all that lies between them and the model itself.
bool Search::finite_with_those_that_fail_in_fp32(const std::string& first) {
    std::vector<std::string> paths = {first};
    while (paths.size() <= kMostModules) {
        FirstBad next;
        if (finite_with_modules_in_fp32(paths, &next)) return true;
        const auto overlaps = [&](const std::string& path) {
            return path == next.module || path.starts_with(next.module + ".") || next.module.starts_with(path + ".");
        };
        if (!next.found || next.module.empty() || std::ranges::any_of(paths, overlaps)) return false;
        paths.push_back(next.module);
    }
    return false;
}

void Search::blame_precision() {
    f_.blame = Blame::precision;
    std::vector<std::vector<std::string>> modules = {{f_.module}};
    if (f_.op_finite) {
        f_.explanation =
            fmt::format("in FP32 this operation gives at most {:.6g} on the same inputs, which {} cannot hold",
                        f_.op_largest, name_of(f_.dtype));
    } else {
        f_.explanation =
            f_.op_tried ? "FP32 fails on these inputs too, but computes better ones: the whole step is finite in it"
                        : "the whole step is finite in FP32";
        ZeroTrace low, full;
        finite_in(setup_.precision, scale_, true, &low);
        finite_in(kFullPrecision, 1.0, false, &full);
        if (const ZeroTrace::Entry* lost = first_vanished(low, full)) {
            f_.explanation += fmt::format("; values vanish first at {} in {}", lost->op, module_title(lost->module));
            modules = {{lost->module}, {f_.module}, {lost->module, f_.module}};
        }
    }
    for (const std::vector<std::string>& paths : modules)
        if (finite_with_modules_in_fp32(paths)) return;
    if (finite_with_those_that_fail_in_fp32(f_.module)) return;
    // Where what a module gives is read by the one that holds it, that one is needed as well.
    for (std::size_t dot = f_.module.rfind('.'); dot != std::string::npos; dot = f_.module.rfind('.', dot - 1))
        if (finite_with_modules_in_fp32({f_.module.substr(0, dot)})) return;
    for (const char* name : {"bf16-mixed", "32-true"}) {
        const Precision precision = Precision::parse(name);
        if (precision.name() == setup_.precision.name() || !finite_in(precision, 1.0)) continue;
        return set_remedy(Remedy::of_precision(name), true);
    }
    set_remedy(Remedy::of_precision("32-true"), false);
}

void Search::blame_model(const std::string& fp32_fails_at) {
    f_.blame = Blame::model;
    f_.explanation = f_.op_finite
                         ? fmt::format("FP32 survives this operation but not the step: it fails at {}", fp32_fails_at)
                         : fmt::format("FP32 fails on the same step at {}: no precision mends that", fp32_fails_at);
    f_.explanation +=
        "; either the weights have grown beyond reason, where a lower rate helps from an earlier checkpoint, or the "
        "model "
        "computes what no float can hold";
    set_remedy(Remedy::of_learning_rate(lower_rate()), false);
}

}  // namespace

Finding find_first_bad(Setup& setup, std::span<const Batch> group, RngState rng, double scale,
                       const LossFunction& loss) {
    check<UsageError>(!group.empty(), "find_first_bad: a step needs at least one batch");
    const StepStart start{group, rng};
    return Search(setup, start, scale, loss).run();
}

}  // namespace invar
