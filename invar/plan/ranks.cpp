#include "invar/plan/ranks.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"

namespace invar {

namespace {

// Of the time that communication runs beside backward, what it takes from it: kernels that move data hold some 10 to 16
// of a card's 132 multiprocessors. An assumption.
constexpr double kDrag = 0.1;

// Bytes of a sum, which ddp hands round: FP32, whatever its parts travelled as.
constexpr double kSum = 4;

// How often a step's gradients are summed: nobody holds them whole under zero2, so that every batch's are.
double sums_of(const CountedStep& step, const Ranks& ranks) {
    return ranks.strategy == Strategy::zero2 ? double(step.batches) : 1;
}

double gradient_elements(const CountedStep& step) {
    return double(step.elements);
}

// What everybody gets of everybody after an update that is shared out.
double handed_round(const CountedStep& step) {
    const double wide = step.masters ? double(step.wide) : 0.0;
    return double(step.weight_bytes) * (double(step.elements) - wide) + 4 * wide;
}

}  // namespace

Wire wire_bytes(const CountedStep& step, const Ranks& ranks) {
    const double passes = double(ranks.count - 1) / double(ranks.count);
    const double gradients = double(ranks.gradient_bytes) * gradient_elements(step);
    return {passes * gradients * sums_of(step, ranks),
            passes * (ranks.strategy == Strategy::ddp ? kSum * gradient_elements(step) : handed_round(step))};
}

double pass_seconds(double bytes, int ranks, const Card& card) {
    if (ranks == 1) return 0;
    const int near = std::min(ranks, card.node), nodes = (ranks + card.node - 1) / card.node;
    double seconds = 0;
    if (near > 1) seconds += bytes * double(near - 1) / double(near) / card.link + card.latency * (near - 1);
    if (nodes > 1)
        seconds += bytes / near * double(nodes - 1) / double(nodes) / card.network +
                   card.latency * std::ceil(std::log2(double(nodes)));
    return seconds;
}

RankTime time_of_rank(const CountedStep& step, const Ranks& ranks, const Card& card) {
    RankTime time;
    time.compute = step_time(step.work, card, step.recorded);
    if (ranks.count == 1) return time;
    const bool shares = ranks.strategy != Strategy::ddp;
    const double backward = time.compute.backward / double(step.batches);  // of one of them
    double free_at = 0, filled = 0;  // the link, counted from the beginning of that backward; elements so far
    for (const std::int64_t bucket : step.buckets) {
        double pass = pass_seconds(double(ranks.gradient_bytes) * double(bucket), ranks.count, card);
        if (!shares) pass += pass_seconds(kSum * double(bucket), ranks.count, card);
        filled += double(bucket);
        const double ready = step.overlap ? backward * filled / gradient_elements(step) : backward;
        free_at = std::max(free_at, ready) + pass;
        time.communication += pass;
    }
    time.exposed = std::max(0.0, free_at - backward);
    time.exposed += kDrag * std::max(0.0, time.communication - time.exposed);
    time.communication *= sums_of(step, ranks);
    time.exposed *= sums_of(step, ranks);
    if (shares) {
        const double pass = pass_seconds(handed_round(step), ranks.count, card);
        time.communication += pass;
        time.exposed += pass;
    }
    return time;
}

}  // namespace invar
