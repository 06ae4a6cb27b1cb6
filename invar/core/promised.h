// Tensors that are promised and not there: shape, dtype and device of a value that somebody else holds. They can be
// told apart and can have gradients and shadows; whoever reads one is told why it is not there.
#pragma once

#include <string>

#include "invar/core/tensor.h"

namespace invar {

Tensor promised_tensor(const Shape& shape, Dtype dtype, Device device, std::string why);
bool is_promised(const Storage& storage);
// Throws where it is; for tensors, before they hand out an address.
void check_present(const Storage& storage);

}  // namespace invar
