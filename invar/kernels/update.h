// The update rules of SGD, Adam and AdamW, element by element, once for every device: unscale, clip, decay, moments,
// step. PyTorch's formulas.
#pragma once

#include <cmath>

#include "invar/kernels/step.h"

namespace invar {

// What the elements of a group need, worked out once.
struct Update {
    OptimizerSpec spec;
    float unscale, clip, lr;
    float decay;          // AdamW: what the weight is multiplied by; otherwise the share of it added to the gradient
    float step_size;      // Adam: lr over the first bias correction
    float second_factor;  // Adam: one over the root of the second bias correction
    bool first_step;      // SGD: momentum starts as the gradient

    // `missed`: how many of the steps that were taken these elements had no gradient for, and stood still.
    INVAR_HD void prepare(const OptimizerSpec& group, const StepState& state, std::int64_t missed) {
        spec = group;
        unscale = state.unscale;
        clip = state.clip_value;
        lr = group.lr * state.lr_factor;
        const std::int64_t taken = state.taken - missed;
        first_step = taken == 0;
        const double t = double(taken + 1);
        decay = group.kind == OptimizerSpec::Kind::adamw ? 1.0f - lr * group.weight_decay : group.weight_decay;
        step_size = float(double(lr) / (1.0 - std::pow(double(group.beta1), t)));
        second_factor = float(1.0 / std::sqrt(1.0 - std::pow(double(group.beta2), t)));
    }

    // `has_momentum`: m is kept from step to step.
    template <OptimizerSpec::Kind kKind>
    INVAR_HD void apply(float& w, float g, float& m, float& v, bool has_momentum) const {
        float d = g * unscale;
        if (clip > 0.0f) d = d > clip ? clip : d < -clip ? -clip : d;
        if constexpr (kKind == OptimizerSpec::Kind::sgd) {
            d += decay * w;
            if (has_momentum) {
                m = first_step ? d : spec.momentum * m + d;
                d = spec.nesterov ? d + spec.momentum * m : m;
            }
            w -= lr * d;
        } else {
            if constexpr (kKind == OptimizerSpec::Kind::adamw)
                w *= decay;
            else
                d += decay * w;
            m += (1.0f - spec.beta1) * (d - m);
            v = spec.beta2 * v + (1.0f - spec.beta2) * d * d;
            w -= step_size * m / (std::sqrt(v) * second_factor + spec.eps);
        }
    }
};

}  // namespace invar
