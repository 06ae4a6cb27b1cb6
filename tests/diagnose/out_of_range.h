// A run on inputs of which one batch holds some that FP16 cannot, while what the first layer makes of them fits again.
#pragma once

#include "tests/train/scratch_run.h"

namespace invar {

inline constexpr std::int64_t kOutOfRangeStep = 4;

inline Config out_of_range_config(const std::filesystem::path& output) {
    Config config = small_config(output);
    config.trainer.precision = "16-mixed";
    config.trainer.on_instability = "recover";
    config.trainer.checkpoint_every_n_steps = 3;
    config.model.as<MlpOptions>().hidden = {12, 9};
    config.model.set("dropout", "0");
    config.data.as<SyntheticOptions>().std = 1.13e-5;
    config.optimizer.lr = 1e-6;
    config.scaler.init_scale = 1;
    config.stability.z_score = 1e6;  // nothing but what is not finite
    return config;
}

}  // namespace invar
