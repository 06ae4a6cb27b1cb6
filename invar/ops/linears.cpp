#include "invar/ops/linears.h"

#include <utility>

#include "invar/core/error.h"
#include "invar/kernels/flops.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

// Whether dense tensors lie one behind the other in one storage.
bool adjacent(const Tensors& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (!parts[i] || !parts[i].is_contiguous()) return false;
        if (i == 0) continue;
        const Tensor& last = parts[i - 1];
        if (parts[i].storage() != last.storage() || parts[i].dtype() != last.dtype() ||
            parts[i].offset() != last.offset() + last.numel())
            return false;
    }
    return true;
}

// [1, rows, columns] of a dense matrix, `columns` of it from `first` on.
Tensor columns_of(const Tensor& matrix, std::int64_t first, std::int64_t columns) {
    const std::int64_t rows = matrix.size(0), all = matrix.size(1);
    return matrix.as_strided(first, {1, rows, columns}, {rows * all, all, 1});
}
Tensor turned(const Tensor& x) {
    return x.as_strided(0, {x.size(0), x.size(2), x.size(1)}, {x.strides()[0], x.strides()[2], x.strides()[1]});
}

struct Linears {
    static constexpr const char* kName = "linears";
    static constexpr const char* kDoc = "x times several transposed weights, side by side, plus biases";
    static constexpr CastClass kCast = CastClass::low;
    std::size_t count;
    Shape x_shape{};

    // Dense tensors, one below the other: a window where they lie so, else a copy.
    static Tensor joined(const Tensors& parts) {
        std::int64_t rows = 0;
        for (const Tensor& part : parts) rows += part.size(0);
        Shape shape = parts[0].shape();
        shape[0] = rows;
        Shape strides = parts[0].strides();
        if (adjacent(parts)) return parts[0].as_strided(0, shape, strides);
        const Tensor all = Tensor::empty(shape, parts[0].dtype(), parts[0].device());
        std::int64_t at = 0;
        for (const Tensor& part : parts) {
            kernels_for(all.device()).copy(part.view(), all.window(at, part.shape()).view());
            at += part.numel();
        }
        return all;
    }
    static Tensor matrix(const Tensor& x) { return x.window(0, {1, x.size(0), x.size(1)}); }
    static void multiply(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, bool accumulate) {
        count_product(a.view(), out.view());
        kernels_for(out.device()).matmul(a.view(), b.view(), view_of(bias), out.view(), accumulate);
    }

    Tensor forward(Context& ctx, const Tensors& in) {
        x_shape = in[0].shape();
        Tensors weights, biases;
        std::int64_t outputs = 0;
        for (std::size_t i = 0; i < count; ++i) {
            weights.push_back(dense(in[1 + i]));
            outputs += weights.back().size(0);
            if (in[1 + count + i]) biases.push_back(dense(in[1 + count + i]));
        }
        const std::int64_t width = weights[0].size(1), rows = width > 0 ? in[0].numel() / width : 0;
        const Tensor x = dense(in[0]).window(0, {1, rows, width});
        Shape shape = x_shape;
        shape[-1] = outputs;
        const Tensor y = Tensor::empty(shape, x.dtype(), x.device()), rows_of_y = y.window(0, {rows, outputs});
        const Tensor bias = biases.empty() ? Tensor() : joined(biases);
        multiply(x, turned(matrix(joined(weights))), bias, columns_of(rows_of_y, 0, outputs), false);
        ctx.save(x);
        for (const Tensor& w : weights) ctx.save(w);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        Tensors weights;
        std::int64_t outputs = 0;
        for (std::size_t i = 0; i < count; ++i) {
            weights.push_back(ctx.saved(1 + i));
            outputs += weights.back().size(0);
        }
        const std::int64_t width = weights[0].size(1), rows = width > 0 ? x_shape.numel() / width : 0;
        const Tensor g = dense(gradient).window(0, {rows, outputs});
        Kernels& kernels = kernels_for(g.device());
        Tensors results(1 + 2 * count);
        if (ctx.needs(0)) {
            const Tensor gx = Tensor::empty(x_shape, g.dtype(), g.device());
            multiply(columns_of(g, 0, outputs), matrix(joined(weights)), {}, gx.window(0, {1, rows, width}), false);
            results[0] = gx;
        }
        const Tensor x = ctx.saved(0, results[0]);
        std::vector<Context::Slot> slots;
        Tensors targets;
        bool same = true;
        for (std::size_t i = 0; i < count; ++i) {
            slots.push_back(ctx.needs(1 + i) ? ctx.slot(1 + i, weights[i].shape(), sum_dtype(x.dtype()), x.device())
                                             : Context::Slot{});
            targets.push_back(slots.back().tensor);
            same = same && slots.back().accumulate == slots[0].accumulate;
        }
        if (same && adjacent(targets)) {
            const Tensor all = targets[0].as_strided(0, {1, outputs, x.size(2)}, {outputs * x.size(2), x.size(2), 1});
            multiply(turned(columns_of(g, 0, outputs)), x, {}, all, slots[0].accumulate);
        } else {
            std::int64_t first = 0;
            for (std::size_t i = 0; i < count; first += weights[i++].size(0))
                if (targets[i])
                    multiply(turned(columns_of(g, first, weights[i].size(0))), x, {},
                             targets[i].window(0, {1, weights[i].size(0), x.size(2)}), slots[i].accumulate);
        }
        std::int64_t first = 0;
        for (std::size_t i = 0; i < count; first += weights[i++].size(0)) {
            results[1 + i] = slots[i].result();
            if (!ctx.needs(1 + count + i)) continue;
            const Context::Slot slot = ctx.slot(1 + count + i, {weights[i].size(0)}, sum_dtype(x.dtype()), x.device());
            const Tensor part = dense(g.as_strided(first, {g.size(0), weights[i].size(0)}, {outputs, 1}));
            kernels.sum({1, part.size(0), part.size(1)}, part.view(), slot.view(), 1.0, slot.accumulate);
            results[1 + count + i] = slot.result();
        }
        return results;
    }
};

struct Swiglu {
    static constexpr const char* kName = "swiglu";
    static constexpr const char* kDoc = "silu(gate) * up, of both side by side";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor begun{};  // the gradient, where it was made with the result

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor x = dense(in[0]);
        Shape shape = x.shape();
        shape[-1] /= 2;
        Tensor y = Tensor::empty(shape, x.dtype(), x.device());
        kernels_for(x.device()).swiglu(x.view(), y.view());
        ctx.save(x);
        return y;
    }
    void recompute(Context& ctx, const Tensor& y) {
        const Tensor x = ctx.saved(0);
        kernels_for(y.device()).swiglu(x.view(), y.view());
    }
    void recompute_in_backward(Context& ctx, const Tensor& gradient, const Tensor& y) {
        begun = pass(ctx, gradient, y);
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        if (begun) return {std::exchange(begun, {})};
        return {pass(ctx, dense(gradient), {})};
    }
    static Tensor pass(Context& ctx, const Tensor& g, const Tensor& again) {
        const Tensor x = ctx.saved(0), gx = Tensor::empty_like(x);
        kernels_for(x.device()).swiglu_backward(g.view(), x.view(), gx.view(), view_of(again));
        return gx;
    }
};

}  // namespace

Tensor linears(const Tensor& x, const Tensors& weights, const Tensors& biases) {
    if (weights.empty() || (!biases.empty() && biases.size() != weights.size()))
        fail("linears: {} weights and {} biases; there must be a bias for each weight, or none", weights.size(),
             biases.size());
    Tensors inputs{x};
    for (const Tensor& w : weights) {
        if (w.rank() != 2 || x.rank() < 1 || x.size(-1) != w.size(1))
            fail("linears: input {} for a weight {}; its last size must be that of [out, in]", x.shape().str(),
                 w.shape().str());
        inputs.push_back(w);
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
        const Tensor bias = biases.empty() ? Tensor() : biases[i];
        if (bias && bias.shape() != Shape{weights[i].size(0)})
            fail("linears: bias {} for a weight {}", bias.shape().str(), weights[i].shape().str());
        if (i > 0 && bool(bias) != bool(inputs[1 + weights.size()]))
            fail("linears: some of the biases are there and some are not");
        inputs.push_back(bias);
    }
    return invar::apply(Linears{weights.size()}, inputs);
}

Tensor swiglu(const Tensor& gate_up) {
    if (gate_up.rank() < 1 || gate_up.size(-1) % 2 != 0 || !is_floating(gate_up.dtype()))
        fail("swiglu: needs floating [..., 2 n], not {}", gate_up.str());
    return apply(Swiglu{}, {gate_up});
}

}  // namespace invar::ops
