// `invar diagnose PROBE [PROBE]`: what a probe of a PyTorch run says, and where two of them part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace invar::cli {

struct ProbeArguments {
    std::vector<std::string> folders;
    int steps = 10;
    std::int64_t step = 0;  // this one alone; 0: the last ones
    std::string as, html, patch;
    bool json = false;
};

// The exit code: 1 where NaN or Inf was found, or where two probes part.
int diagnose_probes(const ProbeArguments& arguments);

}  // namespace invar::cli
