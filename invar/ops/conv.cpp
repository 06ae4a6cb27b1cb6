#include "invar/ops/conv.h"

#include <algorithm>
#include <string_view>

#include "invar/core/error.h"
#include "invar/kernels/flops.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/apply.h"
#include "invar/ops/pad.h"
#include "invar/ops/shape.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

void check_dtypes(const char* op, const Tensors& in) {
    const Tensor &x = in[0], &w = in[1], &bias = in[2];
    if (x.dtype() != w.dtype() || (bias && bias.dtype() != x.dtype()) || !is_floating(x.dtype()))
        fail("{}: needs input, weight and bias of one floating dtype, not {}, {} and {}", op, x.str(), w.str(),
             bias.str());
}

Shape input_shape(const ConvSpec& s) {
    return {s.batch, s.in_h, s.in_w, s.in_c};
}
Shape output_shape(const ConvSpec& s) {
    return {s.batch, s.out_h, s.out_w, s.out_c};
}

Context::Slot weight_slot(Context& ctx, std::size_t i, const Shape& shape, const Tensor& like) {
    return ctx.needs(i) ? ctx.slot(i, shape, sum_dtype(like.dtype()), like.device()) : Context::Slot{};
}

// The gradients of parameters that took no part: zero, or what has been added up so far.
void zero_unless_added(const Context::Slot& slot, bool accumulate) {
    if (slot.tensor && !accumulate) kernels_for(slot.tensor.device()).fill(slot.view(), 0);
}

void count_gradients(const Context& ctx, const ConvSpec& spec) {
    for (const std::size_t i : {0, 1})
        if (ctx.needs(i)) count_convolution(spec);
}

struct Conv2d {
    static constexpr const char* kName = "conv2d";
    static constexpr const char* kDoc = "convolution over images";
    static constexpr CastClass kCast = CastClass::low;
    ConvSpec spec;

    Tensor forward(Context& ctx, const Tensors& in) {
        check_dtypes(kName, in);
        count_convolution(spec);
        const Tensor x = dense(in[0]), w = dense(in[1]), bias = in[2] ? dense(in[2]) : in[2];
        Tensor y = Tensor::empty(output_shape(spec), x.dtype(), x.device());
        if (spec.batch > 0) kernels_for(x.device()).conv_forward(spec, x.view(), w.view(), view_of(bias), y.view());
        ctx.save(x), ctx.save(w);
        if (spec.activation != Activation::none) ctx.save(y);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        count_gradients(ctx, spec);
        const Tensor x = ctx.saved(0), w = ctx.saved(1), g = dense(gradient);
        const Tensor y = spec.activation != Activation::none ? ctx.saved(2) : Tensor{};
        Tensor gx;
        if (ctx.needs(0)) gx = Tensor::empty_like(x);
        const Tensor pending = spec.batch > 0 ? ctx.take_pending(0, x.shape(), x.dtype()) : Tensor{};
        Context::Slot gw = weight_slot(ctx, 1, w.shape(), w), gb = weight_slot(ctx, 2, {spec.out_c}, w);
        const bool accumulate = share_accumulation(gw, gb);
        if (spec.batch > 0) {
            Kernels& kernels = kernels_for(g.device());
            kernels.conv_backward(spec, x.view(), w.view(), g.view(), view_of(gx), gw.view(), gb.view(), accumulate,
                                  view_of(y), view_of(pending));
        } else {
            zero_unless_added(gw, accumulate), zero_unless_added(gb, accumulate);
        }
        return {gx, gw.result(), gb.result()};
    }
};

// Its forward is conv2d's gradient of the input; `spec` is that conv2d, from our result to our input.
struct ConvTranspose2d {
    static constexpr const char* kName = "conv_transpose2d";
    static constexpr const char* kDoc = "transposed convolution over images";
    static constexpr CastClass kCast = CastClass::low;
    ConvSpec spec;

    Tensor forward(Context& ctx, const Tensors& in) {
        check_dtypes(kName, in);
        count_convolution(spec);
        const Tensor x = dense(in[0]), w = dense(in[1]);
        Kernels& kernels = kernels_for(x.device());
        Tensor y = Tensor::empty(input_shape(spec), x.dtype(), x.device());
        const Tensor bias = in[2] ? expanded(in[2], y.shape()) : Tensor{};
        if (spec.has_products())
            kernels.conv_backward(spec, View{}, w.view(), x.view(), y.view(), View{}, View{}, false, View{},
                                  view_of(bias));
        else if (bias)
            kernels.copy(bias.view(), y.view());
        else
            kernels.fill(y.view(), 0);
        ctx.save(x), ctx.save(w);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        count_gradients(ctx, spec);
        const Tensor x = ctx.saved(0), w = ctx.saved(1), g = dense(gradient);
        Kernels& kernels = kernels_for(g.device());
        Tensors grads(3);
        if (ctx.needs(0)) {
            grads[0] = Tensor::empty_like(x);
            if (spec.has_products())
                kernels.conv_forward(spec, g.view(), w.view(), View{}, grads[0].view());
            else
                kernels.fill(grads[0].view(), 0);
        }
        if (ctx.needs(1)) {
            const Context::Slot gw = weight_slot(ctx, 1, w.shape(), w);
            if (spec.has_products())
                kernels.conv_backward(spec, g.view(), w.view(), x.view(), View{}, gw.view(), View{}, gw.accumulate);
            else
                zero_unless_added(gw, gw.accumulate);
            grads[1] = gw.result();
        }
        if (ctx.needs(2)) {
            const Context::Slot gb = weight_slot(ctx, 2, {spec.in_c}, w);
            kernels.sum({1, spec.batch * spec.in_h * spec.in_w, spec.in_c}, g.view(), gb.view(), 1.0, gb.accumulate);
            grads[2] = gb.result();
        }
        return grads;
    }
};

void check_arguments(const char* op, const Tensor& x, const Tensor& w, const Conv2dOptions& o) {
    if (x.rank() != 4) fail("{}: the input must be [batch, height, width, channels], not {}", op, x.shape().str());
    if (w.rank() != 4) fail("{}: the weight must have 4 dimensions, not {}", op, w.shape().str());
    // As in PyTorch, a batch may be empty, and nothing else.
    if (w.numel() == 0) fail("{}: the sizes of the weight {} must all be at least 1", op, w.shape().str());
    if (x.size(1) * x.size(2) == 0) fail("{}: the images of {} hold no pixel", op, x.shape().str());
    for (int i = 0; i < 2; ++i) {
        const bool good = o.stride[i] > 0 && o.dilation[i] > 0 && o.padding[i] >= 0 && o.output_padding[i] >= 0;
        if (!good || o.groups < 1)
            fail(
                "{}: stride ({}, {}), dilation ({}, {}) and groups {} must be at least 1, padding ({}, {}) and output "
                "padding ({}, {}) at least 0",
                op, o.stride[0], o.stride[1], o.dilation[0], o.dilation[1], o.groups, o.padding[0], o.padding[1],
                o.output_padding[0], o.output_padding[1]);
    }
}

void check_bias(const char* op, const Tensor& bias, const Tensor& w, std::int64_t channels) {
    if (bias && bias.shape() != Shape{channels})
        fail("{}: bias {} for a weight {}; it must be [{}]", op, bias.shape().str(), w.shape().str(), channels);
}

ConvSpec make_spec(const Tensor& w, const Conv2dOptions& o) {
    ConvSpec spec{};
    spec.k_h = w.size(1), spec.k_w = w.size(2);
    spec.stride_h = o.stride[0], spec.stride_w = o.stride[1];
    spec.pad_h = o.padding[0], spec.pad_w = o.padding[1];
    spec.dilation_h = o.dilation[0], spec.dilation_w = o.dilation[1];
    spec.groups = o.groups;
    spec.activation = o.activation;
    return spec;
}

// What "same" comes to at each end of x under w. Where it is odd, the last row and column are a copy's, as in PyTorch.
Tensor conv_same(const Tensor& x, const Tensor& w, const Tensor& bias, Conv2dOptions options) {
    if (options.stride != Pair(1))
        fail<UsageError>("conv2d: padding \"same\" keeps the size, which stride ({}, {}) does not", options.stride[0],
                         options.stride[1]);
    const std::int64_t h = options.dilation[0] * (w.size(1) - 1), v = options.dilation[1] * (w.size(2) - 1);
    options.padding = {h / 2, v / 2};
    return conv2d(h % 2 + v % 2 > 0 ? pad(x, {0, v % 2, 0, h % 2}) : x, w, bias, options);
}

}  // namespace

Padding::Padding(const char* word) : same(std::string_view(word) == "same") {
    if (!same && std::string_view(word) != "valid")
        fail<UsageError>("convolution: padding \"{}\"; it may be a number, \"same\" or \"valid\"", word);
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
    check_arguments(Conv2d::kName, x, w, options);
    if (options.padding.same) return conv_same(x, w, bias, options);
    if (is_gelu(options.activation)) fail<UsageError>("conv2d: its activation may be relu or none");
    ConvSpec spec = make_spec(w, options);
    spec.batch = x.size(0), spec.in_h = x.size(1), spec.in_w = x.size(2), spec.in_c = x.size(3), spec.out_c = w.size(0);
    if (spec.in_c != w.size(3) * spec.groups)
        fail("conv2d: input {} for a weight {} with {} groups; its channels must be {}", x.shape().str(),
             w.shape().str(), spec.groups, w.size(3) * spec.groups);
    if (spec.out_c % spec.groups != 0)
        fail("conv2d: the {} output channels of weight {} do not divide into {} groups", spec.out_c, w.shape().str(),
             spec.groups);
    check_bias(Conv2d::kName, bias, w, spec.out_c);
    const auto out = [](std::int64_t in, std::int64_t k, std::int64_t stride, std::int64_t pad, std::int64_t dilation) {
        const std::int64_t room = in + 2 * pad - dilation * (k - 1) - 1;
        return room < 0 ? 0 : room / stride + 1;
    };
    spec.out_h = out(spec.in_h, spec.k_h, spec.stride_h, spec.pad_h, spec.dilation_h);
    spec.out_w = out(spec.in_w, spec.k_w, spec.stride_w, spec.pad_w, spec.dilation_w);
    if (spec.out_h < 1 || spec.out_w < 1)
        fail("conv2d: the window of weight {} is larger than the input {} with its padding ({}, {})", w.shape().str(),
             x.shape().str(), spec.pad_h, spec.pad_w);
    return apply(Conv2d{spec}, {x, w, bias});
}

Conv2dOptions image_options(const Conv1dOptions& o) {
    if (o.padding[0] != o.padding[1])
        fail<UsageError>("conv1d: padding ({}, {}); takes one number", o.padding[0], o.padding[1]);
    const Padding padding = o.padding.same ? o.padding : Padding(0, o.padding[1]);
    return {{1, o.stride}, padding, {1, o.dilation}, o.groups, 0, o.activation};
}

Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dOptions& options) {
    if (x.rank() != 3) fail("conv1d: the input must be [batch, length, channels], not {}", x.shape().str());
    if (w.rank() != 3) fail("conv1d: the weight must have 3 dimensions, not {}", w.shape().str());
    return squeeze(conv2d(unsqueeze(x, 1), unsqueeze(w, 1), bias, image_options(options)), 1);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
    check_arguments(ConvTranspose2d::kName, x, w, options);
    if (options.padding.same) fail<UsageError>("conv_transpose2d: takes no padding \"same\"");
    if (options.activation != Activation::none) fail<UsageError>("conv_transpose2d: takes no activation");
    ConvSpec spec = make_spec(w, options);
    spec.batch = x.size(0), spec.out_h = x.size(1), spec.out_w = x.size(2), spec.out_c = x.size(3);
    spec.in_c = w.size(3) * spec.groups;
    if (spec.out_c != w.size(0))
        fail("conv_transpose2d: input {} for a weight {}; its channels must be {}", x.shape().str(), w.shape().str(),
             w.size(0));
    if (spec.out_c % spec.groups != 0)
        fail("conv_transpose2d: the {} input channels of weight {} do not divide into {} groups", spec.out_c,
             w.shape().str(), spec.groups);
    check_bias(ConvTranspose2d::kName, bias, w, spec.in_c);
    for (int i = 0; i < 2; ++i)
        if (options.output_padding[i] >= std::max(options.stride[i], options.dilation[i]))
            fail("conv_transpose2d: output padding {} must be smaller than stride {} or dilation {}",
                 options.output_padding[i], options.stride[i], options.dilation[i]);
    const auto in = [](std::int64_t out, std::int64_t k, std::int64_t stride, std::int64_t pad, std::int64_t dilation,
                       std::int64_t extra) { return (out - 1) * stride - 2 * pad + dilation * (k - 1) + 1 + extra; };
    const auto& o = options;
    spec.in_h = in(spec.out_h, spec.k_h, o.stride[0], o.padding[0], o.dilation[0], o.output_padding[0]);
    spec.in_w = in(spec.out_w, spec.k_w, o.stride[1], o.padding[1], o.dilation[1], o.output_padding[1]);
    if (spec.in_h < 1 || spec.in_w < 1)
        fail("conv_transpose2d: nothing is left of input {} under weight {} with padding ({}, {})", x.shape().str(),
             w.shape().str(), o.padding[0], o.padding[1]);
    return apply(ConvTranspose2d{spec}, {x, w, bias});
}

}  // namespace invar::ops
