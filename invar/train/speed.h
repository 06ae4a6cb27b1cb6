// Speed as people compare it: in the unit that a task counts in, and as a share of what the device can multiply.
#pragma once

#include <string>

#include "invar/train/setup.h"

namespace invar {

struct Rate {
    std::string unit = "samples";
    double per_second = 0.0;
    double mfu = 0.0;  // model FLOPs a second, over those of one large product on this device; 0 where it is not known
    // "tokens_per_s", as files name it.
    std::string name() const { return unit + "_per_s"; }
    bool of_samples() const { return unit == "samples"; }
};

// What turns samples a second into that.
class SpeedScale {
  public:
    // Times a product for a task that counts in a unit of its own; it leaves no trace in the peaks of memory.
    explicit SpeedScale(const Setup& setup);
    // Whether the arithmetic of a step is still to be counted.
    bool wants_flops() const { return product_flops_per_s_ > 0 && flops_per_sample_ == 0; }
    void set_flops_per_sample(double flops) { flops_per_sample_ = flops; }
    // In the precision that the run has now; that of another one than it began with is held against nothing.
    Rate at(double samples_per_s) const;

  private:
    const Setup& setup_;
    SpeedUnit unit_;
    Precision measured_in_;
    double product_flops_per_s_ = 0.0, flops_per_sample_ = 0.0;
};

}  // namespace invar
