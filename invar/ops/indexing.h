// Reading by index: rows of a table, elements along a dimension; and numbers of classes as rows of zeros and ones.
#pragma once

#include <optional>

#include "invar/core/tensor.h"

namespace invar::ops {

// The rows of table [rows, width] that ids (i64, any shape) name: [ids..., width]. The row of `padding_idx`, where
// there is one, gets no gradient.
Tensor embedding(const Tensor& ids, const Tensor& table, std::optional<std::int64_t> padding_idx = {});

// The same of a table of any dtype, for ids that were checked.
Tensor rows_at(const Tensor& table, const Tensor& ids);

// y[o, p, i] = x[o, index[o, p, i], i]: index (i64) has x's shape but for dimension `dim`.
Tensor gather(const Tensor& x, int dim, const Tensor& index);

// The slices of x along a dimension that index, a vector of i64 or i32 (or one number), names.
Tensor index_select(const Tensor& x, int dim, const Tensor& index);

// For each of ids (i64) a row of `classes` zeros with a one at its place: i64 [ids..., classes]. -1: as many classes as
// the largest needs, which waits for the device. A number that is outside, on a GPU, has a row of zeros.
Tensor one_hot(const Tensor& ids, std::int64_t classes = -1);

// Throws where a host tensor of i64 holds anything outside [0, limit) other than `allowed`, naming value and place.
void check_indices(const char* op, const Tensor& index, std::int64_t limit, std::optional<std::int64_t> allowed = {});

}  // namespace invar::ops
