// Convolutions: which of them a GPU makes products of, and the scratch memory that each device takes for them.
#include <algorithm>

#include "invar/kernels/cpu/onednn.h"
#include "invar/kernels/devices.h"
#include "invar/kernels/dry/kernels.h"
#include "invar/kernels/pointwise.h"

namespace invar::dry {

namespace {

double bytes_of(const View& v) {
    return v ? double(v.numel()) * double(size_of(v.dtype)) : 0;
}

// A view of dense memory as [1, rows, columns].
View matrix(const View& v, std::int64_t rows, std::int64_t columns) {
    View m;
    m.data = v.data, m.dtype = v.dtype, m.rank = 3;
    m.size[0] = 1, m.size[1] = rows, m.size[2] = columns;
    m.stride[0] = rows * columns, m.stride[1] = columns, m.stride[2] = 1;
    return m;
}

// The same cases as kernels/cuda/conv.cpp and conv_products.cpp tell apart.
std::int64_t results_of(const ConvSpec& s) {
    return s.batch * s.out_h * s.out_w;
}
std::int64_t values_of(const ConvSpec& s) {
    return s.k_h * s.k_w * s.in_c;
}
bool is_dot(const ConvSpec& s) {
    return s.k_h == 1 && s.k_w == 1 && s.pad_h == 0 && s.pad_w == 0 && s.groups == 1;
}
bool is_product(const ConvSpec& s) {
    return is_dot(s) && s.stride_h == 1 && s.stride_w == 1;
}
bool lies_side_by_side(const ConvSpec& s) {
    return s.stride_h == s.k_h && s.stride_w == s.k_w && s.pad_h == 0 && s.pad_w == 0 && s.groups == 1;
}
bool tiles_image(const ConvSpec& s) {
    return lies_side_by_side(s) && s.in_h == s.out_h * s.k_h && s.in_w == s.out_w * s.k_w;
}
bool has_few_channels(const ConvSpec& s, Dtype dtype) {
    return s.in_c % std::int64_t(16 / size_of(dtype)) != 0 && s.in_c < 32 && values_of(s) > 31 &&
           values_of(s) <= 1024 && s.groups == 1;
}
bool is_first(const ConvSpec& s, Dtype dtype) {
    return is_sixteen_bit(dtype) && s.groups == 1 && values_of(s) <= 31 && s.out_c % 8 == 0;
}

// Sums of weight gradients in parts, one for each of the blocks that run at the same time and share no weights: of
// conv_weights_line.cu for 3x3 over many channels, of conv_weights.cu for others.
double weight_parts(const ConvSpec& s) {
    const bool on_a_line = s.k_h == 3 && s.k_w == 3 && s.pad_h == 1 && s.pad_w == 1 && s.in_c >= 48 && s.out_c >= 48;
    const std::int64_t slots = on_a_line ? 132 : 264, channels = on_a_line ? 64 : 32;
    const std::int64_t tiles = ((s.in_c + channels - 1) / channels) * ((s.out_c + 63) / 64);
    const std::int64_t splits = std::max<std::int64_t>(1, slots / std::max<std::int64_t>(1, tiles));
    return 4 * double(s.out_c) * double(values_of(s)) * double(std::min(splits, 8 * s.batch));
}

// cuDNN's engines for FP32 were seen to take copies of images and results in another layout: from the one workspace for
// all where they fit; conv.cpp takes engines that need no more than that, where there are any.
double other_layout(const ConvSpec& s, Dtype dtype) {
    constexpr double kShared = double(64 << 20), kMost = double(1 << 30);
    const double bytes = double(s.batch) * double(s.numbers_of_images()) * double(size_of(dtype));
    return bytes > kShared && bytes <= kMost ? bytes : 0;
}

}  // namespace

void DryKernels::convolve(std::string_view kernel, WorkKind kind, const ConvSpec& s, Dtype dtype, double bytes,
                          bool bias) {
    take_workspace();
    Work& work = note(kernel, bytes);
    work.kind = kind;
    work.dtype = dtype;
    work.tf32 = dtype == Dtype::f32 && Tf32Scope::on();
    work.batch = 1, work.rows = results_of(s), work.columns = s.out_c, work.inner = values_of(s) / s.groups;
    work.launches = on_gpu() && kind == WorkKind::weight_gradient ? 2 : 1;
    work.channels = std::min(s.in_c, s.out_c);
    work.timed = options_.benchmark && !options_.deterministic;
    work.flops = 2.0 * double(work.rows) * double(work.columns) * double(work.inner);
    work.convolution = s;
    work.bias = bias;
    if (!on_gpu()) return;
    if (const ConvCost* const seen = costs_ != nullptr ? find_cost(*costs_, work) : nullptr) {
        work.seconds = seen->seconds;
        scratch(seen->scratch);
    } else if (!is_sixteen_bit(dtype)) {
        scratch(other_layout(s, dtype));
    } else if (kind == WorkKind::weight_gradient) {
        scratch(weight_parts(s));
    }
}

// The pixels under each result side by side, in pieces that stay in the cache.
double DryKernels::gather_pixels(const ConvSpec& s, const View& x) {
    constexpr double kPiece = double(64 << 20);
    const double patches = double(results_of(s)) * double(values_of(s)) * double(size_of(x.dtype));
    note("gather_pixels", bytes_of(x) + patches);
    return std::min(patches, kPiece);
}

bool DryKernels::multiply_pixels(const ConvSpec& s, const View& x, const View& w, const View& y) {
    const bool gathers = is_dot(s) || (is_sixteen_bit(x.dtype) && has_few_channels(s, x.dtype));
    if (!is_product(s) && !gathers) return false;
    if (!is_product(s)) scratch(gather_pixels(s, x));
    multiply("conv_forward", matrix(x, results_of(s), values_of(s)), matrix(w, values_of(s), s.out_c),
             matrix(y, results_of(s), s.out_c), false);
    return true;
}

bool DryKernels::multiply_data_gradient(const ConvSpec& s, const View& gy, const View& w, const View& gx,
                                        const View& pending) {
    const bool tiled = is_sixteen_bit(gy.dtype) && tiles_image(s) && s.out_c % 8 == 0 && s.out_w >= 32;
    if (!is_product(s) && !tiled) return false;
    multiply("conv_backward", matrix(gy, results_of(s), s.out_c), matrix(w, s.out_c, values_of(s)),
             matrix(gx, results_of(s), values_of(s)), false, pending);
    return true;
}

bool DryKernels::multiply_weight_gradient(const ConvSpec& s, const View& x, const View& gy, const View& gw) {
    if (!is_product(s) && !is_dot(s) && !lies_side_by_side(s) && !has_few_channels(s, x.dtype)) return false;
    if (!is_product(s)) scratch(gather_pixels(s, x));
    multiply("conv_backward", matrix(gy, s.out_c, results_of(s)), matrix(x, results_of(s), values_of(s)),
             matrix(gw, s.out_c, values_of(s)), false);
    return true;
}

void DryKernels::conv_forward(const ConvSpec& s, const View& x, const View& w, const View& bias, const View& y) {
    if (y.numel() == 0) return;
    if (!on_gpu()) convolve_on_cpu(s, x, bool(bias));
    if (on_gpu() && !is_first(s, x.dtype) && multiply_pixels(s, x, w, y)) return;
    const bool in_one = !on_gpu() || is_sixteen_bit(x.dtype);  // engines of 16 bits take bias and activation along
    convolve("conv_forward", WorkKind::convolution, in_one ? s : without_activation(s), x.dtype,
             bytes_of(x) + bytes_of(w) + bytes_of(y), in_one && bias);
    if (in_one) return;
    if (bias) note("binary", 2 * bytes_of(y));
    if (s.activation == Activation::relu) note("unary", 2 * bytes_of(y));
}

void DryKernels::conv_backward(const ConvSpec& s, const View& x, const View& w, const View& gy, const View& gx,
                               const View& gw, const View& gb, bool accumulate, const View& y, const View& pending) {
    if (!on_gpu() && s.activation == Activation::none) convolve_back_on_cpu(s, gy, bool(gx), bool(gw), bool(gb));
    const bool first = on_gpu() && gw && !gx && is_first(s, x.dtype);
    if (s.activation == Activation::relu && !first) {
        const Storage passed(std::size_t(bytes_of(gy)), device_, Purpose::workspace);
        unary_backward(UnaryOp::Relu, gy, y, gy, {});
        return conv_backward(without_activation(s), x, w, gy, gx, gw, gb, accumulate, {}, pending);
    }
    if (gx && !(on_gpu() && multiply_data_gradient(s, gy, w, gx, pending))) {
        convolve("conv_backward", WorkKind::data_gradient, s, gy.dtype, bytes_of(gy) + bytes_of(w) + bytes_of(gx),
                 false);
        if (pending) add_into(pending, gx);
    }
    if (!gw) return;
    if (on_gpu() && !first && multiply_weight_gradient(s, x, gy, gw)) return;
    convolve("conv_backward", WorkKind::weight_gradient, s, gy.dtype, bytes_of(gy) + bytes_of(x) + bytes_of(gw),
             first && gb);
    if (gb && !first) sum({1, results_of(s), s.out_c}, gy, gb, 1.0, accumulate);
}

// As kernels/cpu/simd/products.cpp: some images at a time where they are widened, or their weight gradients summed.
void DryKernels::convolve_on_cpu(const ConvSpec& s, const View& x, bool bias) const {
    if (x.dtype == Dtype::f64) return;
    if (x.dtype == Dtype::f32 || onednn::native(x.dtype))
        return scratch(double(onednn::conv_scratch(s, x.dtype, onednn::ConvGradient::none, bias)));
    constexpr double kChunk = double(2 << 20);
    ConvSpec chunk = s;
    chunk.batch = std::clamp<std::int64_t>(std::int64_t(kChunk / (4 * double(s.numbers_of_images()))) * threads(), threads(),
                                           std::max<std::int64_t>(s.batch, 1));
    scratch(4 * double(s.out_c) * double(values_of(s)) / double(s.groups) +
            4 * double(chunk.batch) * double(s.numbers_of_images()) +
            double(onednn::conv_scratch(chunk, Dtype::f32, onednn::ConvGradient::none, bias)));
}

void DryKernels::convolve_back_on_cpu(const ConvSpec& s, const View& gy, bool gx, bool gw, bool gb) const {
    if (gy.dtype == Dtype::f64) return;
    using onednn::ConvGradient;
    const bool direct = gy.dtype == Dtype::f32 || onednn::native(gy.dtype);
    constexpr double kChunk = double(2 << 20);
    constexpr std::int64_t kTermsInOneSum = 4096;
    std::int64_t images = s.batch;
    if (!direct)
        images = std::int64_t(kChunk / (4 * double(s.numbers_of_images())));
    else if (gw && gy.dtype == Dtype::f32)
        images = kTermsInOneSum / (s.out_h * s.out_w);
    ConvSpec chunk = s;
    chunk.batch = std::min(std::max<std::int64_t>(images, 1) * threads(), s.batch);
    const Dtype dtype = direct ? gy.dtype : Dtype::f32;
    const double weights = double(s.out_c) * double(values_of(s)) / double(s.groups);
    double most = 0;
    if (gx) most = double(onednn::conv_scratch(chunk, dtype, ConvGradient::data, false));
    if (gw) {
        const bool with_bias = gb && gy.dtype != Dtype::f32;
        most = std::max(most, double(onednn::conv_scratch(chunk, dtype, ConvGradient::weights, with_bias)));
    }
    if (!direct)
        most += 4 * ((gx ? weights : 0) + double(chunk.batch) * double(s.numbers_of_images()));  // gradient, and input or result
    scratch(most + (gw ? 4 * (weights + double(s.out_c)) : 0));
}

}  // namespace invar::dry
