// Where values vanish: a step's zeros in low precision against those of the same step in FP32, op by op.
#pragma once

#include <string>
#include <vector>

#include "invar/diagnose/finding.h"

namespace invar {

// For every op but casts, in the order they run: the largest share of zeros among its inputs and in its result.
class ZeroTrace : public OpWatcher {
  public:
    struct Entry {
        std::string module, op;
        double zeros = 0.0;
    };
    void forward(const ForwardRun& run) override;
    std::vector<Entry> entries;
};

// The first op at which more than a tenth of the values are zero in `low` and not in `full`; nullptr where there is
// none.
const ZeroTrace::Entry* first_vanished(const ZeroTrace& low, const ZeroTrace& full);

}  // namespace invar
