// Stopped: how long work is told that nobody waits for it any more. It asks now and then, and leaves by an Error.
#pragma once

#include <functional>

#include "invar/core/error.h"

namespace invar {

// Whether to leave it. May be asked from any thread; where it is empty nobody will.
using Stopped = std::function<bool()>;

inline void leave_if(const Stopped& stopped) {
    check(!stopped || !stopped(), "stopped before it was done");
}

}  // namespace invar
