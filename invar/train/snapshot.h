// A run's complete state as a checkpoint, and back: weights, optimizer, scaler, schedule, RNG, data position.
#pragma once

#include "invar/io/checkpoint.h"
#include "invar/io/safetensors_parts.h"
#include "invar/train/setup.h"

namespace invar {

struct Progress {
    std::int64_t step = 0;   // optimizer steps tried, skipped ones included
    std::int64_t epoch = 0;  // how many are done; the one being trained is the next
    std::int64_t batch = 0;  // batches of it that are done
    // As people count them: the epoch of the last step, 1 for the first; 0 before any step.
    std::int64_t epoch_number() const { return batch == 0 ? epoch : epoch + 1; }
};

Checkpoint take_snapshot(Setup& setup, const Progress& progress, const std::string& config_yaml);
// The same as this rank writes it: copies on the host of its share of weights and moments. What is not shared out is
// the first rank's, and so is what the file says of all.
struct SnapshotParts {
    std::vector<TensorPart> parts;
    std::vector<TensorEntry> entries;  // of the first rank: what the whole file holds
    nlohmann::json state;              // of the first rank
};
SnapshotParts take_snapshot_parts(Setup& setup, const Progress& progress, const std::string& config_yaml);
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
