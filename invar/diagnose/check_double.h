// DoubleModel: the model of a task in f64, on the CPU, for checks in which rounding must not be mistaken for a fault.
#pragma once

#include <span>

#include "invar/config/config.h"
#include "invar/core/rng.h"
#include "invar/diagnose/replay.h"
#include "invar/tasks/task.h"

namespace invar {

// One list of values for each parameter that learns, in the order of DoubleModel::learning().
using ParameterValues = std::vector<std::vector<double>>;

class DoubleModel {
  public:
    DoubleModel(const Task& task, const Config& config);

    Module& module() { return *model_; }
    const std::vector<Parameter*>& learning() const { return learning_; }
    // These samples with every floating tensor in f64.
    Batch read(Split split, std::span<const std::int64_t> samples) const;
    // Both with the same random numbers every time they are called.
    double loss(std::span<const Batch> group);
    // Empty where a parameter has no gradient.
    ParameterValues gradients(std::span<const Batch> group);
    ParameterValues weights() const;
    void set_weights(const ParameterValues& weights);

  private:
    void run(std::span<const Batch> group, const std::function<void(const Tensor&)>& use);

    const Task& task_;
    std::unique_ptr<Module> model_;
    WithoutOverrides plain_;
    std::vector<Parameter*> learning_;
    RngState rng_;
};

}  // namespace invar
