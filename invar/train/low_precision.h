// Which parts of a run compute in fewer bits than FP32: asked before anything of it is announced, compared with FP32 or
// remembered.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "invar/config/config.h"
#include "invar/nn/module.h"
#include "invar/tasks/task.h"

namespace invar {

// TF32 counts: its products have fewer digits.
bool is_low(const Precision& precision);

// The precision in which each module with weights of its own runs: that of the nearest module around it that was given
// one, else the run's.
std::vector<std::pair<std::string, Precision>> precision_by_module(Module& model, const Precision& run);

// Whether any of them is low.
bool computes_low(Module& model, const Precision& run);
// Likewise for the model of a configuration, in any precision of its schedule.
bool computes_low(const Task& task, const Config& config);

// Why this precision would train as another one beside this trainer.amp_level: "with trainer.amp_level=O1 it would
// train as 16-mixed". "" where it trains as itself.
std::string changed_by_level(const TrainerConfig& trainer, const std::string& precision);

}  // namespace invar
