// Other kernels in the place of a device's own on this thread, until the end of a scope, whether or not there is such a
// device: for runs that are only counted.
#pragma once

#include "invar/core/device.h"

namespace invar {

class Kernels;

class KernelsStandIn {
  public:
    KernelsStandIn(Device::Kind kind, Kernels& kernels);
    ~KernelsStandIn();
    KernelsStandIn(const KernelsStandIn&) = delete;
    KernelsStandIn& operator=(const KernelsStandIn&) = delete;

  private:
    Device::Kind kind_;
    Kernels* previous_;
};

}  // namespace invar
