#include "invar/ops/upsample.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

struct Upsample {
    static constexpr const char* kName = "upsample";
    static constexpr const char* kDoc = "images in another size";
    static constexpr CastClass kCast = CastClass::fp32;
    ResampleSpec spec;

    Tensor forward(Context&, const Tensors& in) {
        const Tensor x = dense(in[0]);
        Tensor y = Tensor::empty({spec.batch, spec.out_h, spec.out_w, spec.channels}, x.dtype(), x.device());
        kernels_for(x.device()).resample(spec, x.view(), y.view());
        return y;
    }
    Tensors backward(Context&, const Tensor& g) {
        Tensor gx = Tensor::empty({spec.batch, spec.in_h, spec.in_w, spec.channels}, g.dtype(), g.device());
        kernels_for(g.device()).resample_backward(spec, dense(g).view(), gx.view());
        return {gx};
    }
};

Sampling sampling(Interpolation mode) {
    switch (mode) {
        case Interpolation::nearest:
            return Sampling::nearest;
        case Interpolation::nearest_exact:
            return Sampling::nearest_exact;
        case Interpolation::bilinear:
            return Sampling::bilinear;
        case Interpolation::bicubic:
            break;
    }
    return Sampling::bicubic;
}

Tensor resized(const Tensor& x, Pair out, Interpolation mode, bool align_corners, double step_h, double step_w) {
    if (x.rank() != 4 || !is_floating(x.dtype()))
        fail("upsample: the input must be a floating [batch, height, width, channels], not {}", x.str());
    if (out[0] < 1 || out[1] < 1 || x.size(1) < 1 || x.size(2) < 1)
        fail("upsample: cannot make ({}, {}) out of {}", out[0], out[1], x.shape().str());
    if (align_corners && (mode == Interpolation::nearest || mode == Interpolation::nearest_exact))
        fail<UsageError>("upsample: align_corners has no meaning for nearest; use bilinear or bicubic");
    return apply(Upsample{{x.size(0), x.size(1), x.size(2), x.size(3), out[0], out[1], sampling(mode), align_corners,
                           step_h, step_w}},
                 {x});
}

}  // namespace

Tensor upsample(const Tensor& x, Pair out, Interpolation mode, bool align_corners) {
    return resized(x, out, mode, align_corners, 0, 0);
}

Tensor upsample(const Tensor& x, double factor, Interpolation mode, bool align_corners) {
    return upsample(x, factor, factor, mode, align_corners);
}

Tensor upsample(const Tensor& x, double height_factor, double width_factor, Interpolation mode, bool align_corners) {
    const auto scaled = [&](int dim, double factor) {
        if (x.rank() != 4 || !(factor > 0))
            fail("upsample: factor {} for {}; needs a positive factor and an image", factor, x.str());
        const double size = std::floor(double(x.size(dim)) * factor);
        if (size > 1 << 30) fail("upsample: factor {} makes {} too large", factor, x.shape().str());
        return std::int64_t(size);
    };
    const Pair out{scaled(1, height_factor), scaled(2, width_factor)};
    return resized(x, out, mode, align_corners, 1 / height_factor, 1 / width_factor);
}

}  // namespace invar::ops
