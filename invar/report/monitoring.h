// What a guide to mixed precision asks to be watched while both runs train (losses, gradient norms, vanishing
// gradients, the metric, the loss scale), with the figures of the runs and whether each is as it should be.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "invar/report/context.h"

namespace invar {

inline constexpr double kNormFactor = 2.0;  // that gradient norms may lie apart and still be alike

struct MonitorRow {
    std::string what, baseline, candidate;
    std::string wanted;
    std::optional<bool> met;  // nothing where the logs do not hold it
};
// Empty where either has no run.
std::vector<MonitorRow> monitoring_rows(const Comparison& comparison, const Arm& arm, const ReportContext& context);

}  // namespace invar
