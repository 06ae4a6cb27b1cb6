// The optimizer's passes over the flat store: statistics, and unscale + clip + update + shadow in one.
#include <chrono>
#include <cmath>
#include <vector>

#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/rows.h"
#include "invar/kernels/update.h"

namespace invar::INVAR_ISA {

namespace {

// Everything is invariant in the loop but its elements: a copy of the update that nobody else can change.
template <OptimizerSpec::Kind kKind>
void update_row(const Update update, float* __restrict w, const float* __restrict g, float* __restrict first,
                float* __restrict second, std::int64_t n) {
    constexpr bool kHasSecond = kKind != OptimizerSpec::Kind::sgd;
    const bool has_first = kHasSecond || first != nullptr;
    for (std::int64_t i = 0; i < n; ++i) {
        float m = has_first ? first[i] : 0.0f, v = kHasSecond ? second[i] : 0.0f;
        update.apply<kKind>(w[i], g[i], m, v, has_first);
        if (has_first) first[i] = m;
        if constexpr (kHasSecond) second[i] = v;
    }
}

void update_block(const Update& u, const FlatStore& store_, std::int64_t begin, std::int64_t n) {
    alignas(64) float buffer[kBlock];
    void* weights = byte_at(store_.weights, store_.weights_dtype, begin);
    float* w = const_cast<float*>(load<float>(weights, store_.weights_dtype, 1, n, buffer));
    const float* g = store_.gradients + begin;
    float* first = store_.first ? store_.first + begin : nullptr;
    float* second = store_.second ? store_.second + begin : nullptr;
    with_kind(u.kind, [&](auto kind) { update_row<kind.value>(u, w, g, first, second, n); });
    store<float>(w, weights, store_.weights_dtype, 1, n);
    if (store_.shadow) store<float>(w, byte_at(store_.shadow, store_.shadow_dtype, begin), store_.shadow_dtype, 1, n);
}

void average_block(const Approach approach, const AveragedArray& array, std::int64_t begin, std::int64_t n) {
    alignas(64) float buffer[kBlock];
    const float* __restrict values = load(byte_at(array.values, array.dtype, begin), array.dtype, 1, n, buffer);
    float* __restrict average = array.average + begin;
    for (std::int64_t i = 0; i < n; ++i) average[i] = approach.next(average[i], values[i]);
}

double value_of(const View& loss) {
    double wide = 0.0;
    return loss ? *load<double>(loss.data, loss.dtype, 1, 1, &wide) : 0.0;
}

}  // namespace

void CpuKernels::grad_stats(const View& gradients, StepState* state, const View& loss) {
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
    state->bad_loss = !is_finite(value_of(loss));
    state->sum_squares = 0.0, state->max_abs = 0.0, state->nonfinite = 0, state->first_nonfinite = -1;
    for (const Part& part : parts) {
        state->sum_squares += part.squares;
        state->max_abs = part.largest > state->max_abs ? part.largest : state->max_abs;
        state->nonfinite += part.bad;
        if (state->first_nonfinite < 0) state->first_nonfinite = part.first_bad;
    }
}

void CpuKernels::plan(StepState* state, const ScaleState* scale, const ClipSpec& clip, const ScheduleSpec& schedule) {
    plan_step(*state, scale ? scale->scale : 1.0f, clip, schedule);
}

void CpuKernels::conclude(const StepEnd& end, const View& loss) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const std::uint64_t ns = std::uint64_t(std::chrono::nanoseconds(now).count());
    if (StepReport* report = conclude_step(end, value_of(loss), ns)) report->sequence = *end.reports.written;
}

void CpuKernels::optimizer_step(const FlatStore& store, std::span<const Segment> segments,
                                std::span<const OptimizerSpec> groups, const StepState* state) {
    if (state->skip) return;  // nothing is written: weights, shadow and moments keep their bits
    for (const Segment& segment : segments) {
        std::int64_t* const missed = segment.missed < 0 ? nullptr : store.missed + segment.missed;
        if (segment.idle) {
            ++*missed;
            continue;
        }
        Update update;
        update.prepare(groups[static_cast<std::size_t>(segment.group)], *state, missed ? *missed : 0);
        const std::int64_t blocks = (segment.count + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) if (blocks > 8)
        for (std::int64_t block = 0; block < blocks; ++block) {
            const std::int64_t begin = block * kBlock;
            update_block(update, store, segment.begin + begin, std::min(kBlock, segment.count - begin));
        }
    }
}

void CpuKernels::average_weights(std::span<const AveragedArray> arrays, const AverageSpec& spec,
                                 const StepState* state) {
    if (state->skip) return;
    Approach approach;
    approach.prepare(spec.share(state->taken));
    for (const AveragedArray& array : arrays) {
        const std::int64_t blocks = (array.count + kBlock - 1) / kBlock;
#pragma omp parallel for schedule(static) if (blocks > 8)
        for (std::int64_t block = 0; block < blocks; ++block) {
            const std::int64_t begin = block * kBlock, n = std::min(kBlock, array.count - begin);
            average_block(approach, array, begin, n);
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
