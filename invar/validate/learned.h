// Whether a run is shown to have learned. Two runs that learned nothing agree perfectly, and that proves nothing.
#pragma once

#include <cstdint>
#include <string>

#include "invar/validate/comparison.h"

namespace invar {

// How a network did before its first step.
struct Start {
    std::vector<Measured> metrics;  // "loss" first
    std::int64_t samples = 0;       // validated on
};

// For runs of ours: why the run is not shown to have learned, "" where it is. Its loss must have fallen, on the data
// trained on or on those kept aside, and metrics of which it is known what guessing gives must be better than that by
// more than luck explains.
std::string why_not_learned(const RunLog& log, const Start& start);

// For runs of others, of which we know what they logged.
struct Doubt {
    std::string why;       // "" where there is none
    bool certain = false;  // neither the loss nor the metric got better
};
Doubt doubt_learning(const RunRecord& run, const std::string& metric, Better direction);

}  // namespace invar
