#include "invar/kernels/dry/memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "invar/core/error.h"

namespace invar::dry {

std::int64_t UntouchedMemory::counted(std::size_t bytes) const {
    const auto size = std::int64_t(bytes);
    constexpr std::int64_t kSmall = std::int64_t(1) << 20;  // shares a page with others
    return size < kSmall ? size : (size + page_ - 1) / page_ * page_;
}

void* UntouchedMemory::allocate(std::size_t bytes) {
    held_->refused = capacity_ > 0 && held_->now + counted(bytes) > capacity_;
    if (held_->refused) return nullptr;
    void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(data != MAP_FAILED,
          "no {} bytes of address space to count with; raise the limit of virtual memory (ulimit -v), or allow the "
          "system to overcommit",
          bytes);
    held_->now += counted(bytes);
    held_->most = std::max(held_->most, held_->now);
    return data;
}

void UntouchedMemory::free(void* data, std::size_t bytes) {
    munmap(data, bytes);
    held_->now -= counted(bytes);
}

}  // namespace invar::dry
