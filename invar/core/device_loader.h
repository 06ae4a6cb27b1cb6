// How memory of a device that is not there yet comes to be: core knows no devices, so whoever does leaves a way here.
#pragma once

#include "invar/core/device.h"

namespace invar {

// Called when memory is wanted of a device that has registered none; it registers the device's memory or throws.
void set_device_loader(void (*load)(Device));

}  // namespace invar
