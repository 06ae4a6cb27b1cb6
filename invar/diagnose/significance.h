// How many digits are left: a step's values in the candidate's precision against those of the same step in FP32, op by
// op, by samples of each tensor.
#pragma once

#include "invar/diagnose/diagnose.h"

namespace invar {

class SampledOps : public OpWatcher {
  public:
    struct Op {
        std::string module, name;
        std::vector<std::vector<float>> inputs;
        std::vector<float> result;
    };
    void forward(const ForwardRun& run) override;
    std::vector<Op> ops;
};

// A step as one precision makes it: its ops, and the gradients that it left.
struct SampledStep {
    SampledOps ops;
    std::vector<std::vector<float>> gradients;  // by parameter
    void sample_gradients(const Optimizer& optimizer);
};

// Adds how far `low` is off `full`.
void compare_steps(const SampledStep& low, const SampledStep& full, const Optimizer& optimizer,
                   std::vector<Significance>& significance);

// Tells two.
class BothWatch : public OpWatcher {
  public:
    BothWatch(OpWatcher& a, OpWatcher& b) : a_(a), b_(b) {}
    void forward(const ForwardRun& run) override { a_.forward(run), b_.forward(run); }
    void backward(const BackwardRun& run) override { a_.backward(run), b_.backward(run); }

  private:
    OpWatcher &a_, &b_;
};

}  // namespace invar
