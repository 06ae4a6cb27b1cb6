// How busy a GPU is, by its driver.
#pragma once

#include <optional>

#include "invar/core/device.h"

namespace invar {

// Percent of the driver's last sampling period (up to a second) in which a kernel ran, on the whole card, others'
// included. Nothing for the CPU, and where the driver does not tell.
std::optional<int> gpu_utilization(Device device);

}  // namespace invar
