// tune: the smallest set of modules to keep in FP32 so that the gradients of a low-precision step are those of FP32,
// within a target, on the same batches, weights and dropout masks.
#pragma once

#include "invar/diagnose/replay.h"

namespace invar {

// How far low-precision gradients are from FP32's.
struct GradientError {
    double overall = 0.0;  // |low - full| / |full|, over all weights
    double cosine = 1.0;
    double worst = 0.0;        // the same error of one module's own weights, where it is largest
    std::string worst_module;  // "" is the model itself
    bool finite = true;        // false: nothing else means anything
};

struct TuneTarget {
    double error = 0.1;    // of the worst module, at most
    double cosine = 0.99;  // overall, at least
    bool met(const GradientError& e) const { return e.finite && e.worst <= error && e.cosine >= cosine; }
};

struct TuneOptions {
    Precision candidate = Precision::parse("16-mixed");
    TuneTarget target;
    int batches = 4;         // groups of them where gradients are accumulated
    double scale = 65536.0;  // of the loss; lowered where it alone overflows and may move
    Scaling scaling = Scaling::moving;
    LossFunction loss = {};  // none: the run's own
    std::function<void(int trials)> progress = {};
};

struct Tuning {
    std::vector<std::string> modules;  // to keep in FP32, in the order they run
    bool scaler = false;               // a scaler that moves is needed too, and was not there
    bool met = false;                  // with those; false: no set of modules meets the target
    GradientError before, after;
    int trials = 0;
    int candidates = 0;  // modules that could have been kept
    bool changes() const { return scaler || !modules.empty(); }
    // {fc1: 32-true, ...}, and all that is to be set as a block of YAML.
    std::string overrides() const;
    std::string yaml() const;
};

// `setup` is of an FP32 run without overrides; its weights stay as they are.
Tuning tune(Setup& setup, const TuneOptions& options);

}  // namespace invar
