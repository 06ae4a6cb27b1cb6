// The step that failed, on disk: RUN/failure/ holds the state before it and its batches, so that it can be replayed
// after the fact.
#pragma once

#include <filesystem>

#include "invar/diagnose/finding.h"
#include "invar/train/snapshot.h"

namespace invar {

struct Failure {
    Checkpoint state;
    std::vector<Batch> group;  // on the host
    Progress progress;
    RngState rng;
    double scale = 1.0;
    int rank = -1, ranks = 1;  // of so many that trained together, whose part of the batches this is
    std::string config_yaml() const;
};

inline std::filesystem::path failure_folder(const std::filesystem::path& run) {
    return run / "failure";
}

// Writes `folder` anew: batches.safetensors, then state.safetensors, so that a state without batches is never seen. An
// optimizer leaves the weights alone where gradients are not finite, so this may be called after the step; `rng` and
// `scale` are those before it. Ranks call it together, and what is kept are the batches of the one that is named: its
// part of the step can be replayed by one process.
void save_failure(const std::filesystem::path& folder, Setup& setup, std::span<const Batch> group,
                  const Progress& progress, RngState rng, double scale, const std::string& config_yaml, int rank = 0);
// Throws IoError where the folder does not hold one.
Failure load_failure(const std::filesystem::path& folder);
bool has_failure(const std::filesystem::path& run);

std::vector<Batch> on_device(std::span<const Batch> group, Device device);
// Replays it in a run of the same configuration.
Finding replay_failure(Setup& setup, const Failure& failure, const LossFunction& loss = {});

}  // namespace invar
