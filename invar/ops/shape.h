// Operations on the shape of tensors. All but contiguous, cat and stack are views: they share memory with their input
// (reshape copies first where the input is not dense), and their gradients undo them.
#pragma once

#include <vector>

#include "invar/core/tensor.h"

namespace invar::ops {

Tensor reshape(const Tensor& x, Shape shape);        // one size may be -1
Tensor flatten(const Tensor& x, int start_dim = 0);  // [n, h, w, c] from 1: [n, h * w * c]
Tensor permute(const Tensor& x, const std::vector<int>& order);
Tensor transpose(const Tensor& x, int a, int b);
Tensor unsqueeze(const Tensor& x, int dim);
Tensor squeeze(const Tensor& x, int dim);
// Every step-th element of [begin, end) along a dimension; negative bounds count from the end, large ones are clipped.
Tensor slice(const Tensor& x, int dim, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
Tensor expand(const Tensor& x, const Shape& shape);  // sizes of one repeat, without memory of their own
Tensor contiguous(const Tensor& x);                  // x itself where it is dense already

Tensor cat(const Tensors& tensors, int dim = 0);
Tensor stack(const Tensors& tensors, int dim = 0);  // along a new dimension

}  // namespace invar::ops
