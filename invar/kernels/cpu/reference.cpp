#include "invar/kernels/cpu/reference.h"

#include <algorithm>

namespace invar::reference {

namespace {

// Calls f(x offset, w offset, y offset) for every product of a convolution.
template <class F>
void for_each_product(const ConvSpec& s, F&& f) {
    const std::int64_t in_group = s.in_c / s.groups, out_group = s.out_c / s.groups;
    for (std::int64_t n = 0; n < s.batch; ++n)
        for (std::int64_t oh = 0; oh < s.out_h; ++oh)
            for (std::int64_t ow = 0; ow < s.out_w; ++ow)
                for (std::int64_t kh = 0; kh < s.k_h; ++kh)
                    for (std::int64_t kw = 0; kw < s.k_w; ++kw) {
                        const std::int64_t h = oh * s.stride_h - s.pad_h + kh * s.dilation_h;
                        const std::int64_t w = ow * s.stride_w - s.pad_w + kw * s.dilation_w;
                        if (h < 0 || h >= s.in_h || w < 0 || w >= s.in_w) continue;
                        const std::int64_t x = ((n * s.in_h + h) * s.in_w + w) * s.in_c;
                        const std::int64_t y = ((n * s.out_h + oh) * s.out_w + ow) * s.out_c;
                        for (std::int64_t o = 0; o < s.out_c; ++o)
                            for (std::int64_t i = 0; i < in_group; ++i)
                                f(x + o / out_group * in_group + i, ((o * s.k_h + kh) * s.k_w + kw) * in_group + i,
                                  y + o);
                    }
}

}  // namespace

void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) {
    const auto at = [](const View& v, std::int64_t i, std::int64_t j, std::int64_t k) -> double& {
        return v.as<double>()[i * v.stride[0] + j * v.stride[1] + k * v.stride[2]];
    };
    for (std::int64_t batch = 0; batch < out.size[0]; ++batch)
        for (std::int64_t m = 0; m < out.size[1]; ++m)
            for (std::int64_t n = 0; n < out.size[2]; ++n) {
                double sum = bias ? bias.as<double>()[n * bias.stride[0]] : 0.0;
                for (std::int64_t k = 0; k < a.size[2]; ++k) sum += at(a, batch, m, k) * at(b, batch, k, n);
                double& result = at(out, batch, m, n);
                result = accumulate ? result + sum : sum;
            }
}

void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) {
    double* out = y.as<double>();
    const std::int64_t count = y.numel();
    for (std::int64_t i = 0; i < count; ++i) out[i] = bias ? bias.as<double>()[i % spec.out_c] : 0.0;
    const double *px = x.as<double>(), *pw = w.as<double>();
    for_each_product(spec, [&](std::int64_t i, std::int64_t j, std::int64_t k) { out[k] += px[i] * pw[j]; });
}

void conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx, const View& gw,
                   const View& gb, bool accumulate) {
    const double* g = gy.as<double>();
    if (gx) {
        double* out = gx.as<double>();
        std::fill_n(out, gx.numel(), 0.0);
        const double* pw = w.as<double>();
        for_each_product(spec, [&](std::int64_t i, std::int64_t j, std::int64_t k) { out[i] += g[k] * pw[j]; });
    }
    if (gw) {
        double* out = gw.as<double>();
        if (!accumulate) std::fill_n(out, gw.numel(), 0.0);
        const double* px = x.as<double>();
        for_each_product(spec, [&](std::int64_t i, std::int64_t j, std::int64_t k) { out[j] += g[k] * px[i]; });
    }
    if (gb) {
        double* out = gb.as<double>();
        if (!accumulate) std::fill_n(out, gb.numel(), 0.0);
        const std::int64_t count = gy.numel();
        for (std::int64_t i = 0; i < count; ++i) out[i % spec.out_c] += g[i];
    }
}

}  // namespace invar::reference
