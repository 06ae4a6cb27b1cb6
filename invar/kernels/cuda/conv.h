// Convolutions by cuDNN, NHWC; by plain loops where cuDNN has no engine, and for f64.
#pragma once

#include <cuda_runtime_api.h>

#include "invar/core/view.h"
#include "invar/kernels/specs.h"

namespace invar::cuda {

void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y);
void conv_backward_data(const ConvSpec& spec, const View& gy, const View& w, const View& gx);
// gw is f32 for 16-bit operands, else of their dtype.
void conv_backward_weights(const ConvSpec& spec, const View& x, const View& gy, const View& gw, bool accumulate);

// One thread a result, in the order of the definition: slow, right for every geometry and dtype, and deterministic.
namespace direct {
void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& y, cudaStream_t stream);
void conv_backward_data(const ConvSpec& spec, const View& gy, const View& w, const View& gx, cudaStream_t stream);
void conv_backward_weights(const ConvSpec& spec, const View& x, const View& gy, const View& gw, bool accumulate,
                           cudaStream_t stream);
}  // namespace direct

}  // namespace invar::cuda
