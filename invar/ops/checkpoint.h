// Activation checkpointing: a region that keeps only its input, and runs again during backward to get the rest.
#pragma once

#include <functional>

#include "invar/core/tensor.h"

namespace invar::ops {

// function(x), whose intermediate results are not kept. Gradients of x and of every parameter the function uses come
// out the same to the bit: autocast and the random numbers are those of the first run.
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& function, const Tensor& x);

// Whether this thread is running a checkpointed region for the second time: side effects happened in the first.
bool recomputing();

}  // namespace invar::ops
