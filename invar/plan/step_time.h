// How long a card takes for a step that was counted: each kernel by its arithmetic or its traffic, whichever takes
// longer.
#pragma once

#include "invar/kernels/dry/work.h"
#include "invar/plan/cards.h"

namespace invar {

struct StepTime {
    double forward = 0, backward = 0, update = 0;  // seconds
    double total() const { return forward + backward + update; }
};

// `recorded`: whether the step is replayed as a whole, so that no kernel waits for the host.
double seconds_of(const dry::Work& work, const Card& card, bool recorded);
StepTime step_time(const dry::WorkList& work, const Card& card, bool recorded);

}  // namespace invar
