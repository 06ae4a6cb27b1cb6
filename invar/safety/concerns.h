// What goes wrong without a NaN: values that vanish, and steps that jump.
#pragma once

#include <map>

#include "invar/safety/diagnose.h"

namespace invar {

// Compares each step with those before it; a loss or gradient norm many times larger than ever before is a spike, and
// the first module whose values jumped with it is named.
class SpikeWatch {
  public:
    void observe(const StepFigures& now, const std::vector<LayerPassages>& layers, std::span<const Batch> group,
                 std::vector<Concern>& concerns);

  private:
    int seen_ = 0;
    double loss_ = 0.0, norm_ = 0.0, batch_ = 0.0;      // the largest so far
    std::map<std::string, double> forward_, backward_;  // by module
};

// Names the first module, forward and backward, in which more than a tenth of the values vanish in the format;
// gradients at the best loss scale there is, where the precision has one.
void add_underflow_concerns(Diagnosis& diagnosis, bool scaled);

// The share of the counted values that vanish in the format when multiplied by 2^exponent.
double vanishing_share(const Tally& tally, Dtype format, int exponent);

}  // namespace invar
