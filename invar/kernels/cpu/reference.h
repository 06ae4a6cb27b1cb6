// The plain, slow products in double: what f64 tensors run on, and what everything faster is checked against.
#pragma once

#include "invar/core/view.h"
#include "invar/kernels/specs.h"

namespace invar::reference {

// All operands f64. bias and any gradient may be absent; outputs are added into when `accumulate`.
void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate);
void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y);
void conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx, const View& gw,
                   const View& gb, bool accumulate);

}  // namespace invar::reference
