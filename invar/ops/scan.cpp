#include "invar/ops/scan.h"

#include "invar/ops/apply.h"
#include "invar/ops/shape.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

struct Cumsum {
    static constexpr const char* kName = "cumsum";
    static constexpr const char* kDoc = "sums up to each element along a dimension";
    static constexpr CastClass kCast = CastClass::fp32;
    int axis;

    Tensor summed(const Tensor& x, Dtype dtype, bool reverse) const {
        Tensor y = Tensor::empty(x.shape(), dtype, x.device());
        if (y.numel() > 0) kernels_for(x.device()).cumsum(span_of(x.shape(), axis), dense(x).view(), y.view(), reverse);
        return y;
    }
    Tensor forward(Context&, const Tensors& in) {
        return summed(in[0], is_floating(in[0].dtype()) ? in[0].dtype() : Dtype::i64, false);
    }
    // Each element is in all sums from its own on.
    Tensors backward(Context&, const Tensor& g) { return {summed(g, g.dtype(), true)}; }
};

}  // namespace

Tensor cumsum(const Tensor& x, int dim) {
    if (x.rank() == 0 && (dim == 0 || dim == -1)) return reshape(cumsum(reshape(x, {1}), 0), {});
    return apply(Cumsum{x.shape().axis(dim)}, {x});
}

}  // namespace invar::ops
