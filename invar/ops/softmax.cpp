#include "invar/ops/softmax.h"

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

template <bool kLog>
struct Softmax {
    static constexpr const char* kName = kLog ? "log_softmax" : "softmax";
    static constexpr const char* kDoc = kLog ? "logarithm of softmax" : "exponentials over their sum";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr bool kWidensItself = true;
    int axis;
    Dtype from = Dtype::f32;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor x = dense(in[0]);
        if (!is_floating(x.dtype())) fail("{}: needs a floating tensor, not {}", kName, x.str());
        from = x.dtype();
        Tensor y = Tensor::empty_like(x, ctx.result_dtype());
        kernels_for(x.device()).softmax(span_of(x.shape(), axis), x.view(), y.view(), kLog);
        ctx.save(y);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        const Tensor y = ctx.saved(0), g = dense(gradient);
        Tensor gx = Tensor::empty_like(g, from);
        kernels_for(g.device()).softmax_backward(span_of(g.shape(), axis), g.view(), y.view(), gx.view(), kLog);
        return {gx};
    }
};

}  // namespace

Tensor softmax(const Tensor& x, int dim) {
    return apply(Softmax<false>{x.shape().axis(dim)}, {x});
}
Tensor log_softmax(const Tensor& x, int dim) {
    return apply(Softmax<true>{x.shape().axis(dim)}, {x});
}

}  // namespace invar::ops
