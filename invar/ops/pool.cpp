#include "invar/ops/pool.h"

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

Shape input_shape(const PoolSpec& s) {
    return {s.batch, s.in_h, s.in_w, s.channels};
}
Shape output_shape(const PoolSpec& s) {
    return {s.batch, s.out_h, s.out_w, s.channels};
}

struct MaxPool2d {
    static constexpr const char* kName = "max_pool2d";
    static constexpr const char* kDoc = "largest value of each window";
    static constexpr CastClass kCast = CastClass::keep;
    PoolSpec spec;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor x = dense(in[0]);
        Tensor y = Tensor::empty(output_shape(spec), x.dtype(), x.device());
        Tensor winners = Tensor::empty(y.shape(), spec.winners(), x.device());
        kernels_for(x.device()).max_pool(spec, x.view(), y.view(), winners.view());
        ctx.save(winners);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor winners = ctx.saved(0);
        Tensor gx = Tensor::empty(input_shape(spec), g.dtype(), g.device());
        kernels_for(g.device()).max_pool_backward(spec, dense(g).view(), winners.view(), gx.view());
        return {gx};
    }
};

struct AvgPool2d {
    static constexpr const char* kName = "avg_pool2d";
    static constexpr const char* kDoc = "average of each window";
    static constexpr CastClass kCast = CastClass::keep;
    PoolSpec spec;

    Tensor forward(Context&, const Tensors& in) {
        const Tensor x = dense(in[0]);
        Tensor y = Tensor::empty(output_shape(spec), x.dtype(), x.device());
        kernels_for(x.device()).avg_pool(spec, x.view(), y.view());
        return y;
    }
    Tensors backward(Context&, const Tensor& g) {
        Tensor gx = Tensor::empty(input_shape(spec), g.dtype(), g.device());
        kernels_for(g.device()).avg_pool_backward(spec, dense(g).view(), gx.view());
        return {gx};
    }
};

PoolSpec image_spec(const char* op, const Tensor& x) {
    if (x.rank() != 4) fail("{}: the input must be [batch, height, width, channels], not {}", op, x.shape().str());
    if (!is_floating(x.dtype())) fail("{}: needs a floating tensor, not {}", op, x.str());
    PoolSpec spec{};
    // As in PyTorch, a batch may be empty, and nothing else.
    if (x.size(1) * x.size(2) * x.size(3) == 0)
        fail("{}: the images of {} hold no pixel, or pixels without channels", op, x.shape().str());
    spec.batch = x.size(0), spec.in_h = x.size(1), spec.in_w = x.size(2), spec.channels = x.size(3);
    return spec;
}

// How many there are. One that would begin in the padding behind the input is none, rounded up or not.
std::int64_t windows(std::int64_t in, std::int64_t k, std::int64_t stride, std::int64_t pad, bool ceil_mode) {
    const std::int64_t room = in + 2 * pad - k, count = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    return ceil_mode && (count - 1) * stride >= in + pad ? count - 1 : count;
}

PoolSpec window_spec(const char* op, const Tensor& x, const Pool2dOptions& o) {
    PoolSpec spec = image_spec(op, x);
    const auto stride = [&](int i) { return o.stride[i] == 0 ? o.kernel[i] : o.stride[i]; };
    for (int i = 0; i < 2; ++i) {
        if (o.kernel[i] < 1 || stride(i) < 1)
            fail("{}: kernel ({}, {}) and stride ({}, {}) must be at least 1", op, o.kernel[0], o.kernel[1], stride(0),
                 stride(1));
        // A window that lies in the padding alone would have no value.
        if (o.padding[i] < 0 || 2 * o.padding[i] > o.kernel[i])
            fail("{}: padding ({}, {}) must be at most half of kernel ({}, {})", op, o.padding[0], o.padding[1],
                 o.kernel[0], o.kernel[1]);
        // Rounded up, a window may reach beyond the input, by less than a stride.
        if (x.size(1 + i) + 2 * o.padding[i] + (o.ceil_mode ? stride(i) - 1 : 0) < o.kernel[i])
            fail("{}: kernel ({}, {}) is larger than the input {} with its padding ({}, {})", op, o.kernel[0],
                 o.kernel[1], x.shape().str(), o.padding[0], o.padding[1]);
    }
    spec.k_h = o.kernel[0], spec.k_w = o.kernel[1];
    spec.stride_h = stride(0), spec.stride_w = stride(1);
    spec.pad_h = o.padding[0], spec.pad_w = o.padding[1];
    spec.out_h = windows(spec.in_h, spec.k_h, spec.stride_h, spec.pad_h, o.ceil_mode);
    spec.out_w = windows(spec.in_w, spec.k_w, spec.stride_w, spec.pad_w, o.ceil_mode);
    return spec;
}

PoolSpec adaptive_spec(const char* op, const Tensor& x, Pair out) {
    PoolSpec spec = image_spec(op, x);
    if (out[0] < 1 || out[1] < 1 || spec.in_h < 1 || spec.in_w < 1)
        fail("{}: cannot make ({}, {}) out of {}", op, out[0], out[1], x.shape().str());
    spec.out_h = out[0], spec.out_w = out[1];
    spec.adaptive = true;
    return spec;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options) {
    if (!options.count_include_pad) fail<UsageError>("max_pool2d: count_include_pad belongs to avg_pool2d");
    if (is_gelu(options.activation)) fail<UsageError>("max_pool2d: its activation may be relu or none");
    PoolSpec spec = window_spec("max_pool2d", x, options);
    spec.relu = options.activation == Activation::relu;
    return apply(MaxPool2d{spec}, {x});
}
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
    if (options.activation != Activation::none) fail<UsageError>("avg_pool2d: takes no activation");
    PoolSpec spec = window_spec("avg_pool2d", x, options);
    spec.count_include_pad = options.count_include_pad;
    return apply(AvgPool2d{spec}, {x});
}
Tensor adaptive_avg_pool2d(const Tensor& x, Pair out) {
    return apply(AvgPool2d{adaptive_spec("adaptive_avg_pool2d", x, out)}, {x});
}
Tensor adaptive_max_pool2d(const Tensor& x, Pair out) {
    return apply(MaxPool2d{adaptive_spec("adaptive_max_pool2d", x, out)}, {x});
}

}  // namespace invar::ops
