// Which weights a step leaves as they were, were they kept in a small format: w + update rounds back to w;
// and by which weight decay alone takes nothing away.
#pragma once

#include "invar/diagnose/diagnose.h"

namespace invar {

// Made before the optimizer's step, asked after it.
class UpdateWatch {
  public:
    UpdateWatch(Optimizer& optimizer, Dtype format);
    void add_to(std::vector<LostUpdates>& totals) const;

  private:
    Optimizer& optimizer_;
    Dtype format_;
    std::vector<std::vector<float>> before_;  // by parameter
    std::vector<float> decay_;                // the share of a weight that a step takes away for its size, likewise
};

}  // namespace invar
