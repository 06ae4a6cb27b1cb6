#include "invar/ops/dropout.h"

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/pointwise.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

struct Dropout {
    static constexpr const char* kName = "dropout";
    static constexpr const char* kDoc = "zeros at random, the rest scaled up";
    static constexpr CastClass kCast = CastClass::keep;
    double p;
    ReservedNumbers numbers;

    Tensor drop(const Tensor& x) const {
        if (p == 1) return x * 0.0;  // NaN stays NaN, as in the kernel
        Tensor y = Tensor::empty_like(x);
        kernels_for(x.device()).dropout(dense(x).view(), y.view(), p, numbers);
        return y;
    }
    Tensor forward(Context&, const Tensors& in) { return drop(in[0]); }
    Tensors backward(Context&, const Tensor& g) { return {drop(g)}; }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, bool training) {
    if (!(p >= 0 && p <= 1)) fail<UsageError>("dropout: the probability must lie in [0, 1], not {}", p);
    if (!is_floating(x.dtype())) fail("dropout: needs a floating tensor, not {}", x.str());
    if (!training || p == 0) return x;
    return apply(Dropout{p, reserve_for_samples(default_generator(), x.numel(), DropRule::kElements)}, {x});
}

}  // namespace invar::ops
