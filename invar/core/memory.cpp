#include "invar/core/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "invar/core/device_loader.h"
#include "invar/core/error.h"
#include "invar/core/memory_stand_in.h"

namespace invar {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmallStep = 512;
constexpr std::size_t kLargeStep = std::size_t(64) << 10;
constexpr std::size_t kLarge = std::size_t(1) << 20;
constexpr std::size_t kLargePage = std::size_t(2) << 20;

// Large blocks ask for large pages, which many systems give only to those who ask: whoever walks through a block of
// 4 KiB pages looks up an address every 64 cache lines. Where there are none to be had, the block is as any other.
class HostMemory : public RawMemory {
  public:
    void* allocate(std::size_t bytes) override {
        if (bytes < 2 * kLargePage) return std::aligned_alloc(kAlignment, bytes);
        const std::size_t whole = bytes / kLargePage * kLargePage;
        void* const data = std::aligned_alloc(kLargePage, (bytes + kLargePage - 1) / kLargePage * kLargePage);
        if (data != nullptr) ::madvise(data, whole, MADV_HUGEPAGE);
        return data;
    }
    void free(void* data, std::size_t) override { std::free(data); }
};

}  // namespace

// Where blocks come from and wait for their next use. Guarded by the allocator's mutex.
struct BlockPool {
    explicit BlockPool(RawMemory& from, std::unique_ptr<RawMemory> own = nullptr)
        : owned(std::move(own)), raw(owned ? *owned : from) {}
    std::unique_ptr<RawMemory> owned;
    RawMemory& raw;
    std::multimap<std::size_t, void*> free;
    bool closed = false;  // nobody will ask again: a freed block leaves at once
};

namespace {

std::shared_ptr<BlockPool>& current_pool(Device device) {
    thread_local std::array<std::shared_ptr<BlockPool>, 2> pools;
    return pools[static_cast<std::size_t>(device.kind)];
}

}  // namespace

// Blocks come in a few sizes; a freed block waits in its size's list for the next request of about that size.
class CachingAllocator {
  public:
    explicit CachingAllocator(std::unique_ptr<RawMemory> raw)
        : raw_(std::move(raw)), common_(std::make_shared<BlockPool>(*raw_)) {}

    void* allocate(std::size_t bytes, Purpose purpose, Device device) {
        const std::lock_guard lock(mutex_);
        const std::shared_ptr<BlockPool>& pool = current_pool(device);
        void* data = take(rounded(bytes), {bytes, purpose, device}, pool ? pool : common_);
        const int p = static_cast<int>(purpose);
        stats_.live[p] += std::int64_t(bytes);
        stats_.live_total += std::int64_t(bytes);
        stats_.peak[p] = std::max(stats_.peak[p], stats_.live[p]);
        stats_.peak_total = std::max(stats_.peak_total, stats_.live_total);
        return data;
    }

    // False, with nothing done, for what is not from here.
    bool free(void* data, std::size_t bytes, Purpose purpose) {
        const std::lock_guard lock(mutex_);
        const auto found = blocks_.find(data);
        if (found == blocks_.end()) return false;
        stats_.live[static_cast<int>(purpose)] -= std::int64_t(bytes);
        stats_.live_total -= std::int64_t(bytes);
        const std::size_t held = found->second.bytes;
        BlockPool& pool = *found->second.pool;
        if (pool.closed) {
            pool.raw.free(data, held);
            blocks_.erase(found);
            return true;
        }
        if (&pool == common_.get()) stats_.cached += std::int64_t(held);
        pool.free.emplace(held, data);
        return true;
    }

    std::shared_ptr<BlockPool> open_pool(std::unique_ptr<RawMemory> raw) {
        return std::make_shared<BlockPool>(*raw_, std::move(raw));
    }
    void close(BlockPool& pool) {
        const std::lock_guard lock(mutex_);
        pool.closed = true;
        release(pool);
    }

    void zero(void* data, std::size_t bytes) { raw_->zero(data, bytes); }
    // Neither is under the lock: they may wait for the device.
    void synchronize() { raw_->synchronize(); }
    void copy_to_host(void* host, const void* data, std::size_t bytes) { raw_->copy_to_host(host, data, bytes); }

    MemoryStats stats() {
        const std::lock_guard lock(mutex_);
        return stats_;
    }

    void reset_peak() {
        const std::lock_guard lock(mutex_);
        stats_.peak = stats_.live;
        stats_.peak_total = stats_.live_total;
    }

    void release_cached() {
        const std::lock_guard lock(mutex_);
        release_cached_locked();
    }

    bool unused() {
        const std::lock_guard lock(mutex_);
        return blocks_.empty();
    }

  private:
    struct Block {
        std::size_t bytes;
        std::shared_ptr<BlockPool> pool;
    };

    static std::size_t rounded(std::size_t bytes) {
        const std::size_t step = bytes < kLarge ? kSmallStep : kLargeStep;
        return std::max(step, (bytes + step - 1) / step * step);
    }

    struct Request {
        std::size_t bytes;
        Purpose purpose;
        Device device;
    };

    void* take(std::size_t bytes, const Request& asked, const std::shared_ptr<BlockPool>& pool) {
        if (bytes < asked.bytes) out_of_memory(asked);  // so much that rounding up went around
        const auto found = pool->free.lower_bound(bytes);
        if (found != pool->free.end() && found->first <= bytes + bytes / 4) {
            void* data = found->second;
            if (pool == common_) stats_.cached -= std::int64_t(found->first);
            pool->free.erase(found);
            return data;
        }
        void* data = pool->raw.allocate(bytes);
        if (data == nullptr) {
            release_cached_locked();
            data = pool->raw.allocate(bytes);
        }
        if (data == nullptr) out_of_memory(asked);
        blocks_.emplace(data, Block{bytes, pool});
        return data;
    }

    // What would have to be smaller.
    static const char* advice_for(Purpose purpose) {
        switch (purpose) {
            case Purpose::weights:
            case Purpose::masters:
            case Purpose::gradients:
            case Purpose::optimizer:
                return "use a smaller model or a lower precision";
            case Purpose::data:
                return "use less data or a smaller batch";
            default:
                return "use a smaller batch or a lower precision";
        }
    }

    [[noreturn]] void out_of_memory(const Request& asked) const {
        std::string shares;
        for (int i = 0; i < kPurposes; ++i)
            if (const std::int64_t bytes = stats_.live[std::size_t(i)]; bytes > 0)
                shares += fmt::format("{}{} {}", shares.empty() ? " (" : ", ", name_of(Purpose(i)), bytes);
        fail("out of memory on {}: {} bytes asked for, {} bytes in use{}; for {} {}", asked.device.str(), asked.bytes,
             stats_.live_total, shares + (shares.empty() ? "" : ")"), name_of(asked.purpose),
             advice_for(asked.purpose));
    }

    void release_cached_locked() {
        release(*common_);
        stats_.cached = 0;
    }

    void release(BlockPool& pool) {
        for (const auto& [bytes, data] : pool.free) {
            pool.raw.free(data, bytes);
            blocks_.erase(data);
        }
        pool.free.clear();
    }

    std::mutex mutex_;
    std::unique_ptr<RawMemory> raw_;
    std::shared_ptr<BlockPool> common_;
    std::map<void*, Block> blocks_;
    MemoryStats stats_;
};

namespace {

// Never destroyed: tensors with static lifetime may outlive any order of destruction we could choose.
std::array<CachingAllocator*, 2>& allocators() {
    static auto* all =
        new std::array<CachingAllocator*, 2>{new CachingAllocator(std::make_unique<HostMemory>()), nullptr};
    return *all;
}

void (*device_loader)(Device) = nullptr;

CachingAllocator*& stand_in(Device::Kind kind) {
    thread_local std::array<CachingAllocator*, 2> all{};
    return all[static_cast<std::size_t>(kind)];
}

// Those that somebody's memory still goes back to.
std::vector<CachingAllocator*>& outlived() {
    thread_local auto* const all = new std::vector<CachingAllocator*>;
    return *all;
}

CachingAllocator& allocator_of(Device device) {
    if (CachingAllocator* const instead = stand_in(device.kind)) return *instead;
    CachingAllocator*& allocator = allocators()[static_cast<std::size_t>(device.kind)];
    if (allocator == nullptr && device_loader != nullptr) device_loader(device);
    if (allocator == nullptr) fail("this build of Invar has no {} device", device.str());
    return *allocator;
}

void give_back(Device device, void* data, std::size_t bytes, Purpose purpose) {
    for (CachingAllocator* one : {stand_in(device.kind), allocators()[static_cast<std::size_t>(device.kind)]})
        if (one != nullptr && one->free(data, bytes, purpose)) return;
    for (CachingAllocator* one : outlived())
        if (one->free(data, bytes, purpose)) return;
}

Purpose& current_purpose() {
    thread_local Purpose purpose = Purpose::activations;
    return purpose;
}

}  // namespace

std::string_view name_of(Purpose purpose) {
    constexpr std::string_view kName[kPurposes] = {"weights",     "masters",   "gradients", "optimizer",
                                                   "activations", "workspace", "data"};
    return kName[static_cast<int>(purpose)];
}

PurposeScope::PurposeScope(Purpose purpose) : previous_(current_purpose()) {
    current_purpose() = purpose;
}
PurposeScope::~PurposeScope() {
    current_purpose() = previous_;
}
Purpose PurposeScope::current() {
    return current_purpose();
}

MemoryStats memory_stats(Device device) {
    return allocator_of(device).stats();
}
void reset_peak_memory(Device device) {
    allocator_of(device).reset_peak();
}
void release_cached_memory(Device device) {
    allocator_of(device).release_cached();
}

Storage::Storage(std::size_t bytes, Device device, Purpose purpose)
    : data_(allocator_of(device).allocate(bytes, purpose, device)), bytes_(bytes), device_(device), purpose_(purpose) {}

Storage::Storage(void* data, std::size_t bytes, Device device, std::function<void(void*)> deleter)
    : data_(data), bytes_(bytes), device_(device), owned_(false), deleter_(std::move(deleter)) {
    allocator_of(device);  // throws where there is no such device
}

Storage::~Storage() {
    if (owned_) give_back(device_, data_, bytes_, purpose_);
    if (!deleter_) return;
    // A device that fails, or is being recorded, cannot be waited for; the caller gets the memory back all the same.
    try {
        synchronize(device_);
    } catch (const Error&) {
    }
    deleter_(data_);
}

void register_raw_memory(Device::Kind kind, std::unique_ptr<RawMemory> memory) {
    allocators()[static_cast<int>(kind)] = new CachingAllocator(std::move(memory));
}

MemoryStandIn::MemoryStandIn(Device::Kind kind, std::unique_ptr<RawMemory> memory)
    : kind_(kind), previous_(std::exchange(stand_in(kind), new CachingAllocator(std::move(memory)))) {}
MemoryStandIn::~MemoryStandIn() {
    CachingAllocator* const used = std::exchange(stand_in(kind_), previous_);
    used->release_cached();
    if (used->unused())
        delete used;
    else
        outlived().push_back(used);
}

MemoryPool::MemoryPool(Device device, std::unique_ptr<RawMemory> raw)
    : device_(device), blocks_(allocator_of(device).open_pool(std::move(raw))) {}
MemoryPool::~MemoryPool() {
    allocator_of(device_).close(*blocks_);
}
MemoryPool::Scope::Scope(const MemoryPool& pool)
    : device_(pool.device_), previous_(std::exchange(current_pool(device_), pool.blocks_)) {}
MemoryPool::Scope::~Scope() {
    current_pool(device_) = std::move(previous_);
}

void set_device_loader(void (*load)(Device)) {
    device_loader = load;
}

void set_zero(Device device, void* data, std::size_t bytes) {
    if (bytes > 0) allocator_of(device).zero(data, bytes);
}
void synchronize(Device device) {
    allocator_of(device).synchronize();
}
void copy_to_host(Device device, void* host, const void* data, std::size_t bytes) {
    if (bytes > 0) allocator_of(device).copy_to_host(host, data, bytes);
}

}  // namespace invar
