// What training on several ranks shares out and sends: memory of a rank by purpose, bytes on the wire, and the time
// that communication adds to a step.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "invar/core/memory.h"
#include "invar/dist/strategy.h"
#include "invar/plan/cards.h"
#include "invar/plan/counted_step.h"
#include "invar/plan/step_time.h"

namespace invar {

struct Ranks {
    int count = 1;
    Strategy strategy = Strategy::ddp;
    int gradient_bytes = 4;  // of each gradient on the wire: FP32, or 2: BF16
};

// What a rank holds, by purpose, at the peak of a step.
struct RankMemory {
    std::array<std::int64_t, kPurposes> peak{};
    std::int64_t total = 0;       // the peak of all; less than their sum, since they do not peak together
    std::int64_t evaluation = 0;  // the peak of all while a batch is evaluated
    std::int64_t held = 0;        // the most that is taken from the card
};
// By how much a rank holds less than one that trains alone; negative: more.
std::int64_t saved_bytes(const CountedStep& step, const Ranks& ranks);
RankMemory memory_of_rank(const CountedStep& step, const Ranks& ranks);

// What a rank sends in a step, and receives: gradients that are summed, and results that are handed round.
struct Wire {
    double reduced = 0, gathered = 0;
    double total() const { return reduced + gathered; }
};
Wire wire_bytes(const CountedStep& step, const Ranks& ranks);

struct RankTime {
    StepTime compute;
    double communication = 0;  // seconds that the links are busy
    double exposed = 0;        // what the step becomes longer by: what backward does not hide, and what it is held up
    double total() const { return compute.total() + exposed; }
};
// Buckets leave as backward fills them, and travel while it goes on; what zero1 and zero2 hand round comes after the
// update and is waited for.
RankTime time_of_rank(const CountedStep& step, const Ranks& ranks, const Card& card);

// The time of one pass of `bytes` over all ranks, a sum that leaves each with its share or the shares handed round:
// within a node over its link, and then each card's part of it over the network.
double pass_seconds(double bytes, int ranks, const Card& card);

}  // namespace invar
