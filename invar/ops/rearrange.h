// Parts of a tensor, and its elements in other places: split and chunk, which are views, roll, tril and triu, which are
// not. Names, sizes and errors as in PyTorch.
#pragma once

#include <vector>

#include "invar/core/tensor.h"

namespace invar::ops {

// Pieces of `size` along a dimension, the last one with what is left; or of these sizes, which must add up.
Tensors split(const Tensor& x, std::int64_t size, int dim = 0);
Tensors split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim = 0);
// At most `count` pieces of one size, the last one smaller where it does not come out even.
Tensors chunk(const Tensor& x, std::int64_t count, int dim = 0);

// Each dimension moved on by its shift, what leaves at the end coming in at the front; without dimensions, as if x were
// flat.
Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const std::vector<int>& dims = {});

// The last two dimensions as matrices, with zeros above (tril) or below (triu) a diagonal: 0 is the main one, those
// above it count up.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);

}  // namespace invar::ops
