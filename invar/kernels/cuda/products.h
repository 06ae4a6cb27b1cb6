// Matrix products by cuBLASLt, in every layout that rank-3 views can have.
#pragma once

#include "invar/core/view.h"

namespace invar::cuda {

// As Kernels::matmul. Accumulates in FP32 (FP64 for f64); 16-bit operands may have an FP32 result.
void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate);

}  // namespace invar::cuda
