// What goes wrong without a NaN: values that vanish, and steps that jump.
#pragma once

#include <map>

#include "invar/diagnose/diagnose.h"

namespace invar {

// Compares each step with those before it; a loss or gradient norm many times larger than ever before is a spike, and
// the first module whose values jumped with it is named.
class SpikeWatch {
  public:
    void observe(const StepFigures& now, const std::vector<LayerPassages>& layers, std::span<const Batch> group,
                 double rate, std::vector<Concern>& concerns);
    // Whether the first steps have thrown the loss far off in FP32. What low precision meets from there on follows.
    bool astray() const { return astray_; }

  private:
    int seen_ = 0;
    bool astray_ = false;
    double first_loss_ = 0.0;
    double loss_ = 0.0, norm_ = 0.0, batch_ = 0.0;      // the largest so far
    std::map<std::string, double> forward_, backward_;  // by module
};

// Whether a module's values leave the format: some overflow, or of one tensor more than a tenth of its magnitude
// vanishes. One rule for words, tables
// and colours; gradients are judged at 2^judged_scale, the best loss scale where one is used.
int judged_scale(const Diagnosis& diagnosis, Direction direction);
bool overflows(const Diagnosis& diagnosis, const Passage& passage, Direction direction);
bool vanishes(const Diagnosis& diagnosis, const Passage& passage, Direction direction);
// Names the first module of which that is true, forward and backward.
void add_range_concerns(Diagnosis& diagnosis);
// Names the first op that loses digits, or a module whose gradient FP32 would point elsewhere.
void add_significance_concern(Diagnosis& diagnosis);
// Where weights have no FP32 masters and more than a tenth of their updates is lost.
void add_update_concern(Diagnosis& diagnosis, const Precision& candidate);

// The share of the counted values that vanish in the format when multiplied by 2^exponent.
double vanishing_share(const Tally& tally, Dtype format, int exponent);

}  // namespace invar
