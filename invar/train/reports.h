// Reports: what every step found, from the device to the host in order and without either waiting for the other. The
// step writes into a ring of host memory; the host takes what has arrived.
#pragma once

#include <optional>
#include <string>

#include "invar/core/tensor.h"
#include "invar/kernels/step.h"

namespace invar {

// Why a step was skipped, for people: "its loss was NaN". Empty where it was taken.
std::string skip_reason(const StepReport& report);

class Reports {
  public:
    // At most `room` steps may be given to the device before the first one's report is taken.
    explicit Reports(Device device, std::size_t room = 64);

    const ReportSlots& slots() const { return slots_; }  // for training_step
    std::size_t room() const { return std::size_t(slots_.count); }
    // The next report, where it has arrived.
    std::optional<StepReport> poll();
    // How many have arrived.
    std::size_t ready() const;
    // The next report; waits for it. Throws what went wrong on the device, also where no step is left to report.
    StepReport wait();

  private:
    bool has_arrived(std::uint64_t number) const;

    Device device_;
    Tensor memory_;   // of the slots, on the host
    Tensor written_;  // on the device
    ReportSlots slots_;
    std::uint64_t taken_ = 0;
};

}  // namespace invar
