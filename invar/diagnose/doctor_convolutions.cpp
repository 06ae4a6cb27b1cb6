// Convolutions on the device and in f64: forward, the gradient of the input, those of weight and bias in FP32, and the
// transposed kind, whose forward is the other's gradient.
#include <fmt/format.h>

#include <algorithm>

#include "invar/core/format_info.h"
#include "invar/diagnose/doctor_parts.h"
#include "invar/kernels/cpu/reference.h"
#include "invar/kernels/devices.h"

namespace invar {

namespace {

enum Stream : std::uint64_t { kInput = 11, kWeight, kBias, kGradient, kSum, kBiasSum };

struct ConvSize {
    const char* name;
    std::int64_t batch, height, width, in, out, window, stride = 1, padding = 0, dilation = 1, groups = 1;
    bool transposed = false;  // `height`, `width` and `in` are then those of its result
};

constexpr ConvSize kSmall[] = {{"conv2d 3x3", 2, 13, 11, 16, 24, 3, 1, 1},
                               {"conv2d 3x3 of few channels, stride 2", 2, 15, 14, 3, 8, 3, 2, 1},
                               {"conv2d 1x1, stride 2", 2, 9, 9, 24, 32, 1, 2},
                               {"conv2d 3x3, dilation 2", 1, 10, 10, 8, 8, 3, 1, 2, 2},
                               {"conv2d 3x3, a group each channel", 2, 8, 8, 16, 16, 3, 1, 1, 1, 16},
                               {"conv_transpose2d 2x2, stride 2", 2, 14, 12, 8, 16, 2, 2, 0, 1, 1, true}};
// Sums over thousands of pixels in the gradient of the weight.
constexpr ConvSize kLarge[] = {{"conv2d 3x3", 8, 28, 28, 8, 16, 3, 1, 1}};

ConvSpec spec_of(const ConvSize& s) {
    const auto out = [&](std::int64_t in) {
        return (in + 2 * s.padding - s.dilation * (s.window - 1) - 1) / s.stride + 1;
    };
    ConvSpec spec{};
    spec.batch = s.batch, spec.in_h = s.height, spec.in_w = s.width, spec.in_c = s.in;
    spec.out_h = out(s.height), spec.out_w = out(s.width), spec.out_c = s.out;
    spec.k_h = spec.k_w = s.window;
    spec.stride_h = spec.stride_w = s.stride;
    spec.pad_h = spec.pad_w = s.padding;
    spec.dilation_h = spec.dilation_w = s.dilation;
    spec.groups = s.groups;
    return spec;
}

// A convolution's tensors, or their magnitudes.
struct ConvTensors {
    Tensor x, w, bias, g, gw, gb;
};

struct ConvResults {
    Tensor y, gx, gw, gb;
};

ConvResults in_double(const ConvSpec& spec, const ConvTensors& t, bool transposed) {
    const auto copied = [](const Tensor& from) { return Tensor::from(from.to_vector<double>(), from.shape()); };
    ConvResults made{Tensor::empty_like(t.g), Tensor::empty_like(t.x), copied(t.gw), copied(t.gb)};
    reference::conv_forward(spec, t.x.view(), t.w.view(), transposed ? View{} : t.bias.view(), made.y.view());
    reference::conv_backward(spec, t.x.view(), t.w.view(), t.g.view(), made.gx.view(), made.gw.view(), made.gb.view(),
                             true);
    return made;
}

ConvResults on_device(const Examined& on, const ConvSpec& spec, const ConvTensors& t, bool transposed) {
    ConvResults made{Tensor::empty_like(t.g), Tensor::empty_like(t.x), t.gw, t.gb};
    const Tf32Scope tf32(on.tf32);
    const View x = t.x.view(), w = t.w.view(), g = t.g.view();
    on.kernels.conv_forward(spec, x, w, transposed ? View{} : t.bias.view(), made.y.view());
    if (transposed) {
        on.kernels.conv_backward(spec, {}, w, g, made.gx.view(), {}, {}, false);
        on.kernels.conv_backward(spec, x, w, g, {}, made.gw.view(), {}, true);
    } else {
        on.kernels.conv_backward(spec, x, w, g, made.gx.view(), made.gw.view(), made.gb.view(), true);
    }
    on.kernels.synchronize();
    return made;
}

void plant(const Examined& on, const Planted& planted, const ConvSpec& spec, std::vector<double>& x,
           std::vector<double>& w, std::vector<double>& g) {
    using Where = Planted::Where;
    if (planted.where == Where::nothing) return;
    if (planted.where != Where::overflow) {
        std::vector<double>& into = planted.where == Where::input ? x : planted.where == Where::weight ? w : g;
        into[into.size() / 2] = planted.value;
        return;
    }
    // One pixel that is the largest there is, among zeros, under weights that take every sum beyond it, up and down.
    std::ranges::fill(x, 0.0);
    const std::int64_t pixel = (spec.in_h / 2 * spec.in_w + spec.in_w / 2) * spec.in_c;
    x[std::size_t(pixel)] = format_info(on.dtype).max;
    const std::size_t window = w.size() / std::size_t(spec.out_c);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = i / window % 2 == 0 ? 4 : -4;
}

std::vector<TriedOperation> try_convolution(const Examined& on, const ConvSize& size, const TryOptions& options) {
    const ConvSpec spec = spec_of(size);
    const Shape in{spec.batch, spec.in_h, spec.in_w, spec.in_c}, out{spec.batch, spec.out_h, spec.out_w, spec.out_c},
        window{spec.out_c, spec.k_h, spec.k_w, spec.in_c / spec.groups};
    std::vector<double> xs = random_values(on, kInput, in.numel()), ws = random_values(on, kWeight, window.numel()),
                        gs = random_values(on, kGradient, out.numel());
    plant(on, options.planted, spec, xs, ws, gs);
    const GivenTensor x(on, xs, in, on.dtype), w(on, ws, window, on.dtype), g(on, gs, out, on.dtype),
        bias(on, random_values(on, kBias, spec.out_c), {spec.out_c}, on.dtype),
        gw(on, random_values(on, kSum, window.numel()), window, Dtype::f32),
        gb(on, random_values(on, kBiasSum, spec.out_c), {spec.out_c}, Dtype::f32);

    const ConvResults got =
        on_device(on, spec, {x.there, w.there, bias.there, g.there, gw.there, gb.there}, size.transposed);
    ConvResults exact, magnitude;
    if (options.exact) {
        exact = in_double(spec, {x.exact, w.exact, bias.exact, g.exact, gw.exact, gb.exact}, size.transposed);
        magnitude = in_double(
            spec, {x.magnitude(), w.magnitude(), bias.magnitude(), g.magnitude(), gw.magnitude(), gb.magnitude()},
            size.transposed);
    }
    const std::int64_t pixels = spec.batch * spec.out_h * spec.out_w, taps = spec.k_h * spec.k_w;
    std::vector<TriedOperation> all;
    const auto add = [&](const char* what, Tensor ConvResults::*which, std::int64_t terms) {
        const bool transposed = size.transposed;
        const Shape &first = transposed ? out : in, &second = window;
        all.push_back({std::string(size.name) + what, fmt::format("{}, weight {}", first.str(), second.str()),
                       (got.*which).on_host(), exact.*which, magnitude.*which, terms});
    };
    add(size.transposed ? ", input gradient" : "", &ConvResults::y, taps * spec.in_c / spec.groups + 1);
    add(size.transposed ? "" : ", input gradient", &ConvResults::gx, taps * spec.out_c / spec.groups);
    add(", weight gradient", &ConvResults::gw, pixels + 1);
    if (size.transposed) return all;
    add(", bias gradient", &ConvResults::gb, pixels + 1);
    all.back().multiplies = false;
    return all;
}

}  // namespace

std::vector<TriedOperation> try_convolutions(const Examined& on, TrySize size, const TryOptions& options) {
    std::vector<TriedOperation> all;
    const auto add = [&](const ConvSize& each) {
        std::ranges::move(try_convolution(on, each, options), std::back_inserter(all));
    };
    if (size == TrySize::large)
        std::ranges::for_each(kLarge, add);
    else
        std::ranges::for_each(kSmall, add);
    return all;
}

}  // namespace invar
