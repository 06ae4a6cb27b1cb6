#include "invar/ops/matmul.h"

#include <algorithm>
#include <utility>

#include "invar/core/error.h"
#include "invar/kernels/flops.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/apply.h"
#include "invar/ops/checkpoint.h"
#include "invar/ops/shape.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

Tensor transposed(const Tensor& x) {
    Shape shape = x.shape(), strides = x.strides();
    std::swap(shape[-1], shape[-2]);
    std::swap(strides[-1], strides[-2]);
    return x.as_strided(0, shape, strides);
}

// x [batch..., m, n] as the rank-3 view that the kernel takes, copied only where no strides can express it.
Tensor as_matrices(const Tensor& x) {
    const std::int64_t m = x.size(-2), n = x.size(-1);
    std::int64_t row = x.strides()[-2], column = x.strides()[-1], batch = 0, count = 1;
    // A dimension of size 1 has no stride to speak of; it gets one that a leading dimension may have.
    if (n == 1) column = 1;
    if (m == 1) row = column == 1 ? n : 1;
    bool direct = (column == 1 && row >= n) || (row == 1 && column >= m);
    for (int i = x.rank() - 3; i >= 0; --i) {
        if (x.size(i) == 1) continue;
        if (count == 1)
            batch = x.strides()[i];
        else
            direct = direct && x.strides()[i] == batch * count;
        count *= x.size(i);
    }
    // oneDNN takes strides that nest, the batch's outside the matrix or between its rows (as heads of attention lie).
    const std::int64_t inner = column == 1 ? n : m, outer = column == 1 ? row : column, rows = column == 1 ? m : n;
    if (count > 1 && batch != 0)
        direct = direct && (batch >= outer * rows || (batch >= inner && outer >= batch * count));
    if (!direct) return dense(x).window(0, {count, m, n});
    return x.as_strided(0, {count, m, n}, {count == 1 ? m * n : batch, row, column});
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& out, bool accumulate = false) {
    const Tensor matrices = out.window(0, {a.size(0), out.size(-2), out.size(-1)});
    count_product(a.view(), matrices.view());
    kernels_for(out.device()).matmul(a.view(), b.view(), View{}, matrices.view(), accumulate);
}

// a [batch..., m, k] times b [batch..., k, n], the batches broadcast.
struct Matmul {
    static constexpr const char* kName = "matmul";
    static constexpr const char* kDoc = "matrix product";
    static constexpr CastClass kCast = CastClass::low;

    static Shape with_tail(Shape batch, std::int64_t rows, std::int64_t columns) {
        batch.push_back(rows), batch.push_back(columns);
        return batch;
    }
    static Shape batch_of(const Tensor& x) {
        Shape batch = x.shape();
        batch.erase(-1), batch.erase(-1);
        return batch;
    }
    static Tensor spread(const Tensor& x, const Shape& batch) {
        return as_matrices(expanded(x, with_tail(batch, x.size(-2), x.size(-1))));
    }

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor &a = in[0], &b = in[1];
        if (a.dtype() != b.dtype() || !is_floating(a.dtype()))
            fail("matmul: needs floating operands of one dtype, not {} and {}", a.str(), b.str());
        const Shape batch = broadcast(batch_of(a), batch_of(b), kName);
        Tensor y = Tensor::empty(with_tail(batch, a.size(-2), b.size(-1)), a.dtype(), a.device());
        multiply(spread(a, batch), spread(b, batch), y);
        ctx.save(a), ctx.save(b);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor a = ctx.saved(0), b = ctx.saved(1);
        return {gradient(ctx, 0, a, g, transposed(b)), gradient(ctx, 1, b, transposed(a), g)};
    }
    static Tensor gradient(const Context& ctx, std::size_t i, const Tensor& x, const Tensor& left,
                           const Tensor& right) {
        if (!ctx.needs(i)) return {};
        const Shape batch = broadcast(batch_of(left), batch_of(right), kName);
        const Shape shape = with_tail(batch, x.size(-2), x.size(-1));
        const bool direct = shape == x.shape();
        const Dtype dtype = !direct || ctx.is_weight(i) ? sum_dtype(x.dtype()) : x.dtype();
        Context::Slot slot{};
        if (direct && ctx.is_weight(i))
            slot = ctx.slot(i, shape, dtype, x.device());
        else
            slot.tensor = Tensor::empty(shape, dtype, x.device());
        multiply(spread(left, batch), spread(right, batch), slot.tensor, slot.accumulate);
        return direct ? slot.result() : reduced_to(slot.tensor, x.shape(), ctx.is_weight(i) ? dtype : x.dtype());
    }
};

struct Linear {
    static constexpr const char* kName = "linear";
    static constexpr const char* kDoc = "x times the transposed weight, plus bias";
    static constexpr CastClass kCast = CastClass::low;
    Activation activation = Activation::none;
    Shape x_shape{};
    // Backward is past the activation: what it gets is the gradient of what that read, and the bias has its own.
    bool begun = false;
    Tensor begun_bias{};

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor &x = in[0], &w = in[1];
        const Tensor bias = in[2] ? dense(in[2]) : in[2];  // held until the product is done: kernels see a view of it
        if (x.dtype() != w.dtype() || (bias && bias.dtype() != x.dtype()) || !is_floating(x.dtype()))
            fail("linear: needs input, weight and bias of one floating dtype, not {}, {} and {}", x.str(), w.str(),
                 bias.str());
        x_shape = x.shape();
        const Tensor rows = matrix(dense(x), w.size(1)), weight = as_matrices(transposed(w));
        Shape shape = x_shape;
        shape[-1] = w.size(0);
        Tensor y = Tensor::empty(shape, x.dtype(), x.device()), before;
        if (is_gelu(activation) && ctx.recording()) before = Tensor::empty_like(y);
        Epilogue epilogue{.bias = view_of(bias), .activation = activation};
        if (before) epilogue.before = matrix(before, w.size(0)).view();
        if (activation != Activation::none || !is_unread_product()) {
            count_product(rows.view(), matrix(y, w.size(0)).view());
            kernels_for(x.device())
                .matmul_with(epilogue, rows.view(), weight.view(), matrix(y, w.size(0)).view(), false);
        }
        ctx.save(rows), ctx.save(w);
        if (activation != Activation::none) ctx.save(before ? before : y);
        return y;
    }
    bool can_recompute(const Context&) const { return is_gelu(activation); }
    void recompute(Context& ctx, const Tensor& y) {
        kernels_for(y.device()).unary(unary_op(activation), ctx.saved(2).view(), y.view(), {});
    }
    // The gradient of what the activation read takes the place of that of its result.
    void recompute_in_backward(Context& ctx, const Tensor& gradient, const Tensor& y) {
        const Context::Slot gb = slot(ctx, 2, {gradient.size(-1)}, gradient);
        const Tensor g = matrix(gradient, gradient.size(-1));
        pass_activation(ctx, g, g, gb, gb.accumulate, matrix(y, gradient.size(-1)));
        begun = true, begun_bias = gb.result();
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        Kernels& kernels = kernels_for(gradient.device());
        const Tensor w = ctx.saved(1);
        const bool direct = activation == Activation::none, passed = std::exchange(begun, false);
        Context::Slot gw = slot(ctx, 1, w.shape(), w), gb{};
        if (!passed) gb = slot(ctx, 2, {w.size(0)}, w);
        const bool accumulate = share_accumulation(gw, gb);
        Tensor g = matrix(dense(gradient), w.size(0));
        if (!direct && !passed) {
            const Tensor before = Tensor::empty_like(g);
            pass_activation(ctx, g, before, gb, accumulate, {});
            g = before;
        }
        Tensor gx;
        if (ctx.needs(0)) {
            gx = Tensor::empty(x_shape, w.dtype(), w.device());
            count_product(g.view(), matrix(gx, w.size(1)).view());
            kernels.matmul(g.view(), as_matrices(w).view(), View{}, matrix(gx, w.size(1)).view(), false);
        }
        // The product itself writes FP32, adding into the leaf: nothing is rounded to 16 bits on the way.
        if (gw.tensor) {
            const Tensor x = ctx.saved(0, gx);
            Epilogue epilogue;
            if (direct) epilogue.row_sums = gb.view();
            const Tensor to = gw.tensor.window(0, {1, w.size(0), w.size(1)});
            count_product(transposed(g).view(), to.view());
            kernels.matmul_with(epilogue, transposed(g).view(), x.view(), to.view(), accumulate);
        } else if (direct && gb.tensor) {
            kernels.sum({1, g.size(1), g.size(2)}, g.view(), gb.view(), 1.0, accumulate);
        }
        return {gx, gw.result(), passed ? std::exchange(begun_bias, {}) : gb.result()};
    }
    // Through the activation, with the gradient of the bias, and the result again where that is wanted.
    void pass_activation(Context& ctx, const Tensor& g, const Tensor& to, const Context::Slot& gb, bool accumulate,
                         const Tensor& again) const {
        const Tensor saved = matrix(ctx.saved(2), g.size(2));
        kernels_for(g.device())
            .activation_backward(activation, g.view(), saved.view(), to.view(), gb.view(), accumulate, view_of(again));
    }
    static Context::Slot slot(const Context& ctx, std::size_t i, const Shape& shape, const Tensor& like) {
        return ctx.needs(i) ? ctx.slot(i, shape, sum_dtype(like.dtype()), like.device()) : Context::Slot{};
    }
    static Tensor matrix(const Tensor& x, std::int64_t columns) {
        return x.window(0, {1, columns == 0 ? 0 : x.numel() / columns, columns});
    }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
    const bool row = a.rank() == 1, column = b.rank() == 1;
    if (a.rank() == 0 || b.rank() == 0 || a.size(-1) != b.size(column ? 0 : -2))
        fail(
            "matmul: shapes {} and {} do not multiply; the last size of the first must be the last but one of the "
            "second",
            a.shape().str(), b.shape().str());
    const Tensor left = row ? unsqueeze(a, 0) : a, right = column ? unsqueeze(b, 1) : b;
    if (left.rank() > 2 && right.rank() == 2) {  // one large product instead of a batch of small ones
        Shape shape = left.shape();
        shape[-1] = 1;
        const std::int64_t rows = shape.numel();
        shape[-1] = right.size(-1);
        const Tensor y = apply(Matmul{}, {reshape(left, {rows, left.size(-1)}), right});
        const Tensor whole = reshape(y, shape);
        return column ? squeeze(whole, -1) : whole;
    }
    Tensor y = apply(Matmul{}, {left, right});
    if (row) y = squeeze(y, -2);
    return column ? squeeze(y, -1) : y;
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation) {
    if (w.rank() != 2) fail("linear: the weight must be [out, in], not {}", w.shape().str());
    if (x.rank() < 1 || x.size(-1) != w.size(1))
        fail("linear: input {} for a weight {}; its last size must be {}", x.shape().str(), w.shape().str(), w.size(1));
    if (bias && bias.shape() != Shape{w.size(0)})
        fail("linear: bias {} for a weight {}; it must be [{}]", bias.shape().str(), w.shape().str(), w.size(0));
    return apply(Linear{activation}, {x, w, bias});
}

}  // namespace invar::ops
