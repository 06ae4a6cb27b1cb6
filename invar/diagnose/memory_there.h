// How much memory a device has, and how much of it is still to be had.
#pragma once

#include <cstdint>
#include <filesystem>

#include "invar/core/device.h"

namespace invar {

struct MemoryThere {
    std::int64_t total = 0, free = 0;  // bytes; 0: not known
};

// Of the CPU what the system says itself, within the limits of this control group and those it is in; of a GPU what its
// driver counts, where there is a row for the card. `root`: where /proc and /sys are found.
MemoryThere memory_there(Device device, const std::filesystem::path& root = "/");

}  // namespace invar
