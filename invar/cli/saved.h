// What a run has saved: a checkpoint with the configuration it was trained with, for the commands that judge or use it.
#pragma once

#include "invar/cli/common.h"
#include "invar/nn/module.h"

namespace invar::cli {

struct Saved {
    std::string name;                      // the file the weights are from
    Config config;                         // without init_from: the weights come from here now
    std::optional<Checkpoint> checkpoint;  // a file of weights alone is read once there is a model for it
};

// From the folder of a run, where `which` names a checkpoint ("" for the last), or from the file of one. Keys among the
// arguments change its configuration; words that are no keys are refused.
Saved read_saved(const std::filesystem::path& target, const ConfigArguments& arguments, const std::string& which);

// An Error that names the file where they do not fit.
void load_saved(Module& model, const Saved& saved);

}  // namespace invar::cli
