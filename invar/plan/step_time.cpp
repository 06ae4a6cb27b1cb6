#include "invar/plan/step_time.h"

#include <algorithm>
#include <string_view>

namespace invar {

namespace {

using dry::Work;
using dry::WorkKind;

// Of one large product on a cool card, what the products of a step reach: under a steady load the card lowers its
// clocks (docs/BENCHMARKS.md: 681 where ten in a row do 763).
constexpr double kSteady = 0.9;

// A card's units that multiply side by side, and the piece of a result that one of them makes: on tensor cores, and
// without them.
constexpr double kUnits = 132, kTile = 128, kPlainTile = 64, kDepth = 512;

// Small products leave most of the card idle, whichever way they are cut.
double filled_share(const Work& w, const Card& card) {
    if (card.is_cpu()) return 1;
    const auto pieces = [](std::int64_t size, double each) { return std::max(1.0, double(size) / each); };
    const double tile = is_sixteen_bit(w.dtype) || w.tf32 ? kTile : kPlainTile;
    const double work = double(std::max<std::int64_t>(w.batch, 1)) * pieces(w.rows, tile) * pieces(w.columns, tile) *
                        pieces(w.inner, kDepth);
    return std::min(1.0, work / kUnits);
}

// Of the copy's speed, what a kernel reaches on an H200 (docs/BENCHMARKS.md: gpu_kernels, and where steps go).
double copy_share(std::string_view kernel) {
    struct Share {
        std::string_view kernel;
        double of_copy;
    };
    static constexpr Share kShares[] = {
        {"norm", 0.92},
        {"norm_backward", 0.70},
        {"batch_norm_stats", 0.80},
        {"batch_norm", 0.88},
        {"batch_norm_backward", 0.76},
        {"activation_backward", 0.80},
        {"cross_entropy_in_place", 0.80},
        {"optimizer_step", 0.91},
        {"gather_pixels", 0.65},
        {"sort", 0.50},
        {"embedding_backward", 0.30},
    };
    for (const Share& share : kShares)
        if (share.kernel == kernel) return share.of_copy;
    return 0.95;
}

constexpr std::int64_t kFewChannels = 64;

// Of what products reach, what convolutions do: in 16 bits by the layers of ResNet-18, ResNet-50 and DBNet, in FP32 and
// TF32, and for few channels, by those of the ConvNet. In FP32 the engine that is proposed first, as deterministic runs
// take it, is not the fastest.
double convolution_share(const Work& w) {
    const double base = w.kind == WorkKind::convolution ? 0.93 : w.kind == WorkKind::data_gradient ? 0.80 : 0.65;
    const double few = w.channels < kFewChannels ? 0.6 : 1.0;
    if (is_sixteen_bit(w.dtype)) return base * few;
    return base * few * (w.tf32 ? 0.4 : w.timed ? 1.05 : 0.75);
}

// Fused attention begins slowly: TFLOP/s forward and backward were 266 for 1024 queries, 333 for 2048 (heads of 64),
// 461 for 4096 (heads of 128), 182 and 211 where it was our own. Backward is a fifth slower than forward.
double attention_share(const Work& w) {
    constexpr double kStart = 700;
    if (!is_sixteen_bit(w.dtype)) return 0.5;
    const double length = double(w.columns), wide = w.inner > 64 ? 1.2 : 1.0;
    const double pass = w.kind == WorkKind::attention ? 0.79 : 0.63;
    return pass * wide * (w.own ? 0.55 : 1.0) * length / (length + kStart);
}

double arithmetic_share(const Work& w, const Card& card) {
    constexpr double kTf32 = 0.68;  // an MLP with layers of 2048 and batch 512
    if (w.kind == WorkKind::product) return w.tf32 && !card.is_cpu() ? kTf32 : 1.0;
    if (card.is_cpu()) return w.channels < kFewChannels ? 0.8 : 1.15;  // attention has no channels
    const bool attends = w.kind == WorkKind::attention || w.kind == WorkKind::attention_backward;
    return attends ? attention_share(w) : convolution_share(w);
}

}  // namespace

double seconds_of(const Work& w, const Card& card, bool recorded) {
    const double launch = recorded ? 0 : w.launches * card.launch;
    if (w.seconds > 0) return std::max(w.seconds, launch);
    constexpr double kWidening = 3;
    double seconds = w.bytes / (card.copy * copy_share(w.kernel));
    // A CPU's own loops compute in FP32, also where they read and write 16 bits.
    if (card.is_cpu() && is_sixteen_bit(w.dtype)) seconds *= kWidening;
    if (w.flops > 0) {
        // A CPU's attention multiplies in FP32.
        const bool widens = card.is_cpu() && (w.kind == WorkKind::attention || w.kind == WorkKind::attention_backward);
        const double rate =
            card.product_rate(widens ? Dtype::f32 : w.dtype, w.tf32) * kSteady * arithmetic_share(w, card);
        if (rate > 0) seconds = std::max(seconds, w.flops / (rate * filled_share(w, card)));
    }
    if (card.is_cpu()) return std::max(seconds, launch);
    // The shortest kernel takes kLeast of the gap that a GPU has between two beginnings.
    constexpr double kLeast = 0.2, kBegins = 1.0;
    const double begins = is_convolution(w.kind) ? kBegins * card.gap : 0;
    seconds = std::max(seconds + begins, w.launches * kLeast * card.gap) + w.launches * (1 - kLeast) * card.gap;
    return std::max(seconds, launch);
}

StepTime step_time(const dry::WorkList& work, const Card& card, bool recorded) {
    StepTime time;
    for (const Work& w : work) {
        const double seconds = seconds_of(w, card, recorded);
        (w.phase == dry::Phase::forward    ? time.forward
         : w.phase == dry::Phase::backward ? time.backward
                                           : time.update) += seconds;
    }
    return time;
}

}  // namespace invar
