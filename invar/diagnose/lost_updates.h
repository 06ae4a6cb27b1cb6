// Which weights a step leaves as they were, were they kept in a small format: w + update rounds back to w.
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
};

}  // namespace invar
