// Two probes of one model (FP32 and BF16, two versions, two cards), step by step and module by module: the first module
// at which they part by more than rounding in the lower of their formats allows.
#pragma once

#include "invar/diagnose/finding.h"
#include "invar/diagnose/probe.h"

namespace invar {

// ||a - b|| / max(||a||, ||b||) over the sample, in the order in which the tensors came about.
struct ProbeDifference {
    std::string module, class_name;
    Direction direction = Direction::forward;
    Dtype in_a = Dtype::f32, in_b = Dtype::f32;
    double difference = 0.0, allowed = 0.0;
    bool parts = false;
};

struct ProbeParting {
    enum class Why : std::uint8_t { rounding, between_modules, not_finite, random, data, weights, shape, skips };
    Why why = Why::rounding;
    std::int64_t step = 0;
    Direction direction = Direction::forward;
    std::string module, class_name, class_in_b;
    double difference = 0.0, allowed = 0.0;
    double inputs = 0.0;                          // by which the module's inputs differ
    std::int64_t skips_in_a = 0, skips_in_b = 0;  // steps that a scaler had skipped by then
};

struct ProbeComparison {
    std::string title_a, title_b;
    bool on_cuda = false;                  // either of them
    Dtype lower = Dtype::f32;              // the format of fewer digits that either ran in
    std::vector<std::int64_t> steps;       // that were compared, up to the one where they part
    std::vector<std::string> only_in_one;  // modules, with the probe that has them
    // Steps that were compared up to a module which ran more often in one of them, as experts do that a router chooses:
    // it was chosen otherwise, and what follows is not of the same rows. Sentences.
    std::vector<std::string> other_calls;
    std::vector<ProbeDifference> rows;  // of the last one of these steps
    std::optional<ProbeParting> parting;
    std::optional<std::int64_t> other_weights_from;  // the step from which on their weights have too little in common
};

// Throws UsageError where they have no step or no module in common.
ProbeComparison compare_probes(const Probe& a, const Probe& b);

}  // namespace invar
