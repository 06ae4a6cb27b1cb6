#include "invar/train/tensor_stats.h"

#include <algorithm>
#include <new>

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"

namespace invar {

TensorStats::TensorStats(Device device, std::size_t room) : room_(room) {
    const PurposeScope purpose(Purpose::workspace);
    const MemoryPool pool(Device::cpu(), kernels_for(device).host_memory());
    const MemoryPool::Scope scope(pool);
    memory_ = Tensor::empty({std::int64_t(std::max<std::size_t>(room, 1) * sizeof(StepState))}, Dtype::u8);
    slots_ = static_cast<StepState*>(memory_.raw());
    for (std::size_t i = 0; i < room; ++i) new (slots_ + i) StepState;
}

namespace {

// As dense FP32, which is what statistics are made of.
Tensor wide(const Tensor& tensor) {
    if (tensor.dtype() == Dtype::f32 && tensor.is_contiguous()) return tensor;
    const Tensor copy = Tensor::empty_like(tensor, Dtype::f32);
    kernels_for(tensor.device()).copy(tensor.view(), copy.view());
    return copy;
}

}  // namespace

void TensorStats::measure(std::size_t i, const Tensor& tensor) {
    const PurposeScope purpose(Purpose::workspace);
    kernels_for(tensor.device()).grad_stats(wide(tensor).view(), slots_ + i);
}

void TensorStats::measure(const Tensor& flat, std::span<const Segment> parts) {
    check(parts.size() <= room_, "statistics of {} parts, with room for {}", parts.size(), room_);
    const PurposeScope purpose(Purpose::workspace);
    kernels_for(flat.device()).segment_stats(wide(flat).view(), parts, slots_);
}

}  // namespace invar
