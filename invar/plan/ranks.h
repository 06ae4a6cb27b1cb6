// What ranks send in a step, and the time that it adds to it.
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
// Of a step that was counted for these ranks. Buckets leave as backward fills them, and travel while it goes on; what
// zero1 and zero2 hand round comes after the update and is waited for.
RankTime time_of_rank(const CountedStep& step, const Ranks& ranks, const Card& card);

// The time of one pass of `bytes` over all ranks, a sum that leaves each with its share or the shares handed round:
// within a node over its link, and then each card's part of it over the network.
double pass_seconds(double bytes, int ranks, const Card& card);

}  // namespace invar
