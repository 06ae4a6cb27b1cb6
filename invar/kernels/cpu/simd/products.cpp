// Matrix products and convolutions: oneDNN does the arithmetic. Where the CPU has no native 16-bit product, operands are
// widened to FP32 scratch and results rounded on the way out: 16-bit operands, FP32 accumulation, as on a tensor core.
#include <algorithm>

#include "invar/core/memory.h"
#include "invar/kernels/cpu/onednn.h"
#include "invar/kernels/cpu/reference.h"
#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/rows.h"

namespace invar::INVAR_ISA {

namespace {

// An FP32 copy, or a place for an FP32 result, of a 16-bit view; the view itself where it is FP32 already. Keeps which
// of the last two dimensions is the dense one, so that transposed operands stay transposed.
class Widened {
  public:
    explicit Widened(const View& original)
        : original_(original), view_(original), storage_(bytes_for(original), Device::cpu(), Purpose::workspace) {
        if (!original || original.dtype == Dtype::f32) return;
        view_.data = storage_.data();
        view_.dtype = Dtype::f32;
        const bool transposed = view_.rank >= 2 && original.stride[original.rank - 1] != 1 && original.stride[original.rank - 2] == 1;
        std::int64_t stride = 1;
        for (int i = view_.rank - 1; i >= 0; --i) {
            const int d = transposed && i >= view_.rank - 2 ? 2 * view_.rank - 3 - i : i;
            view_.stride[d] = stride;
            stride *= view_.size[d];
        }
    }
    const View& view() const { return view_; }
    float* data() const { return view_.as<float>(); }
    bool separate() const { return view_.data != original_.data; }
    const Widened& load(Kernels& kernels) const {
        if (separate()) kernels.copy(original_, view_);
        return *this;
    }
    void store(Kernels& kernels) const {
        if (separate()) kernels.copy(view_, original_);
    }

  private:
    static std::size_t bytes_for(const View& v) { return !v || v.dtype == Dtype::f32 ? 0 : std::size_t(v.numel()) * sizeof(float); }
    View original_, view_;
    Storage storage_;
};

void add(const float* from, float* to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
}

struct Operand {
    bool transposed;
    std::int64_t leading;
};

// How a row-major product names this [rows, columns] operand.
Operand operand(const View& v) {
    const std::int64_t rows = v.size[1], columns = v.size[2];
    if (v.stride[2] == 1 || columns == 1) return {false, std::max(rows == 1 ? columns : v.stride[1], columns)};
    return {true, std::max(v.stride[2], rows)};
}

void multiply(const View& a, const View& b, const View& out, float beta) {
    const Operand left = operand(a), right = operand(b), result = operand(out);
    for (std::int64_t i = 0; i < out.size[0]; ++i)
        onednn::sgemm({left.transposed, right.transposed, out.size[1], out.size[2], a.size[2], a.as<float>() + i * a.stride[0],
                       left.leading, b.as<float>() + i * b.stride[0], right.leading, beta, out.as<float>() + i * out.stride[0],
                       result.leading});
}

View rows_of_bias(const View& bias, const View& out) {
    View rows = out;
    rows.data = bias.data;
    rows.dtype = bias.dtype;
    rows.stride[0] = rows.stride[1] = 0;
    rows.stride[2] = bias.stride[0];
    return rows;
}

}  // namespace

void CpuKernels::matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) {
    if (a.dtype == Dtype::f64) return reference::matmul(a, b, bias, out, accumulate);
    if (out.numel() == 0) return;
    if (a.size[2] == 0) {
        if (bias) copy(rows_of_bias(bias, out), out);
        else if (!accumulate) fill(out, 0);
        return;
    }
    if (onednn::native(a.dtype) && !bias) return onednn::matmul(a, b, out, accumulate);
    const Widened left(a), right(b), result(out);
    left.load(*this), right.load(*this);
    if (accumulate) result.load(*this);
    if (bias) copy(rows_of_bias(bias, out), result.view());  // the product is then added to the bias
    multiply(left.view(), right.view(), result.view(), accumulate || bias ? 1.0f : 0.0f);
    result.store(*this);
}

void CpuKernels::conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) {
    if (x.dtype == Dtype::f64) return reference::conv_forward(spec, x, w, bias, y);
    const Widened b(bias);
    b.load(*this);
    if (onednn::native(x.dtype)) return onednn::conv_forward(spec, x.dtype, x.data, w.data, b.data(), y.data);
    const Widened input(x), weights(w), result(y);
    input.load(*this), weights.load(*this);
    onednn::conv_forward(spec, Dtype::f32, input.data(), weights.data(), b.data(), result.data());
    result.store(*this);
}

void CpuKernels::conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx, const View& gw,
                               const View& gb, bool accumulate) {
    if (gy.dtype == Dtype::f64) return reference::conv_backward(spec, x, w, gy, gx, gw, gb, accumulate);
    const bool native = onednn::native(gy.dtype);
    const Dtype dtype = native ? gy.dtype : Dtype::f32;
    const auto widened = [&](const View& v) { return native ? Widened(View{}) : Widened(v); };
    const Widened gradient = widened(gy);
    gradient.load(*this);
    const void* g = native ? gy.data : gradient.data();
    if (gx) {
        const Widened weights = widened(w), result = widened(gx);
        weights.load(*this);
        onednn::conv_backward_data(spec, dtype, g, native ? w.data : weights.data(), native ? gx.data : result.data());
        if (!native) result.store(*this);
    }
    if (!gw) return;
    const Widened input = widened(x);
    input.load(*this);
    const void* px = native ? x.data : input.data();
    if (!accumulate) return onednn::conv_backward_weights(spec, dtype, px, g, gw.as<float>(), gb.as<float>());
    const std::int64_t count = gw.numel(), channels = gb ? spec.out_c : 0;
    const Storage sums(std::size_t(count + channels) * sizeof(float), Device::cpu(), Purpose::workspace);
    float* fresh = static_cast<float*>(sums.data());
    onednn::conv_backward_weights(spec, dtype, px, g, fresh, gb ? fresh + count : nullptr);
    add(fresh, gw.as<float>(), count);
    if (gb) add(fresh + count, gb.as<float>(), channels);
}

}  // namespace invar::INVAR_ISA
