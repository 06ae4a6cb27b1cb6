#include "invar/train/reports.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <thread>

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"

namespace invar {

std::string skip_reason(const StepReport& report) {
    const StepState& step = report.step;
    if (!step.skip) return "";
    const std::string gradients = step.nonfinite > 0 ? "its gradients overflowed" : "";
    if (!step.bad_loss) return gradients.empty() ? "an earlier step has to be dealt with first" : gradients;
    const std::string loss = std::isnan(report.loss) ? "its loss was NaN" : "its loss was infinite";
    return gradients.empty() ? loss + ", though its gradients were finite" : loss + " and " + gradients;
}

Reports::Reports(Device device, std::size_t room) : device_(device) {
    check<UsageError>(room > 0, "reports: there must be room for at least one");
    const PurposeScope purpose(Purpose::workspace);
    Kernels& kernels = kernels_for(device);
    const MemoryPool pool(Device::cpu(), kernels.host_memory());
    {
        const MemoryPool::Scope scope(pool);
        memory_ = Tensor::empty({std::int64_t(room * sizeof(StepReport))}, Dtype::u8);
    }
    slots_.slots = static_cast<StepReport*>(memory_.raw());
    slots_.count = room;
    for (std::size_t i = 0; i < room; ++i) new (slots_.slots + i) StepReport;
    written_ = Tensor::empty({1}, Dtype::i64, device);
    kernels.fill(written_.view(), 0);
    slots_.written = static_cast<std::uint64_t*>(written_.raw());
}

bool Reports::has_arrived(std::uint64_t number) const {
    StepReport& slot = slots_.slots[number % slots_.count];
    return std::atomic_ref(slot.sequence).load(std::memory_order_acquire) == number + 1;
}

std::optional<StepReport> Reports::poll() {
    if (!has_arrived(taken_)) return std::nullopt;
    return slots_.slots[taken_++ % slots_.count];
}

std::size_t Reports::ready() const {
    std::size_t count = 0;
    while (count < room() && has_arrived(taken_ + count)) ++count;
    return count;
}

StepReport Reports::wait() {
    constexpr int kLooks = 1000;  // between two questions whether the device still works at all
    for (bool idle = false;;) {
        for (int i = 0; i < kLooks; ++i) {
            if (std::optional<StepReport> report = poll()) return *report;
            std::this_thread::yield();
        }
        check(!idle, "the device has done everything it was given, but no report of step {} came", taken_ + 1);
        idle = kernels_for(device_).idle();
    }
}

}  // namespace invar
