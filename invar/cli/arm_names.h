// What to call arms of runs that are known by their paths alone.
#pragma once

#include <string>
#include <vector>

namespace invar::cli {

// For each arm, given by the paths of its runs, the parts that differ from those of the others: "fp32" and "fp16" for
// fp32/version_0/metrics.csv and fp16/version_0/metrics.csv. Of several runs an arm it is what they have in common: "a"
// for a_seed0.csv and a_seed1.csv. Arms that are still the same get their number.
std::vector<std::string> names_by_paths(const std::vector<std::vector<std::string>>& arms);

}  // namespace invar::cli
