#include "invar/kernels/dry/dry_run.h"

namespace invar::dry {

namespace {

constexpr std::int64_t kGpuPage = std::int64_t(2) << 20;  // what cudaMalloc gives out
constexpr std::int64_t kHostPage = 4096;

class DryRecording final : public Recording {
  public:
    explicit DryRecording(std::int64_t parts) : parts_(parts) {}
    void replay() override {}
    std::int64_t parts() const override { return parts_; }

  private:
    std::int64_t parts_;
};

// Whose copies have always arrived.
class DryCopies final : public CopyQueue {
  public:
    void upload(void*, const void*, std::size_t) override {}
    std::uint64_t ticket() override { return ++tickets_; }
    void join(std::uint64_t) override {}
    bool done(std::uint64_t) override { return true; }
    void wait(std::uint64_t) override {}

  private:
    std::uint64_t tickets_ = 0;
};

}  // namespace

DryRun::DryRun(Device device, std::int64_t capacity) : kernels_(std::make_unique<DryKernels>(device.kind)) {
    const std::int64_t page = device.is_cpu() ? kHostPage : kGpuPage;
    memory_.emplace(device.kind, std::make_unique<UntouchedMemory>(held_, capacity, page));
    stand_in_.emplace(device.kind, *kernels_);
    if (device.is_cpu()) return;
    host_kernels_ = std::make_unique<DryKernels>(Device::Kind::cpu);
    host_memory_.emplace(Device::Kind::cpu, std::make_unique<UntouchedMemory>(std::make_shared<Held>(), 0, kHostPage));
    host_stand_in_.emplace(Device::Kind::cpu, *host_kernels_);
}

std::unique_ptr<Recording> DryKernels::record(const MemoryPool& pool, const std::function<void()>& work) {
    if (!on_gpu()) return nullptr;
    const std::size_t before = work_.size();
    {
        const MemoryPool::Scope scope(pool);
        work();
    }
    return std::make_unique<DryRecording>(std::int64_t(work_.size() - before));
}

std::unique_ptr<RawMemory> DryKernels::host_memory() {
    if (!on_gpu()) return nullptr;
    return std::make_unique<UntouchedMemory>(std::make_shared<Held>(), 0, kHostPage);
}

std::unique_ptr<CopyQueue> DryKernels::copy_queue() {
    return on_gpu() ? std::make_unique<DryCopies>() : nullptr;
}

}  // namespace invar::dry
