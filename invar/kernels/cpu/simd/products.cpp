// Matrix products and convolutions: oneDNN does the arithmetic. Where the CPU has no native 16-bit product, operands
// are widened to FP32 scratch and results rounded on the way out: 16-bit operands, FP32 accumulation, as on a tensor
// core.
#include <algorithm>

#include "invar/core/memory.h"
#include "invar/kernels/cpu/onednn.h"
#include "invar/kernels/cpu/reference.h"
#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/rows.h"
#include "invar/kernels/pointwise.h"

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
        const bool transposed =
            view_.rank >= 2 && original.stride[original.rank - 1] != 1 && original.stride[original.rank - 2] == 1;
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
    static std::size_t bytes_for(const View& v) {
        return !v || v.dtype == Dtype::f32 ? 0 : std::size_t(v.numel()) * sizeof(float);
    }
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

// Whether a library would call this a matrix or a vector of its own: rows or columns side by side, and a vector without
// gaps. oneDNN 3 loses digits of BF16 vectors that have gaps, or gets them wrong.
bool is_dense_matrix(const View& v) {
    if (v.size[1] == 1) return v.stride[2] == 1 || v.size[2] == 1;
    if (v.size[2] == 1) return v.stride[1] == 1;
    return (v.stride[2] == 1 && v.stride[1] >= v.size[2]) || (v.stride[1] == 1 && v.stride[2] >= v.size[1]);
}

void multiply(const View& a, const View& b, const View& out, float beta) {
    const Operand left = operand(a), right = operand(b), result = operand(out);
    for (std::int64_t i = 0; i < out.size[0]; ++i)
        onednn::sgemm({left.transposed, right.transposed, out.size[1], out.size[2], a.size[2],
                       a.as<float>() + i * a.stride[0], left.leading, b.as<float>() + i * b.stride[0], right.leading,
                       beta, out.as<float>() + i * out.stride[0], result.leading});
}

// How much of a right operand is widened at a time: it stays in the shared cache until it is used, and the left operand
// is packed but a few times.
constexpr std::int64_t kPanelBytes = std::int64_t(8) << 20;
// How much of the images each thread widens at a time.
constexpr std::int64_t kChunkBytes = std::int64_t(2) << 20;

// Positions [begin, begin + count) of one dimension.
View part_of(const View& view, int dim, std::int64_t begin, std::int64_t count) {
    View part = view;
    part.data = byte_at(view.data, view.dtype, begin * view.stride[dim]);
    part.size[dim] = count;
    return part;
}

// Multiplies by a 16-bit right operand that is widened panel by panel: over its columns where those are its rows in
// memory (a weight in forward), else over the inner dimension (the same weight in backward).
void multiply_by_panels(Kernels& kernels, const View& a, const View& b, const View& out, float beta) {
    const bool by_columns = operand(b).transposed;
    const int dim = by_columns ? 2 : 1;
    const std::int64_t total = b.size[dim], row_bytes = b.numel() / total * std::int64_t(sizeof(float));
    const std::int64_t panel =
        std::clamp<std::int64_t>(kPanelBytes / std::max<std::int64_t>(row_bytes, 1), 64, total < 64 ? 64 : total);
    for (std::int64_t begin = 0; begin < total; begin += panel) {
        const std::int64_t count = std::min(panel, total - begin);
        const Widened wide(part_of(b, dim, begin, count));
        wide.load(kernels);
        if (by_columns)
            multiply(a, wide.view(), part_of(out, 2, begin, count), beta);
        else
            multiply(part_of(a, 2, begin, count), wide.view(), out, begin == 0 ? beta : 1.0f);
    }
}

// How many products a thread adds up in one FP32 accumulator of a weight gradient: oneDNN keeps a single one over all
// images, and what rounding takes from it grows with the root of their number.
constexpr std::int64_t kTermsInOneSum = 4096;

// Calls f(spec of the chunk, its first image) for chunks of so many images a thread.
template <class F>
void for_image_chunks(const ConvSpec& spec, std::int64_t images_each, F&& f) {
    const std::int64_t images = std::min(std::max<std::int64_t>(images_each, 1) * threads(), spec.batch);
    for (std::int64_t first = 0; first < spec.batch; first += images) {
        ConvSpec chunk = spec;
        chunk.batch = std::min(images, spec.batch - first);
        f(chunk, first);
    }
}

// How many images, widened, a thread's part of the cache holds.
std::int64_t cached_images(const ConvSpec& spec) {
    const std::int64_t image_bytes =
        (spec.in_h * spec.in_w * spec.in_c + spec.out_h * spec.out_w * spec.out_c) * std::int64_t(sizeof(float));
    return kChunkBytes / image_bytes;
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
        if (bias)
            copy(rows_of_bias(bias, out), out);
        else if (!accumulate)
            fill(out, 0);
        return;
    }
    const bool dense = is_dense_matrix(a) && is_dense_matrix(b) && is_dense_matrix(out);
    if (onednn::native(a.dtype) && dense && (!bias || (bias.stride[0] == 1 && !accumulate)))
        return onednn::matmul(a, b, bias, out, accumulate);
    const Widened left(a), result(out);
    left.load(*this);
    if (accumulate) result.load(*this);
    if (bias) copy(rows_of_bias(bias, out), result.view());  // the product is then added to the bias
    const float beta = accumulate || bias ? 1.0f : 0.0f;
    if (b.dtype == Dtype::f32)
        multiply(left.view(), b, result.view(), beta);
    else
        multiply_by_panels(*this, left.view(), b, result.view(), beta);
    result.store(*this);
}

void CpuKernels::conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) {
    if (spec.activation == Activation::relu) {
        conv_forward(without_activation(spec), x, w, bias, y);
        return unary(UnaryOp::Relu, y, y, {});
    }
    if (x.dtype == Dtype::f64) return reference::conv_forward(spec, x, w, bias, y);
    const Widened b(bias);
    b.load(*this);
    if (x.dtype == Dtype::f32 || onednn::native(x.dtype))
        return onednn::conv_forward(spec, x.dtype, x.data, w.data, b.data(), y.data);
    const Widened weights(w);
    weights.load(*this);
    for_image_chunks(spec, cached_images(spec), [&](const ConvSpec& chunk, std::int64_t first) {
        const Widened input(part_of(x, 0, first, chunk.batch)), result(part_of(y, 0, first, chunk.batch));
        input.load(*this);
        onednn::conv_forward(chunk, Dtype::f32, input.data(), weights.data(), b.data(), result.data());
        result.store(*this);
    });
}

void CpuKernels::conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx,
                               const View& gw, const View& gb, bool accumulate, const View& y, const View& pending) {
    if (pending) {
        conv_backward(spec, x, w, gy, gx, gw, gb, accumulate, y, {});
        return add_into(pending, gx);
    }
    if (spec.activation == Activation::relu) {
        const Storage memory(std::size_t(gy.numel()) * size_of(gy.dtype), Device::cpu(), Purpose::workspace);
        View passed = gy;
        passed.data = memory.data();
        unary_backward(UnaryOp::Relu, gy, y, passed, {});
        return conv_backward(without_activation(spec), x, w, passed, gx, gw, gb, accumulate, {}, {});
    }
    if (gy.dtype == Dtype::f64) return reference::conv_backward(spec, x, w, gy, gx, gw, gb, accumulate);
    // oneDNN sums a bias's gradient in one FP32 accumulator over all images: good enough for 16-bit gradients only.
    const bool exact_bias = gb && (!gw || gy.dtype == Dtype::f32);
    const auto bias_gradient = [&](const ConvSpec& chunk, const View& gradient, bool add_to) {
        sum({1, chunk.batch * chunk.out_h * chunk.out_w, chunk.out_c}, gradient, gb, 1.0, add_to);
    };
    if (exact_bias && !gw) bias_gradient(spec, gy, accumulate);
    const Storage sums(gw ? std::size_t(gw.numel() + spec.out_c) * sizeof(float) : 0, Device::cpu(),
                       Purpose::workspace);
    // The first chunk's weight gradient may overwrite; every later one is made aside and added.
    const auto weight_gradient = [&](const ConvSpec& chunk, Dtype dtype, const void* in, const void* g, bool add_to) {
        float* fresh = add_to ? static_cast<float*>(sums.data()) : gw.as<float>();
        float* fresh_bias = !gb || exact_bias ? nullptr : add_to ? fresh + gw.numel() : gb.as<float>();
        onednn::conv_backward_weights(chunk, dtype, in, g, fresh, fresh_bias);
        if (!add_to) return;
        add(fresh, gw.as<float>(), gw.numel());
        if (fresh_bias) add(fresh_bias, gb.as<float>(), spec.out_c);
    };
    if (gy.dtype == Dtype::f32 || onednn::native(gy.dtype)) {
        // 16-bit operands carry fewer digits than the longest sum loses.
        const bool all_at_once = !gw || gy.dtype != Dtype::f32;
        const std::int64_t images = all_at_once ? spec.batch : kTermsInOneSum / (spec.out_h * spec.out_w);
        return for_image_chunks(spec, images, [&](const ConvSpec& chunk, std::int64_t first) {
            const View gradient = part_of(gy, 0, first, chunk.batch);
            if (gx) {
                void* const result = part_of(gx, 0, first, chunk.batch).data;
                onednn::conv_backward_data(chunk, gy.dtype, gradient.data, w.data, result);
            }
            if (!gw) return;
            const void* const input = part_of(x, 0, first, chunk.batch).data;
            weight_gradient(chunk, gy.dtype, input, gradient.data, accumulate || first > 0);
            if (exact_bias) bias_gradient(chunk, gradient, accumulate || first > 0);
        });
    }
    const Widened weights(gx ? w : View{});
    weights.load(*this);
    for_image_chunks(spec, cached_images(spec), [&](const ConvSpec& chunk, std::int64_t first) {
        const Widened gradient(part_of(gy, 0, first, chunk.batch));
        gradient.load(*this);
        if (gx) {
            const Widened result(part_of(gx, 0, first, chunk.batch));
            onednn::conv_backward_data(chunk, Dtype::f32, gradient.data(), weights.data(), result.data());
            result.store(*this);
        }
        if (gw) {
            const Widened input(part_of(x, 0, first, chunk.batch));
            input.load(*this);
            weight_gradient(chunk, Dtype::f32, input.data(), gradient.data(), accumulate || first > 0);
        }
    });
}

}  // namespace invar::INVAR_ISA
