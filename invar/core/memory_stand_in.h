// Other memory in the place of a device's own on this thread, until the end of a scope, with a count of its own: for
// runs that are only counted. What was allocated before, or outlives the scope, goes back where it came from.
#pragma once

#include <memory>

#include "invar/core/memory.h"

namespace invar {

class CachingAllocator;

class MemoryStandIn {
  public:
    MemoryStandIn(Device::Kind kind, std::unique_ptr<RawMemory> memory);
    ~MemoryStandIn();
    MemoryStandIn(const MemoryStandIn&) = delete;
    MemoryStandIn& operator=(const MemoryStandIn&) = delete;

  private:
    Device::Kind kind_;
    CachingAllocator* previous_;
};

}  // namespace invar
