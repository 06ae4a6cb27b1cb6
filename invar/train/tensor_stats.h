// TensorStats: size, extremes and NaNs of some tensors, which a device leaves in host memory when it gets there. Nobody
// waits: values may be read once a step that was given to the device later has reported.
#pragma once

#include <span>

#include "invar/core/tensor.h"
#include "invar/kernels/specs.h"
#include "invar/kernels/step.h"

namespace invar {

class TensorStats {
  public:
    TensorStats(Device device, std::size_t room);
    std::size_t room() const { return room_; }
    // Into place i, of the values that the tensor has now.
    void measure(std::size_t i, const Tensor& tensor);
    // Into places 0, 1, ..., of parts of a flat array.
    void measure(const Tensor& flat, std::span<const Segment> parts);
    // What somebody else has measured.
    void set(std::size_t i, double sum_squares) { slots_[i].sum_squares = sum_squares; }
    // sum_squares, max_abs and nonfinite are those of the tensor.
    const StepState& operator[](std::size_t i) const { return slots_[i]; }

  private:
    std::size_t room_;
    Tensor memory_;
    StepState* slots_;
};

}  // namespace invar
