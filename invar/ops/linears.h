// Several linear layers of one input as one: what each of them gives stands side by side.
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

// x [..., in] by weights [out_i, in], with or without biases [out_i], to [..., sum of out_i]. Weights that lie one
// behind the other in memory, as an optimizer's store keeps neighbours, are multiplied as one; so are their gradients.
Tensor linears(const Tensor& x, const Tensors& weights, const Tensors& biases = {});

// silu(gate) * up, of [..., 2 n] that holds gate and then up; gives [..., n].
Tensor swiglu(const Tensor& gate_up);

}  // namespace invar::ops
