// Activation checkpointing: a region that keeps only its inputs, and runs again during backward to get the rest.
#pragma once

#include <functional>

#include "invar/core/tensor.h"

namespace invar::ops {

// function(inputs), whose intermediate results are not kept. Gradients of the inputs and of every parameter the
// function uses come out the same to the bit: autocast and the random numbers are those of the first run. A linear layer
// that the region ends with is not computed a second time.
Tensors checkpoint(const std::function<Tensors(const Tensors&)>& function, const Tensors& inputs);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& function, const Tensor& x);

// Whether this thread is running a checkpointed region for the second time: side effects happened in the first.
bool recomputing();

// For a product that is about to be computed: whether it ends the second run of a region, which has come for what
// backward needs of the ops before. Nobody reads its result then.
bool is_unread_product();

}  // namespace invar::ops
