// Reading by index: rows of a table, and elements along a dimension.
#pragma once

#include <optional>

#include "invar/core/tensor.h"

namespace invar::ops {

// The rows of table [rows, width] that ids (i64, any shape) name: [ids..., width].
Tensor embedding(const Tensor& ids, const Tensor& table);

// The same of a table of any dtype, for ids that were checked.
Tensor rows_at(const Tensor& table, const Tensor& ids);

// y[o, p, i] = x[o, index[o, p, i], i]: index (i64) has x's shape but for dimension `dim`.
Tensor gather(const Tensor& x, int dim, const Tensor& index);

// Throws where a host tensor of i64 holds anything outside [0, limit) other than `allowed`, naming value and place.
void check_indices(const char* op, const Tensor& index, std::int64_t limit, std::optional<std::int64_t> allowed = {});

}  // namespace invar::ops
