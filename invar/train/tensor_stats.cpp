#include "invar/train/tensor_stats.h"

#include <algorithm>
#include <new>

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

void TensorStats::measure(std::size_t i, const Tensor& tensor) {
    const PurposeScope purpose(Purpose::workspace);
    Kernels& kernels = kernels_for(tensor.device());
    Tensor wide = tensor;
    if (tensor.dtype() != Dtype::f32 || !tensor.is_contiguous()) {
        wide = Tensor::empty_like(tensor, Dtype::f32);
        kernels.copy(tensor.view(), wide.view());
    }
    kernels.grad_stats(wide.view(), slots_ + i);
}

}  // namespace invar
