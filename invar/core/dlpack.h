// Tensors handed to other libraries and taken from them without a copy, by DLPack. What a DLManagedTensor is, says
// dlpack/dlpack.h, or our dlpack_abi.h where that is not at hand.
#pragma once

#include "invar/core/tensor.h"

struct DLManagedTensor;

namespace invar {

// The tensor's memory for another library, which calls the deleter once when it is done with it; until then the memory
// stays. Waits until the device has written what it holds. Throws for a tensor that requires a gradient, which the
// other library would not know of: hand out detach().
DLManagedTensor* to_dlpack(const Tensor& tensor);

// Another library's memory as a tensor, which calls the deleter once when the last tensor that sees the memory is gone.
// On a GPU the other library has to have written it before this is called. Throws where there is no tensor of that kind
// here: an element type, a device, more than kMaxRank dimensions, negative strides; then the caller still owns it.
Tensor from_dlpack(DLManagedTensor* managed);

}  // namespace invar
