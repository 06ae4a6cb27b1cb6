// The convolutions that are our own, NHWC: those that do better than cuDNN, and plain loops for where it has no engine.
// conv.cpp chooses.
#pragma once

#include <cuda_runtime_api.h>

#include "invar/core/view.h"
#include "invar/kernels/specs.h"

namespace invar::cuda {

// Our own for 16-bit images with few channels, activation included. False, with nothing done, for what they do not do.
bool first_conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y);
bool first_conv_backward_weights(const ConvSpec& spec, const View& x, const View& gy, const View& y, const View& gw,
                                 const View& gb, bool accumulate);

// Our own: FP32 sums of 16-bit operands, for channels that come in eights. False, with nothing done, for what it does
// not do. gb may be absent.
bool conv_backward_weights_by_us(const ConvSpec& spec, const View& x, const View& gy, const View& gw, const View& gb,
                                 bool accumulate);

// The same without gb for 3x3 that keep the size of the image or halve it, where warpgroups multiply.
bool conv_backward_weights_on_a_line(const ConvSpec& spec, const View& x, const View& gy, const View& gw,
                                     bool accumulate);
// gw (+)= parts[0] + parts[1] + ..., in order.
void add_weight_parts(const float* parts, int count, const View& gw, bool accumulate);

// Whether windows lie side by side; and whether they leave no pixel out.
inline bool lies_side_by_side(const ConvSpec& s) {
    const bool undilated = (s.k_h == 1 || s.dilation_h == 1) && (s.k_w == 1 || s.dilation_w == 1);
    return s.stride_h == s.k_h && s.stride_w == s.k_w && s.pad_h == 0 && s.pad_w == 0 && undilated;
}
inline bool tiles_image(const ConvSpec& s) {
    return lies_side_by_side(s) && s.groups == 1 && s.in_h == s.out_h * s.k_h && s.in_w == s.out_w * s.k_w;
}
// Whether a view has one vector along its last dimension, again and again.
inline bool is_along_channels(const View& v) {
    for (int i = 0; i + 1 < v.rank; ++i)
        if (v.stride[i] != 0 && v.size[i] > 1) return false;
    return v.rank > 0 && (v.stride[v.rank - 1] == 1 || v.size[v.rank - 1] == 1);
}

// Our own for 16-bit images with few channels whose windows tile them. False, with nothing done, for what it does not
// do. `pending`, which may be absent, is a vector along the channels.
bool few_channels_backward_data(const ConvSpec& spec, const View& gy, const View& w, const View& gx,
                                const View& pending);

// Convolutions as products of matrices. False, with nothing done, for those that do better otherwise. `pending` is
// added to gx; it, bias and gb may be absent.
bool product_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y);
bool product_backward_data(const ConvSpec& spec, const View& gy, const View& w, const View& gx, const View& pending);
bool product_backward_weights(const ConvSpec& spec, const View& x, const View& gy, const View& gw, const View& gb,
                              bool accumulate);
// The pixels under `rows` results from the `first` on: [rows, k_h * k_w * in_c], with zeros up to whole packs of 16
// bytes.
void gather_patches(const ConvSpec& spec, const View& x, std::int64_t first, std::int64_t rows, void* patches);

// One thread a result, in the order of the definition: slow, right for every geometry and dtype, and deterministic.
namespace direct {
void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& y, cudaStream_t stream);
void conv_backward_data(const ConvSpec& spec, const View& gy, const View& w, const View& gx, cudaStream_t stream);
void conv_backward_weights(const ConvSpec& spec, const View& x, const View& gy, const View& gw, bool accumulate,
                           cudaStream_t stream);
}  // namespace direct

}  // namespace invar::cuda
