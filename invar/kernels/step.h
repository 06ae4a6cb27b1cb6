// What one optimizer step needs to know, as plain data that can live on the device: loss scale, overflow, gradient
// norm, clip factor, learning rate. The decisions are made here, once, for every device; nobody waits for the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "invar/core/formats.h"

namespace invar {

struct ScalerSpec {
    bool enabled = false;
    bool dynamic = true;
    double growth_factor = 2.0;  // as in PyTorch, the scale is FP32 and its factors are not: products are rounded once
    double backoff_factor = 0.5;
    std::int32_t growth_interval = 2000;
    float min_scale = 0.0f;               // 0: no floor but the smallest scale that has a finite reciprocal
    float max_scale = 0.0f;               // 0: no ceiling but finite FP32
    std::int32_t hysteresis = 1;          // overflows it takes until the scale backs off
    bool consecutive_hysteresis = false;  // every clean step refills the hysteresis, not growth alone
    bool operator==(const ScalerSpec&) const = default;
};

struct ClipSpec {
    enum class Kind : std::uint8_t { none, norm, value };
    Kind kind = Kind::none;
    float limit = 0.0f;
    bool operator==(const ClipSpec&) const = default;
};

// The learning rate over the steps that were taken; a skipped step does not advance it.
struct ScheduleSpec {
    enum class Kind : std::uint8_t { constant, step, cosine, one_cycle, curve };
    Kind kind = Kind::constant;
    std::int64_t warmup_steps = 0;    // linear from 1/(warmup+1) of the rate
    std::int64_t total_steps = 0;     // cosine and one_cycle: where they end
    std::int64_t step_size = 1;       // step: every so many steps ...
    double gamma = 0.1;               // ... times gamma
    double final_factor = 0.0;        // cosine: where it ends, as a share of the rate
    double start_div = 25.0;          // one_cycle: starts at rate / start_div ...
    double final_div = 1e4;           // ... and ends at that start / final_div
    double rise = 0.3;                // one_cycle: share of steps spent rising
    const double* factors = nullptr;  // curve: from the first step after the rise to the last, evenly spread ...
    std::int64_t points = 0;          // ... so many, where the optimizer's state is
    bool operator==(const ScheduleSpec&) const = default;

    // The factor on the base learning rate for the step after `taken` steps.
    INVAR_HD double factor(std::int64_t taken) const {
        if (taken < warmup_steps) return double(taken + 1) / double(warmup_steps + 1);
        const std::int64_t t = taken - warmup_steps;
        const std::int64_t total = total_steps > warmup_steps ? total_steps - warmup_steps : 1;
        switch (kind) {
            case Kind::constant:
                return 1.0;
            case Kind::step:
                return std::pow(gamma, double(t / (step_size > 0 ? step_size : 1)));
            case Kind::cosine:
                return anneal(1.0, final_factor, share(t, total));
            case Kind::curve:
                return on_curve(t, total);
            case Kind::one_cycle:
                break;
        }
        // As PyTorch, which counts steps from 0: a rise of one step or less begins at the start or past the peak.
        const double peak = rise * double(total) - 1.0, last = double(total) - 1.0;
        const double start = 1.0 / start_div, now = double(t);
        if (now <= peak) return anneal(start, 1.0, peak > 0.0 ? now / peak : 0.0);
        return anneal(1.0, start / final_div, now < last ? (now - peak) / (last - peak) : 1.0);
    }

  private:
    static INVAR_HD double share(std::int64_t t, std::int64_t total) {
        return t < total ? double(t) / double(total) : 1.0;
    }
    INVAR_HD double on_curve(std::int64_t t, std::int64_t total) const {
        if (points <= 0) return 1.0;
        const double last = double(points - 1);
        const double at =
            t < total - 1 ? double(t) * last / double(total - 1) : last;  // whole where there is one a step
        const std::int64_t left = std::int64_t(at), right = left < points - 1 ? left + 1 : left;
        const double near = at - double(left);
        return near == 0.0 ? factors[left] : factors[left] + near * (factors[right] - factors[left]);
    }
    static INVAR_HD double anneal(double from, double to, double share) {
        return to + (from - to) * 0.5 * (1.0 + std::cos(3.14159265358979323846 * share));
    }
};

// The loss scale and what moves it; owned by the scaler, shared by the optimizers it serves.
struct ScaleState {
    float scale = 1.0f;
    std::int32_t growth_tracker = 0;
    std::int32_t hysteresis_left = 1;
    std::int32_t found_inf = 0;  // some optimizer's gradients were not finite since the last update
    std::int32_t at_floor = 0;   // the scale wanted to fall below its floor
    std::int64_t growths = 0;
    std::int64_t backoffs = 0;
};

// One optimizer's steps: counts, what was found in the gradients, and what was decided for the step at hand.
struct StepState {
    // carried from step to step
    std::int64_t taken = 0;    // steps that changed the weights
    std::int64_t skipped = 0;  // steps whose gradients or loss were not finite
    std::int64_t skipped_in_a_row = 0;
    std::int32_t found_inf = 0;  // an explicit unscale met a value that is not finite; kept until the step
    std::int32_t halted = 0;     // nothing is changed until the host has decided how to go on; see HaltSpec
    // found in the gradients, as they were, and in the loss: what those who train together have to agree on
    double sum_squares = 0.0;
    double max_abs = 0.0;
    std::int64_t nonfinite = 0;
    std::int64_t first_nonfinite = -1;  // where the first of them lies; -1: there is none
    std::int32_t bad_loss = 0;          // the loss was not finite, whatever the gradients are
    std::int32_t bad_rank = -1;         // of those who train together, whose loss or gradient that was; -1: not known
    // decided
    float unscale = 1.0f;     // what each gradient is multiplied by: 1/scale, times the norm's clip factor
    float clip_value = 0.0f;  // 0: none
    float grad_norm = 0.0f;   // of the unscaled gradients, before clipping
    double lr_factor = 1.0;
    std::int32_t skip = 0;
};

INVAR_HD inline bool is_finite(double value) {
    return std::fabs(value) <= 1.797693134862315708e308;
}

// Turns what grad_stats found into the decisions. `gradients_scale` is what the gradients are still multiplied by; a
// loss that is not finite stops the step even where the gradients are: zeros and clamps hide where it came from.
INVAR_HD inline void plan_step(StepState& s, float gradients_scale, const ClipSpec& clip,
                               const ScheduleSpec& schedule) {
    const double inverse = 1.0 / double(gradients_scale);
    const double norm = std::sqrt(s.sum_squares) * inverse;
    s.grad_norm = float(norm);
    s.skip = s.nonfinite > 0 || s.found_inf || s.bad_loss || s.halted;
    double factor = inverse;
    if (clip.kind == ClipSpec::Kind::norm) {
        const double shrink = double(clip.limit) / (norm + 1e-6);
        if (shrink < 1.0) factor *= shrink;
    }
    s.unscale = float(factor);
    s.clip_value = clip.kind == ClipSpec::Kind::value ? clip.limit : 0.0f;
    s.lr_factor = schedule.factor(s.taken);
}

// After the step: counts it, and tells the scaler, where there is one.
INVAR_HD inline void finish_step(StepState& s, ScaleState* scale) {
    if (s.skip) {
        ++s.skipped;
        ++s.skipped_in_a_row;
        if (scale != nullptr) scale->found_inf = 1;
    } else {
        ++s.taken;
        s.skipped_in_a_row = 0;
    }
    s.found_inf = 0;
}

// Moves the loss scale after all optimizers have stepped.
INVAR_HD inline void update_scale(ScaleState& s, const ScalerSpec& spec) {
    const bool overflow = s.found_inf;
    s.found_inf = 0;
    if (!spec.dynamic) return;
    if (overflow) {
        s.growth_tracker = 0;
        if (--s.hysteresis_left > 0) return;
        s.hysteresis_left = 1;  // used up: every further overflow backs off, until growth refills it
        const float lowered = float(double(s.scale) * spec.backoff_factor);
        const float floor =
            spec.min_scale > 1.17549435e-38f ? spec.min_scale : 1.17549435e-38f;  // at 0, 0/0 would reach the weights
        s.at_floor = lowered < floor;
        s.scale = s.at_floor ? floor : lowered;
        ++s.backoffs;
        return;
    }
    s.at_floor = 0;
    if (spec.consecutive_hysteresis) s.hysteresis_left = spec.hysteresis;
    if (++s.growth_tracker < spec.growth_interval) return;
    s.growth_tracker = 0;
    s.hysteresis_left = spec.hysteresis;
    const float raised = float(double(s.scale) * spec.growth_factor);
    const float ceiling = spec.max_scale > 0.0f ? spec.max_scale : 3.402823466e38f;
    if (raised <= ceiling) s.scale = raised, ++s.growths;
}

// What a step has to say to the host, which reads it when it likes.
struct StepReport {
    std::uint64_t sequence = 0;  // of the step, from 1; written last, so that who sees it sees the rest
    double loss = 0.0;
    std::uint64_t ended_ns = 0;  // by the device's own clock: the host may hear of several steps at once
    StepState step;
    ScaleState scale;
};

// After what no further step is taken until the host, which may be many steps ahead, has decided how to go on: weights,
// moments and scale wait for it as that step left them.
struct HaltSpec {
    bool bad_loss = false;  // a loss that is NaN or Inf
    bool scale_floor = false;
    std::int64_t streak = 0;  // so many skipped steps in a row; 0: never

    INVAR_HD bool met(double loss, const StepState& step, const ScaleState* scale) const {
        return (bad_loss && !is_finite(loss)) || (scale_floor && scale != nullptr && scale->at_floor) ||
               (streak > 0 && step.skipped_in_a_row >= streak);
    }
};

// Where reports go, one after the other and round again: host memory that the device writes while the host reads.
struct ReportSlots {
    StepReport* slots = nullptr;  // nullptr: nobody asks
    std::uint64_t count = 0;
    std::uint64_t* written = nullptr;  // the device's own count of reports
    HaltSpec halt;
};

// The end of a step: counts it, tells the scaler, moves the scale, reports. What is absent is left out.
struct StepEnd {
    StepState* state = nullptr;
    ScaleState* scale = nullptr;
    bool updates_scale = false;
    ScalerSpec scaler;
    ReportSlots reports;
};

// Does all of that but write the sequence number, which comes after the rest has arrived: returns where, or nullptr.
INVAR_HD inline StepReport* conclude_step(const StepEnd& end, double loss, std::uint64_t now_ns) {
    if (end.state == nullptr || !end.state->halted) {
        if (end.state != nullptr) finish_step(*end.state, end.scale);
        if (end.updates_scale) update_scale(*end.scale, end.scaler);
        if (end.state != nullptr) end.state->halted = end.reports.halt.met(loss, *end.state, end.scale);
    }
    if (end.reports.slots == nullptr) return nullptr;
    StepReport* const report = end.reports.slots + (*end.reports.written)++ % end.reports.count;
    report->loss = loss;
    report->ended_ns = now_ns;
    if (end.state != nullptr) report->step = *end.state;
    if (end.scale != nullptr) report->scale = *end.scale;
    return report;
}

// One group of parameters with its own rates. In double, as people write them: 1 - beta2 of a beta2 that was rounded to
// FP32 is wrong in its fifth digit. What the elements need is worked out from them and rounded once (update.h).
struct OptimizerSpec {
    enum class Kind : std::uint8_t { sgd, adam, adamw };
    Kind kind = Kind::adamw;
    double lr = 1e-3;
    double weight_decay = 0.0;
    double momentum = 0.0;
    bool nesterov = false;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    bool operator==(const OptimizerSpec&) const = default;
};

// An exponential moving average of the weights over the steps that were taken; a skipped step does not move it.
struct AverageSpec {
    double decay = 0.999;    // the share of itself that it keeps
    bool warmup = false;     // less at first: (1 + n) / (10 + n) after n steps, as long as that is below
    std::int64_t since = 0;  // how many steps had been taken when it began
    bool operator==(const AverageSpec&) const = default;

    // The share of the new weights, when so many steps have been taken. The first ones are taken as they are.
    INVAR_HD double share(std::int64_t taken) const {
        const double n = double(taken - since - 1), rising = (1.0 + n) / (10.0 + n);
        if (n <= 0.0) return 1.0;
        return 1.0 - (warmup && rising < decay ? rising : decay);
    }
};

}  // namespace invar
