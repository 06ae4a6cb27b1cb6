// A step's forward and backward again, without its update: the same weights, batches and random numbers, in any
// precision and at any loss scale, watched by whoever wants to know what happened inside.
#pragma once

#include <span>

#include "invar/autograd/watch.h"
#include "invar/core/rng.h"
#include "invar/train/setup.h"

namespace invar {

inline const Precision kFullPrecision = Precision::parse("32-true");

// How a run scales its loss: a scale that moves gives way where it overflows, a fixed one skips every such step.
enum class Scaling { moving, fixed, off };
inline Scaling scaling_of(const ScalerConfig& scaler) {
    return !scaler.enabled ? Scaling::off : scaler.dynamic ? Scaling::moving : Scaling::fixed;
}

// What a replay starts from. The weights are those of the model as it is.
struct StepStart {
    std::span<const Batch> group;  // more than one: gradient accumulation
    RngState rng;
};

struct ReplayOptions {
    Precision precision = kFullPrecision;
    double scale = 1.0;
    bool overrides = true;  // modules keep precisions of their own; false: all run in `precision`
    LossFunction loss;
    OpWatcher* watcher = nullptr;
};

struct Replayed {
    double loss = 0.0;
    bool finite = false;  // loss and all gradients
};

// Leaves the gradients, scaled, in the parameters. Buffers (running statistics), the generator and the model's mode are
// as before when it returns.
Replayed replay(Module& model, Optimizer& optimizer, const StepStart& start, const ReplayOptions& options);

// Takes the modules' own precisions away until the end of a scope.
class WithoutOverrides {
  public:
    explicit WithoutOverrides(Module& model);
    ~WithoutOverrides();
    WithoutOverrides(const WithoutOverrides&) = delete;
    WithoutOverrides& operator=(const WithoutOverrides&) = delete;

  private:
    std::vector<std::pair<Module*, Precision>> taken_;
};

}  // namespace invar
