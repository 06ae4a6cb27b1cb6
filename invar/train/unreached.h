// Settings that a run ends too early for. They are no mistake, so that a short trial of a long recipe still works, but
// who set them should know.
#pragma once

#include <string>
#include <vector>

#include "invar/train/setup.h"

namespace invar {

// A sentence each: a warm-up that is not left, a rate that is never reached or lowered, a precision never changed to.
std::vector<std::string> unreached_settings(const Config& config, const Setup& setup);

}  // namespace invar
