// The optimizer's passes over the flat store: statistics, and unscale + clip + update + shadow in one.
#include <cmath>
#include <vector>

#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/rows.h"

namespace invar::INVAR_ISA {

namespace {

// Everything a block's update needs, worked out once a group.
struct Update {
    OptimizerSpec spec;
    float unscale, clip, lr;
    float decay;          // AdamW: what the weight is multiplied by; otherwise the share of it added to the gradient
    float step_size;      // Adam: lr over the first bias correction
    float second_factor;  // Adam: one over the root of the second bias correction
    bool first_step;      // SGD: momentum starts as the gradient

    Update(const OptimizerSpec& group, const StepState& state)
        : spec(group),
          unscale(state.unscale),
          clip(state.clip_value),
          lr(group.lr * state.lr_factor),
          first_step(state.taken == 0) {
        const double t = double(state.taken + 1);
        decay = group.kind == OptimizerSpec::Kind::adamw ? 1.0f - lr * group.weight_decay : group.weight_decay;
        step_size = float(double(lr) / (1.0 - std::pow(double(group.beta1), t)));
        second_factor = float(1.0 / std::sqrt(1.0 - std::pow(double(group.beta2), t)));
    }

    float gradient(float scaled) const {
        const float g = scaled * unscale;
        return clip > 0.0f ? (g > clip ? clip : g < -clip ? -clip : g) : g;
    }
};

void sgd(const Update& u, float* w, const float* g, float* momentum, std::int64_t n) {
    const float mu = u.spec.momentum;
    for (std::int64_t i = 0; i < n; ++i) {
        float d = u.gradient(g[i]) + u.decay * w[i];
        if (momentum != nullptr) {
            momentum[i] = u.first_step ? d : mu * momentum[i] + d;
            d = u.spec.nesterov ? d + mu * momentum[i] : momentum[i];
        }
        w[i] -= u.lr * d;
    }
}

template <bool kDecoupled>
void adam(const Update& u, float* __restrict w, const float* __restrict g, float* __restrict m, float* __restrict v,
          std::int64_t n) {
    const float b1 = u.spec.beta1, b2 = u.spec.beta2, eps = u.spec.eps;
    for (std::int64_t i = 0; i < n; ++i) {
        float weight = w[i], d = u.gradient(g[i]);
        if constexpr (kDecoupled)
            weight *= u.decay;
        else
            d += u.decay * weight;
        m[i] += (1.0f - b1) * (d - m[i]);
        v[i] = b2 * v[i] + (1.0f - b2) * d * d;
        w[i] = weight - u.step_size * m[i] / (std::sqrt(v[i]) * u.second_factor + eps);
    }
}

void update_block(const Update& u, const FlatStore& store_, std::int64_t begin, std::int64_t n) {
    alignas(64) float buffer[kBlock];
    void* weights = byte_at(store_.weights, store_.weights_dtype, begin);
    float* w = const_cast<float*>(load<float>(weights, store_.weights_dtype, 1, n, buffer));
    const float* g = store_.gradients + begin;
    float* first = store_.first ? store_.first + begin : nullptr;
    float* second = store_.second ? store_.second + begin : nullptr;
    switch (u.spec.kind) {
        case OptimizerSpec::Kind::sgd:
            sgd(u, w, g, first, n);
            break;
        case OptimizerSpec::Kind::adam:
            adam<false>(u, w, g, first, second, n);
            break;
        case OptimizerSpec::Kind::adamw:
            adam<true>(u, w, g, first, second, n);
            break;
    }
    store<float>(w, weights, store_.weights_dtype, 1, n);
    if (store_.shadow) store<float>(w, byte_at(store_.shadow, store_.shadow_dtype, begin), store_.shadow_dtype, 1, n);
}

}  // namespace

void CpuKernels::grad_stats(const View& gradients, StepState* state) {
    const float* g = gradients.as<float>();
    const std::int64_t n = gradients.numel(), chunk = 16 * kBlock, chunks = (n + chunk - 1) / chunk;
    struct Part {
        double squares;
        float largest;
        std::int64_t bad, first_bad;
    };
    // Chunks do not depend on the number of threads, and are summed in order: the norm is the same bits every time.
    std::vector<Part> parts(static_cast<std::size_t>(chunks));
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < chunks; ++c) {
        double squares = 0.0;
        float largest = 0.0f;
        std::int64_t bad = 0;
        for (std::int64_t begin = c * chunk, end = std::min(n, begin + chunk); begin < end; begin += 256) {
            const std::int64_t count = std::min<std::int64_t>(256, end - begin);
            double sum[8] = {};
            float peak[8] = {};
            std::int32_t wrong[8] = {};
            std::int64_t i = 0;
            for (; i + 8 <= count; i += 8) {
                for (int k = 0; k < 8; ++k) {
                    const float v = g[begin + i + k], a = std::fabs(v);
                    sum[k] += double(v) * double(v);
                    peak[k] = a > peak[k] ? a : peak[k];
                    wrong[k] += !(a <= 3.402823466e38f);
                }
            }
            for (; i < count; ++i) {
                const float v = g[begin + i], a = std::fabs(v);
                sum[0] += double(v) * double(v);
                peak[0] = a > peak[0] ? a : peak[0];
                wrong[0] += !(a <= 3.402823466e38f);
            }
            for (int k = 0; k < 8; ++k)
                squares += sum[k], largest = peak[k] > largest ? peak[k] : largest, bad += wrong[k];
        }
        std::int64_t first_bad = -1;
        for (std::int64_t i = c * chunk; bad > 0 && first_bad < 0; ++i)
            if (!(std::fabs(g[i]) <= 3.402823466e38f)) first_bad = i;
        parts[static_cast<std::size_t>(c)] = {squares, largest, bad, first_bad};
    }
    state->sum_squares = 0.0, state->max_abs = 0.0, state->nonfinite = 0, state->first_nonfinite = -1;
    for (const Part& part : parts) {
        state->sum_squares += part.squares;
        state->max_abs = part.largest > state->max_abs ? part.largest : state->max_abs;
        state->nonfinite += part.bad;
        if (state->first_nonfinite < 0) state->first_nonfinite = part.first_bad;
    }
}

void CpuKernels::plan(const View& gradients, StepState* state, const ScaleState* scale, const ClipSpec& clip,
                      const ScheduleSpec& schedule) {
    grad_stats(gradients, state);
    plan_step(*state, scale ? scale->scale : 1.0f, clip, schedule);
}

void CpuKernels::conclude(const StepEnd& end, const View& loss) {
    double wide = 0.0;
    const double value = loss ? *load<double>(loss.data, loss.dtype, 1, 1, &wide) : 0.0;
    if (StepReport* report = conclude_step(end, value)) report->sequence = *end.reports.written;
}

void CpuKernels::optimizer_step(const FlatStore& store, std::span<const Segment> segments,
                                std::span<const OptimizerSpec> groups, const StepState* state) {
    if (state->skip) return;  // nothing is written: weights, shadow and moments keep their bits
    std::vector<Update> updates;
    for (const OptimizerSpec& group : groups) updates.emplace_back(group, *state);
    for (const Segment& segment : segments) {
        const std::int64_t blocks = (segment.count + kBlock - 1) / kBlock;
        const Update& update = updates[static_cast<std::size_t>(segment.group)];
#pragma omp parallel for schedule(static) if (blocks > 8)
        for (std::int64_t block = 0; block < blocks; ++block) {
            const std::int64_t begin = block * kBlock;
            update_block(update, store, segment.begin + begin, std::min(kBlock, segment.count - begin));
        }
    }
}

void CpuKernels::scale_gradients(const View& gradients, float factor, float limit) {
    float* g = gradients.as<float>();
    const std::int64_t n = gradients.numel();
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < n; ++i) {
        const float v = g[i] * factor;
        g[i] = limit > 0.0f ? (v > limit ? limit : v < -limit ? -limit : v) : v;
    }
}

}  // namespace invar::INVAR_ISA
