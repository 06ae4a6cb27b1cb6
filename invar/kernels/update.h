// The update rules of SGD, Adam and AdamW, element by element, once for every device: unscale, clip, decay, moments,
// step. PyTorch's formulas.
#pragma once

#include <cmath>
#include <type_traits>

#include "invar/kernels/step.h"

namespace invar {

// A running value that keeps the share `keep` of itself: an average, or SGD's momentum. A keep of 0.999 has 1 - 0.999
// right to four digits only in FP32, so what keeps much is moved by what it forgets, which is rounded from double. What
// keeps little is multiplied: a large value would swallow the digits of what takes its place.
struct Decayed {
    float keep, forget;
    float whole, lost;  // next = whole * value - lost * value + added: (1, forget), or (keep, 0)

    INVAR_HD void prepare(double share) {
        keep = float(share);
        forget = float(1.0 - share);
        whole = share < 0.5 ? keep : 1.0f;
        lost = share < 0.5 ? 0.0f : forget;
    }
    INVAR_HD float next(float value, float added) const {
        // Adam's second moment may overflow. It stays infinite then: infinity less infinity would be NaN.
        constexpr float kLargest = 3.402823466e38f;
        const float less = lost * value;
        return whole * value + (added - (kLargest < less ? kLargest : less));
    }
};

// What the elements of a group need, worked out once, in double, and rounded once. Elements are updated in FP32.
struct Update {
    OptimizerSpec::Kind kind;
    bool nesterov;
    bool first_step;  // SGD: momentum starts as the gradient
    float unscale, clip;
    float decay;          // AdamW: the share that the weight loses; otherwise the share of it added to the gradient
    float step_size;      // Adam: lr over the first bias correction
    float second_factor;  // Adam: one over the root of the second bias correction
    float eps;
    Decayed first, second;  // of SGD the first is the momentum

    // `missed`: how many of the steps that were taken these elements had no gradient for, and stood still.
    INVAR_HD void prepare(const OptimizerSpec& group, const StepState& state, std::int64_t missed) {
        kind = group.kind;
        nesterov = group.nesterov;
        unscale = state.unscale;
        clip = state.clip_value;
        const double lr = group.lr * state.lr_factor;
        const std::int64_t taken = state.taken - missed;
        first_step = taken == 0;
        const bool sgd = kind == OptimizerSpec::Kind::sgd, adamw = kind == OptimizerSpec::Kind::adamw;
        const double t = double(taken + 1);
        decay = float(adamw ? lr * group.weight_decay : group.weight_decay);
        step_size = float(sgd ? lr : lr / (1.0 - std::pow(group.beta1, t)));
        second_factor = float(1.0 / std::sqrt(1.0 - std::pow(group.beta2, t)));
        eps = float(group.eps);
        first.prepare(sgd ? group.momentum : group.beta1);
        second.prepare(group.beta2);
    }

    // `has_momentum`: m is kept from step to step.
    template <OptimizerSpec::Kind kKind>
    INVAR_HD void apply(float& w, float g, float& m, float& v, bool has_momentum) const {
        float d = g * unscale;
        if (clip > 0.0f) d = d > clip ? clip : d < -clip ? -clip : d;
        if constexpr (kKind == OptimizerSpec::Kind::sgd) {
            d += decay * w;
            if (has_momentum) {
                m = first_step ? d : first.next(m, d);
                d = nesterov ? d + first.keep * m : m;
            }
            w -= step_size * d;
        } else {
            if constexpr (kKind == OptimizerSpec::Kind::adam) d += decay * w;
            m = first.next(m, first.forget * d);
            v = second.next(v, second.forget * d * d);
            float step = step_size * m / (std::sqrt(v) * second_factor + eps);
            // Together, so that the weight is rounded once; times 1 - decay it would lose the digits of a small decay.
            if constexpr (kKind == OptimizerSpec::Kind::adamw) step += decay * w;
            w -= step;
        }
    }
    // The same where the kind is known only as it runs.
    INVAR_HD void apply(float& w, float g, float& m, float& v, bool has_momentum) const {
        using Kind = OptimizerSpec::Kind;
        if (kind == Kind::sgd) return apply<Kind::sgd>(w, g, m, v, has_momentum);
        if (kind == Kind::adamw) return apply<Kind::adamw>(w, g, m, v, has_momentum);
        apply<Kind::adam>(w, g, m, v, has_momentum);
    }
};

// Calls f with the kind as a constant, for a loop that is compiled for each.
template <class F>
void with_kind(OptimizerSpec::Kind kind, F&& f) {
    using Kind = OptimizerSpec::Kind;
    switch (kind) {
        case Kind::sgd:
            return f(std::integral_constant<Kind, Kind::sgd>{});
        case Kind::adam:
            return f(std::integral_constant<Kind, Kind::adam>{});
        case Kind::adamw:
            return f(std::integral_constant<Kind, Kind::adamw>{});
    }
}

// An average that moves towards a value by a share of the way. From the nearer end, as PyTorch does: all of the way is
// the value itself.
struct Approach {
    float share, rest;

    INVAR_HD void prepare(double part) {
        share = float(part);
        rest = float(1.0 - part);
    }
    INVAR_HD float next(float average, float value) const {
        const float way = value - average;
        return share < 0.5f ? average + share * way : value - rest * way;
    }
};

// How many values each element keeps from step to step: the momentum, or both of Adam's moments.
inline int moments_of(const OptimizerSpec& spec) {
    if (spec.kind != OptimizerSpec::Kind::sgd) return 2;
    return spec.momentum != 0.0 ? 1 : 0;
}

}  // namespace invar
