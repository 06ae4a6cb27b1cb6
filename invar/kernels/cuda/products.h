// Matrix products by cuBLASLt, in every layout that rank-3 views can have.
#pragma once

#include "invar/core/view.h"
#include "invar/kernels/specs.h"

namespace invar::cuda {

// As Kernels::matmul. Accumulates in FP32 (FP64 for f64); 16-bit operands may have an FP32 result.
void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate);
// As Kernels::matmul_with, in one launch; false, with nothing done, where cuBLASLt has no such epilogue.
bool matmul_with(const Epilogue& epilogue, const View& a, const View& b, const View& out, bool accumulate);

}  // namespace invar::cuda
