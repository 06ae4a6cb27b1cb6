// Why a run broke that went on over its failures (trainer.on_instability=skip): it is trained again up to the first of
// them, which is kept in its folder for `invar diagnose`.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "invar/config/config.h"
#include "invar/tasks/task.h"

namespace invar {

// Whether the run's log tells of an instability that it went on over.
bool was_unstable(const std::filesystem::path& run);

// "it broke at step 12 (the loss is NaN): linear in fc1, forward, gave Inf in f16; the precision is to blame; try ...",
// or "" where it does not break again. `config` is the run's own; `up_to_nan`: over everything else that may look
// unstable before a loss is not finite. Throws ValidationStopped where somebody has asked for an end meanwhile.
std::string explain_break(const std::shared_ptr<const Task>& task, const Config& config,
                          const std::filesystem::path& run, bool up_to_nan);

}  // namespace invar
