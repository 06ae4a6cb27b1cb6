#include "invar/diagnose/probe_diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/diagnose/concerns.h"

namespace invar {

namespace {

std::size_t place_of(Dtype format) {
    return std::size_t(std::find(kProbeFormats.begin(), kProbeFormats.end(), format) - kProbeFormats.begin());
}

Direction direction_of(ProbeKind kind) {
    return kind == ProbeKind::output_grad || kind == ProbeKind::weight_grad ? Direction::backward : Direction::forward;
}

// Whether the tensor is held in the format: what autocast casts, and what follows from that; in FP8 the operands of
// products alone.
bool counts(const ProbeTensor& t, AutocastRule rule, Dtype format) {
    if (t.module.empty() || t.kind == ProbeKind::weight_grad) return false;  // which bound the loss scale alone
    if (size_of(format) == 1) return rule == AutocastRule::low && t.kind != ProbeKind::output;
    return rule == AutocastRule::low || (rule == AutocastRule::follows && t.kind != ProbeKind::input);
}

// Whether autocast makes the gradients of its weights in its own format, before they are widened to that of the
// weights.
bool casts_weights(const std::string& class_name) {
    return autocast_rule(class_name) == AutocastRule::low || class_name == "PReLU";
}

// Whether any feature is not the same in all rows.
bool varies(const ProbeTensor& t) {
    for (std::size_t i = std::size_t(t.features); i < t.sample.size(); ++i)
        if (t.sample[i] != t.sample[i - std::size_t(t.features)]) return true;
    return false;
}

// Whether gradients that are all zero may be so for want of range: where all of them are, or others are next to it.
// Alone, a gradient of zeros may be meant: a branch that begins at zero has none.
bool gradients_vanish(const ProbeStep& step) {
    bool any = false, all_zero = true;
    for (const ProbeTensor& t : step.tensors) {
        if (t.kind != ProbeKind::output_grad || t.dtype != Dtype::f16) continue;
        if (judge({&t.tally, {}, 1, t.dtype}, t.dtype).trouble == Trouble::underflow) return true;
        any = true, all_zero = all_zero && t.tally.zeros == t.tally.values;
    }
    return any && all_zero;
}

// Exponents moved by a power of two; what leaves the histogram stays in its first or last place.
Tally moved(const Tally& tally, int by) {
    Tally result = tally;
    result.exponents.fill(0);
    for (int i = 0; i < int(tally.exponents.size()); ++i)
        result.exponents[std::size_t(std::clamp(i + by, 0, 254))] += tally.exponents[std::size_t(i)];
    result.largest = std::ldexp(tally.largest, by), result.smallest = std::ldexp(tally.smallest, by);
    return result;
}

class Reading {
  public:
    Reading(const Probe& probe, std::optional<Dtype> as, int steps);
    ProbeDiagnosis conclude();

  private:
    void read(const ProbeStep& step);
    void read_weight_gradient(const ProbeTensor& t);
    void judge_gradients();
    void add_concerns();
    void add_concern(const ProbeRow& row);
    ProbeRow& row_of(const ProbeTensor& t);

    ProbeDiagnosis d_;
    std::optional<Dtype> own_;  // the run's low format
    bool autocast_ = false;
    Tally gradients_{0};                    // unscaled, of what modules that autocast does not keep in FP32 have made
    Tally weight_gradients_{0};             // unscaled, of weights that autocast casts, but for biases
    double largest_weight_gradient_ = 0.0;  // with biases
    // Gradients wait until the scale is known at which they are judged.
    struct Waiting {
        ProbeTensor tensor;
        int scale = 0;
        bool should_vary = false;
    };
    std::vector<Waiting> waiting_;
};

Reading::Reading(const Probe& probe, std::optional<Dtype> as, int steps) {
    check<UsageError>(steps >= 1, "--steps {}: must be at least 1", steps);
    d_.title = probe.title();
    const std::size_t first = probe.lines.size() > std::size_t(steps) ? probe.lines.size() - std::size_t(steps) : 0;
    for (std::size_t i = 0; i < probe.lines.size(); ++i) {
        if (i < first && !probe.lines[i].failed) continue;
        try {
            read(probe.load(probe.lines[i]));
        } catch (const IoError& error) {
            if (probe.lines[i].failed) throw;  // what the others say would not tell why it did
            d_.passed_over.emplace_back(error.what());
        }
    }
    if (d_.steps.empty()) fail<IoError>("{}", d_.passed_over.back());
    d_.format = as ? *as : own_.value_or(Dtype::f16);
    d_.ran_in = fmt::format("{}{}", autocast_ ? "autocast " : "", name_of(own_.value_or(Dtype::f32)));
    d_.ran_fp16 = own_ == Dtype::f16;
}

ProbeRow& Reading::row_of(const ProbeTensor& t) {
    const Direction direction = direction_of(t.kind);
    const auto same = [&](const ProbeRow& row) { return row.direction == direction && row.module == t.module; };
    const auto known = std::find_if(d_.rows.begin(), d_.rows.end(), same);
    if (known != d_.rows.end()) return *known;
    ProbeRow row;
    row.module = t.module, row.class_name = t.class_name, row.direction = direction;
    row.rule = autocast_rule(t.class_name);
    row.tally = Tally(0);
    d_.rows.push_back(std::move(row));
    return d_.rows.back();
}

void Reading::read(const ProbeStep& step) {
    d_.steps.push_back(step.step);
    d_.run_scale = step.scale, d_.skips = std::max(d_.skips, step.skips);
    if (step.autocast) own_ = step.autocast, autocast_ = true;
    // Infinities that harm nothing, such as masks of minus infinity, are no finding; nor is a scale that was too large
    // for a scaler's step.
    std::optional<ProbeFinding> finding = step.failed ? find_first_bad(step) : std::nullopt;
    const bool scaler_dealt_with_it = finding && finding->blame == Blame::loss_scale && step.skipped;
    if (scaler_dealt_with_it)
        ++d_.overflows;
    else if (!d_.finding)
        d_.finding = std::move(finding);
    std::set<std::string> varying;  // modules that are given something that varies
    for (const ProbeTensor& t : step.tensors)
        if (t.kind == ProbeKind::input && varies(t)) varying.insert(t.module);
    const bool vanishing = gradients_vanish(step);
    for (const ProbeTensor& t : step.tensors) {
        const AutocastRule rule = autocast_rule(t.class_name);
        if (t.kind == ProbeKind::weight_grad && !scaler_dealt_with_it) read_weight_gradient(t);
        if (t.module.empty() || t.kind == ProbeKind::weight_grad) continue;
        if (t.kind == ProbeKind::weight && rule != AutocastRule::low) continue;
        if (t.kind == ProbeKind::output_grad && scaler_dealt_with_it) continue;
        ProbeRow& row = row_of(t);
        if (t.kind == ProbeKind::output || t.kind == ProbeKind::output_grad) row.ran_in = t.dtype;
        if (!own_ && is_sixteen_bit(t.dtype)) own_ = t.dtype;  // without autocast: model.half()
        if (t.kind == ProbeKind::output_grad) {
            const int scale = std::ilogb(step.scale);
            const Tally unscaled = moved(t.tally, -scale);
            row.tally.add(unscaled);
            if (rule == AutocastRule::fp32) continue;
            gradients_.add(unscaled);
            waiting_.push_back({t, scale, vanishing});
            continue;
        }
        row.tally.add(t.tally);
        Tally tally = t.tally;
        if (t.kind == ProbeKind::input && !step.failed) tally.infinities = 0;
        const bool should_vary = t.kind == ProbeKind::output && varying.contains(t.module);
        for (std::size_t i = 0; i < kProbeFormats.size(); ++i)
            if (counts(t, rule, kProbeFormats[i]))
                row.verdicts[i].take_worse(
                    judge({&tally, t.sample, t.features, t.dtype, should_vary}, kProbeFormats[i]));
    }
}

// A bias before a norm, or of keys in attention, has a gradient of zero but for rounding: it can overflow as any other,
// but no scale need keep it from vanishing.
void Reading::read_weight_gradient(const ProbeTensor& t) {
    if (!casts_weights(t.class_name)) return;
    if (t.tally.counted() > 0 && t.tally.largest > largest_weight_gradient_) {
        largest_weight_gradient_ = t.tally.largest;
        d_.largest_weight_gradient = t.module.empty() ? t.index : t.module + "." + t.index;
    }
    if (t.index.find("bias") == t.index.npos) weight_gradients_.add(t.tally);
}

// FP16 at the scale that would be used: the run's own where it was FP16, since zeros that came of it are not seen.
void Reading::judge_gradients() {
    // Apart, so that many of the one kind do not hide what becomes of the other.
    const ScaleRange of_results = scale_range(gradients_, Dtype::f16);
    Tally weights = weight_gradients_;
    weights.largest = std::max(weights.largest, largest_weight_gradient_);
    d_.scale = scale_for_both(gradients_, weights, Dtype::f16);
    d_.weights_bound_scale = d_.scale.any_gradients && (!of_results.any_gradients || d_.scale.most < of_results.most);
    d_.vanish_unscaled = std::max(vanishing_share(gradients_, Dtype::f16, 0), vanishing_share(weights, Dtype::f16, 0));
    for (const Waiting& waiting : waiting_) {
        const ProbeTensor& t = waiting.tensor;
        ProbeRow& row = row_of(t);
        for (std::size_t i = 0; i < kProbeFormats.size(); ++i) {
            const Dtype format = kProbeFormats[i];
            if (!counts(t, row.rule, format)) continue;
            const bool own = t.dtype == format;
            const int shift = own ? 0 : format == Dtype::f16 ? d_.scale.recommended - waiting.scale : -waiting.scale;
            // Digits are what a loss scale does not touch; gradients of a mean may well be all alike.
            row.verdicts[i].take_worse(judge({&t.tally, {}, 1, t.dtype, waiting.should_vary}, format, shift));
        }
    }
}

void Reading::add_concern(const ProbeRow& row) {
    const FormatVerdict& verdict = d_.verdict(row);
    const std::string_view format = name_of(d_.format);
    const std::string share = verdict.share < 0.005 ? "some" : fmt::format("{:.0f}%", 100 * verdict.share);
    const std::string where = printable(row.module);
    ProbeConcern c{verdict.trouble, row.direction, row.module, ""};
    if (verdict.trouble == Trouble::significance) {
        c.text =
            fmt::format("{}: {} of its features vary by less than rounding to {} moves them", where, share, format);
    } else if (row.direction == Direction::forward) {
        c.text = fmt::format("{}: {} of a tensor {} in {}", where, share,
                             verdict.trouble == Trouble::overflow ? "overflows" : "vanishes or is about to", format);
    } else {
        const bool own = row.ran_in == d_.format;
        const std::string at = d_.format != Dtype::f16 ? ""
                               : own                   ? fmt::format(" at the run's loss scale {:g}", d_.run_scale)
                                     : fmt::format(" at the best loss scale, 2^{}", d_.scale.recommended);
        c.text = fmt::format("{}: {} of its gradients {} in {}{}", where, share,
                             verdict.trouble == Trouble::overflow ? "overflow" : "vanish or are about to", format, at);
    }
    d_.concerns.push_back(std::move(c));
}

void Reading::add_concerns() {
    for (const ProbeRow& row : d_.rows) {
        const Trouble trouble = d_.verdict(row).trouble;
        if (trouble == Trouble::none) continue;
        const bool said = std::any_of(d_.concerns.begin(), d_.concerns.end(), [&](const ProbeConcern& c) {
            return c.trouble == trouble && c.direction == row.direction;
        });
        if (!said) add_concern(row);
        // A loss scale mends gradients that were too small for the run's own.
        const bool by_scale =
            row.direction == Direction::backward && row.ran_in == d_.format && d_.format == Dtype::f16;
        const bool known = std::find(d_.keep_fp32.begin(), d_.keep_fp32.end(), row.module) != d_.keep_fp32.end();
        if (!by_scale && !known && row.rule == AutocastRule::low) d_.keep_fp32.push_back(row.module);
    }
    if (!d_.finding || d_.finding->blame != Blame::precision || !d_.finding->in_module) return;
    if (std::find(d_.keep_fp32.begin(), d_.keep_fp32.end(), d_.finding->module) == d_.keep_fp32.end())
        d_.keep_fp32.push_back(d_.finding->module);
}

ProbeDiagnosis Reading::conclude() {
    judge_gradients();
    std::stable_partition(d_.rows.begin(), d_.rows.end(),
                          [](const ProbeRow& row) { return row.direction == Direction::forward; });
    add_concerns();
    return std::move(d_);
}

}  // namespace

AutocastRule autocast_rule(const std::string& class_name) {
    const auto is_any = [&](std::initializer_list<std::string_view> names) {
        return std::find(names.begin(), names.end(), class_name) != names.end();
    };
    if (class_name.ends_with("Loss") ||
        is_any({"LayerNorm", "GroupNorm", "RMSNorm", "Softmax", "Softmax2d", "LogSoftmax", "Softmin", "Softplus",
                "CosineSimilarity", "PairwiseDistance", "Embedding", "EmbeddingBag"}))
        return AutocastRule::fp32;
    if (class_name.starts_with("Dropout") || class_name.find("Pool") != class_name.npos ||
        class_name.starts_with("BatchNorm") || class_name.starts_with("InstanceNorm") ||
        class_name.starts_with("Upsampl") || class_name.find("Pad") != class_name.npos ||
        is_any({"ReLU",         "ReLU6",      "LeakyReLU", "PReLU",          "ELU",          "SELU",     "CELU",
                "GELU",         "SiLU",       "Mish",      "Tanh",           "Sigmoid",      "Hardtanh", "Hardswish",
                "Hardsigmoid",  "LogSigmoid", "Identity",  "Flatten",        "Unflatten",    "GLU",      "AlphaDropout",
                "PixelShuffle", "Fold",       "Unfold",    "ChannelShuffle", "SyncBatchNorm"}))
        return AutocastRule::follows;
    return AutocastRule::low;
}

const FormatVerdict& ProbeDiagnosis::verdict(const ProbeRow& row) const {
    return row.verdicts[place_of(format)];
}

ProbeDiagnosis diagnose_probe(const Probe& probe, std::optional<Dtype> as, int steps) {
    return Reading(probe, as, steps).conclude();
}

}  // namespace invar
