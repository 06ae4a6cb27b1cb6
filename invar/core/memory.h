// Device memory: a caching allocator for each device, with live and peak bytes by purpose,
// so that a run can say where its memory went.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>

#include "invar/core/device.h"

namespace invar {

// What a piece of memory is for. New storage takes the purpose of the innermost PurposeScope of its thread.
enum class Purpose : std::uint8_t { weights, masters, gradients, optimizer, activations, workspace, data };
inline constexpr int kPurposes = 7;
std::string_view name_of(Purpose purpose);

class PurposeScope {
  public:
    explicit PurposeScope(Purpose purpose);
    ~PurposeScope();
    PurposeScope(const PurposeScope&) = delete;
    PurposeScope& operator=(const PurposeScope&) = delete;
    static Purpose current();

  private:
    Purpose previous_;
};

struct MemoryStats {
    std::array<std::int64_t, kPurposes> live{};
    std::array<std::int64_t, kPurposes> peak{};
    std::int64_t live_total = 0;
    std::int64_t peak_total = 0;
    std::int64_t cached = 0;  // held by the allocator, used by nobody
    std::int64_t peak_of(Purpose purpose) const { return peak[static_cast<int>(purpose)]; }
};

MemoryStats memory_stats(Device device);
void reset_peak_memory(Device device);
void release_cached_memory(Device device);

// A block of device memory. Counts in-place writes, so that autograd can tell when a saved tensor was overwritten.
class Storage {
  public:
    Storage(std::size_t bytes, Device device, Purpose purpose);
    // Memory of the caller's, which is in no MemoryStats. `deleter`, where there is one, is called once, when nothing
    // uses the memory any more: the device is waited for first.
    Storage(void* data, std::size_t bytes, Device device, std::function<void(void*)> deleter);
    ~Storage();
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    Device device() const { return device_; }
    std::uint64_t version() const { return version_; }
    void bump_version() { ++version_; }
    bool owned() const { return owned_; }  // and not the caller's

  private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
    Device device_;
    Purpose purpose_ = Purpose::data;
    bool owned_ = true;
    std::function<void(void*)> deleter_;
    std::uint64_t version_ = 0;
};

// What a device lends the allocator: raw blocks. A device other than the CPU registers its own.
class RawMemory {
  public:
    virtual ~RawMemory() = default;
    virtual void* allocate(std::size_t bytes) = 0;  // nullptr when there is no more
    virtual void free(void* data, std::size_t bytes) = 0;
    virtual void zero(void* data, std::size_t bytes) { std::memset(data, 0, bytes); }  // in order with its kernels
    // Waits for the device, where its memory is not the host's own.
    virtual void copy_to_host(void* host, const void* data, std::size_t bytes) { std::memcpy(host, data, bytes); }
    virtual void synchronize() {}  // until the device is done with what it was given
};
void register_raw_memory(Device::Kind kind, std::unique_ptr<RawMemory> memory);

// Blocks apart from all others: what a thread allocates inside a scope of the pool comes from it, and goes back to it
// whenever it is freed. For what recorded work goes on using after the host has let go of it, and for host memory that
// another device can reach. The pool's memory is given back when it and everything from it are gone.
class MemoryPool {
  public:
    // Without `raw`, of the device's own memory.
    explicit MemoryPool(Device device, std::unique_ptr<RawMemory> raw = nullptr);
    ~MemoryPool();
    MemoryPool(const MemoryPool&) = delete;
    MemoryPool& operator=(const MemoryPool&) = delete;

    class Scope {
      public:
        explicit Scope(const MemoryPool& pool);
        ~Scope();
        Scope(const Scope&) = delete;
        Scope& operator=(const Scope&) = delete;

      private:
        Device device_;
        std::shared_ptr<struct BlockPool> previous_;
    };

  private:
    Device device_;
    std::shared_ptr<struct BlockPool> blocks_;
};

void copy_to_host(Device device, void* host, const void* data, std::size_t bytes);
void set_zero(Device device, void* data, std::size_t bytes);
void synchronize(Device device);  // until its memory holds what it was told to hold, for those who read it themselves

}  // namespace invar
