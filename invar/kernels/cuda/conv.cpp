#include "invar/kernels/cuda/conv.h"

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "invar/kernels/cuda/cudnn_graph.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/devices.h"
#include "invar/kernels/pointwise.h"

namespace invar::cuda {

namespace {

enum class Direction : char { forward, forward_bias, data, weights };
enum Id : std::int64_t { kX = 'x', kW = 'w', kY = 'y', kBias = 'b', kSum = 's', kBiased = 't' };

cudnnDataType_t data_type(Dtype dtype) {
    return dtype == Dtype::f16 ? CUDNN_DATA_HALF : dtype == Dtype::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

using Four = std::array<std::int64_t, 4>;

// cuDNN names dimensions n, c, h, w whatever their order in memory; ours is n, h, w, c.
Descriptor tensor(std::int64_t id, Dtype dtype, const Four& nhwc, bool is_virtual = false) {
    const auto [n, h, w, c] = nhwc;
    const Four sizes{n, c, h, w}, strides{h * w * c, 1, w * c, c};
    Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, data_type(dtype))
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
        .set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id).set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t(16));
    if (is_virtual) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    return std::move(made.finalize());
}

Descriptor convolution(const ConvSpec& s) {
    const std::array<std::int64_t, 2> padding{s.pad_h, s.pad_w}, dilation{s.dilation_h, s.dilation_w},
        stride{s.stride_h, s.stride_w};
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    Descriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t(2));
    made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    made.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding).set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
    made.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation).set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride);
    return std::move(made.finalize());
}

// The attributes of the three operations have names of their own for the same five things.
struct Names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};
Names names_of(Direction direction) {
    if (direction == Direction::data)
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    if (direction == Direction::weights)
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

// The engine of cuDNN 9.19 that may not serve, or -1: in FP16 these two make 0 of what overflows to -Inf, so that it
// would never be seen (small images; PyTorch shows it too). Behind a ReLU 0 is right.
std::int64_t engine_that_hides_overflow(Direction direction, Dtype dtype, Activation activation) {
    if (dtype != Dtype::f16) return -1;
    if (direction == Direction::forward) return 47;
    return direction == Direction::forward_bias && activation == Activation::none ? 32 : -1;
}

struct Key {
    Direction direction;
    Dtype dtype;
    bool tf32, deterministic;
};

// y = mode(x, second); `second` may be absent.
Descriptor pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* second, const Descriptor& y,
                     std::vector<Descriptor>& parts) {
    Descriptor what(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;  // a bad value must not be washed away
    if (mode == CUDNN_POINTWISE_RELU_FWD)
        what.set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    what.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT).finalize();
    made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (second != nullptr) made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *second);
    made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    parts.push_back(std::move(what));
    return made;
}

// The convolution, and behind it bias and activation where there are any, in one engine.
std::unique_ptr<GraphPlan> make_plan(const Key& key, const ConvSpec& s) {
    const bool biased = key.direction == Direction::forward_bias, relu = biased && s.activation == Activation::relu;
    const Four image{s.batch, s.in_h, s.in_w, s.in_c}, filter{s.out_c, s.k_h, s.k_w, s.in_c / s.groups};
    const Four result{s.batch, s.out_h, s.out_w, s.out_c};
    std::vector<Descriptor> parts, operations;
    parts.reserve(16);
    parts.push_back(tensor(kX, key.dtype, image));
    parts.push_back(tensor(kW, key.direction == Direction::weights ? Dtype::f32 : key.dtype, filter));
    parts.push_back(tensor(biased ? kSum : kY, biased ? Dtype::f32 : key.dtype, result, biased));
    parts.push_back(convolution(s));
    const Names names = names_of(key.direction);
    const float one = 1, zero = 0;
    Descriptor operation(names.type);
    operation.set(names.x, parts[0]).set(names.w, parts[1]).set(names.y, parts[2]).set(names.convolution, parts[3]);
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one).set(names.beta, CUDNN_TYPE_FLOAT, 1, &zero);
    operations.push_back(std::move(operation));
    if (biased) {
        parts.push_back(tensor(kBias, key.dtype, {1, 1, 1, s.out_c}));
        parts.push_back(tensor(kY, key.dtype, result));
        parts.push_back(tensor(kBiased, Dtype::f32, result, true));
        const Descriptor &sum = parts[2], &bias = parts[4], &y = parts[5], &between = parts[6];
        operations.push_back(pointwise(CUDNN_POINTWISE_ADD, sum, &bias, relu ? between : y, parts));
        if (relu) operations.push_back(pointwise(CUDNN_POINTWISE_RELU_FWD, between, nullptr, y, parts));
    }
    for (Descriptor& each : operations)
        if (!each.try_finalize()) return nullptr;
    const std::size_t count = operations.size();
    for (Descriptor& each : operations) parts.push_back(std::move(each));
    auto plan = std::make_unique<GraphPlan>(std::move(parts));
    const EngineRules rules{key.dtype != Dtype::f32 || key.tf32, key.deterministic,
                            engine_that_hides_overflow(key.direction, key.dtype, s.activation)};
    return plan->choose(count, rules) ? std::move(plan) : nullptr;
}

// The plan for a convolution, made once; nullptr where cuDNN cannot do it.
GraphPlan* plan_for(Direction direction, Dtype dtype, const ConvSpec& spec) {
    static std::mutex mutex;
    static auto* plans = new std::map<std::string, std::unique_ptr<GraphPlan>>;
    const Key key{direction, dtype, dtype == Dtype::f32 && Tf32Scope::on(), options().deterministic};
    std::string name(reinterpret_cast<const char*>(&spec), sizeof spec);  // nothing but 64-bit numbers
    name += {char(key.direction), char(key.dtype), char(key.tf32), char(key.deterministic)};
    const std::lock_guard lock(mutex);
    const auto found = plans->find(name);
    return found != plans->end() ? found->second.get() : plans->emplace(name, make_plan(key, spec)).first->second.get();
}

bool by_cudnn(const View& v) {
    return v.dtype == Dtype::f32 || is_sixteen_bit(v.dtype);
}

void run(GraphPlan& plan, std::span<const Binding> bindings) {
    if (!plan.timed() && may_time_candidates()) plan.choose_by_timing(bindings);
    plan.run(bindings);
}

View along_channels(const View& bias, const View& y) {
    View wide = y;
    wide.data = bias.data;
    wide.dtype = bias.dtype;
    for (int i = 0; i < y.rank; ++i) wide.stride[i] = i == y.rank - 1 ? bias.stride[0] : 0;
    return wide;
}

// The memory of `v`, at its start aligned as the plans assume.
bool aligned(std::initializer_list<View> views) {
    for (const View& v : views)
        if (reinterpret_cast<std::uintptr_t>(v.data) % 16 != 0) return false;
    return true;
}

View in_f32(const View& v, const Scratch& memory) {
    View wide = v;
    wide.data = memory.data();
    wide.dtype = Dtype::f32;
    return wide;
}

void conv_backward_data(const ConvSpec& spec, const View& gy, const View& w, const View& gx) {
    if (gx.numel() == 0) return;
    GraphPlan* const plan =
        by_cudnn(gy) && aligned({gy, w, gx}) && gy.numel() > 0 ? plan_for(Direction::data, gy.dtype, spec) : nullptr;
    if (plan == nullptr) return direct::conv_backward_data(spec, gy, w, gx, stream());
    const Binding bindings[] = {{kX, gx.data}, {kW, w.data}, {kY, gy.data}};
    run(*plan, bindings);
}

void conv_backward_weights(const ConvSpec& spec, const View& x, const View& gy, const View& gw, bool accumulate) {
    if (gw.numel() == 0) return;
    const bool usable = by_cudnn(gy) && aligned({x, gy}) && gy.numel() > 0;
    GraphPlan* plan = usable ? plan_for(Direction::weights, gy.dtype, spec) : nullptr;
    // No engine with 16-bit operands and an FP32 result: widen the operands rather than round the gradient to 16 bits.
    const bool widen = usable && plan == nullptr && is_sixteen_bit(gy.dtype);
    if (widen) plan = plan_for(Direction::weights, Dtype::f32, spec);
    if (plan == nullptr) return direct::conv_backward_weights(spec, x, gy, gw, accumulate, stream());
    const Scratch wide_x(widen ? std::size_t(x.numel()) * 4 : 0), wide_gy(widen ? std::size_t(gy.numel()) * 4 : 0);
    const View from = widen ? in_f32(x, wide_x) : x, gradient = widen ? in_f32(gy, wide_gy) : gy;
    if (widen) kernels().copy(x, from), kernels().copy(gy, gradient);
    const bool aside = accumulate || !aligned({gw});
    const Scratch sum(aside ? std::size_t(gw.numel()) * 4 : 0);
    const View fresh = aside ? in_f32(gw, sum) : gw;
    const Binding bindings[] = {{kX, from.data}, {kW, fresh.data}, {kY, gradient.data}};
    run(*plan, bindings);
    if (accumulate)
        kernels().add_into(fresh, gw);
    else if (aside)
        kernels().copy(fresh, gw);
}

}  // namespace

void CudaKernels::conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) {
    const Launch launch("conv_forward");
    if (y.numel() == 0) return;
    const bool usable = by_cudnn(x) && aligned({x, w, y});
    if (usable && first_conv_forward(spec, x, w, bias, y)) return;
    if (aligned({x, w, y}) && product_forward(spec, x, w, bias, y)) return;
    // Bias and activation in the same pass where an engine can: tensor-core engines of 16 bits do.
    if (usable && bias && is_sixteen_bit(x.dtype) && bias.dtype == x.dtype && aligned({bias})) {
        if (GraphPlan* plan = plan_for(Direction::forward_bias, x.dtype, spec)) {
            const Binding bindings[] = {{kX, x.data}, {kW, w.data}, {kBias, bias.data}, {kY, y.data}};
            return run(*plan, bindings);
        }
    }
    GraphPlan* const plan = usable ? plan_for(Direction::forward, x.dtype, without_activation(spec)) : nullptr;
    if (plan != nullptr) {
        const Binding bindings[] = {{kX, x.data}, {kW, w.data}, {kY, y.data}};
        run(*plan, bindings);
    } else {
        direct::conv_forward(spec, x, w, y, stream());
    }
    if (bias) binary(BinaryOp::Add, y, along_channels(bias, y), y, {});
    if (spec.activation == Activation::relu) unary(UnaryOp::Relu, y, y, {});
}

// gw and gb are f32 for 16-bit operands, else of their dtype.
void CudaKernels::conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx,
                                const View& gw, const View& gb, bool accumulate, const View& y, const View& pending) {
    const Launch launch("conv_backward");
    const bool usable = gw && gw.numel() > 0 && gy.numel() > 0 && aligned({x, gy});
    if (usable && !gx && first_conv_backward_weights(spec, x, gy, y, gw, gb, accumulate)) return;
    if (spec.activation == Activation::relu) {
        const Scratch memory(std::size_t(gy.numel()) * size_of(gy.dtype));
        View passed = gy;
        passed.data = memory.data();
        unary_backward(UnaryOp::Relu, gy, y, passed, {});
        return conv_backward(without_activation(spec), x, w, passed, gx, gw, gb, accumulate, {}, pending);
    }
    const bool data_done =
        gx && (few_channels_backward_data(spec, gy, w, gx, pending) || product_backward_data(spec, gy, w, gx, pending));
    if (gx && !data_done) {
        conv_backward_data(spec, gy, w, gx);
        if (pending) add_into(pending, gx);
    }
    if (usable && (first_conv_backward_weights(spec, x, gy, y, gw, gb, accumulate) ||
                   product_backward_weights(spec, x, gy, gw, gb, accumulate)))
        return;
    const bool weights_done = usable && conv_backward_weights_on_a_line(spec, x, gy, gw, accumulate);
    if (usable && !weights_done && conv_backward_weights_by_us(spec, x, gy, gw, gb, accumulate)) return;
    if (gw && !weights_done) conv_backward_weights(spec, x, gy, gw, accumulate);
    if (gb) sum({1, spec.batch * spec.out_h * spec.out_w, spec.out_c}, gy, gb, 1.0, accumulate);
}

}  // namespace invar::cuda
