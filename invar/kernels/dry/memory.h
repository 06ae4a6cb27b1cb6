// Memory that is handed out and not there: addresses, and a count of what a device would have had to give. The host may
// read them (zeros) and write them all the same; pages come to be when they are written.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "invar/core/memory.h"

namespace invar::dry {

// What was taken from a device.
struct Held {
    std::int64_t now = 0;
    std::int64_t most = 0;
    bool refused = false;  // the last that was asked for was too much
};

class UntouchedMemory final : public RawMemory {
  public:
    // `capacity`: what the device has; 0: as much as is asked for. `page`: what blocks of a mebibyte and more are
    // rounded up to.
    UntouchedMemory(std::shared_ptr<Held> held, std::int64_t capacity, std::int64_t page)
        : held_(std::move(held)), capacity_(capacity), page_(page) {}
    void* allocate(std::size_t bytes) override;
    void free(void* data, std::size_t bytes) override;
    void zero(void*, std::size_t) override {}

  private:
    std::int64_t counted(std::size_t bytes) const;
    std::shared_ptr<Held> held_;
    std::int64_t capacity_, page_;
};

}  // namespace invar::dry
