// A run's complete state as a checkpoint, and back: weights, optimizer, scaler, schedule, RNG, data position.
#pragma once

#include "invar/io/checkpoint.h"
#include "invar/train/setup.h"

namespace invar {

struct Progress {
    std::int64_t step = 0;   // optimizer steps tried, skipped ones included
    std::int64_t epoch = 0;  // the one being trained
    std::int64_t batch = 0;  // batches of it that are done
};

Checkpoint take_snapshot(Setup& setup, const Progress& progress, const std::string& config_yaml);
// For the other ranks, while the first one takes it: what of it is spread over them is gathered.
void take_part_in_snapshot(Setup& setup);
// Throws without having changed anything where the checkpoint is of another model or optimizer.
Progress restore_snapshot(Setup& setup, const Checkpoint& checkpoint);
// Throws a UsageError where the checkpoint's run was trained on data that describe themselves otherwise.
void check_same_data(const Checkpoint& checkpoint, const Dataset& now, const std::string& file);
// Whether it holds averaged weights beside those that are trained on (trainer.ema_decay).
bool has_average(const Checkpoint& checkpoint);
// Which of a checkpoint's tensors are the model's weights, and what the model calls them, for whoever uses the model:
// the averaged ones where it holds them.
std::map<std::string, std::string> model_weight_names(const std::vector<std::string>& in_checkpoint);
StateDict model_weights(const Checkpoint& checkpoint);

}  // namespace invar
