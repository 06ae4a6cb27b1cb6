#include "invar/ops/cast.h"

#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

struct Cast {
    static constexpr const char* kName = "cast";
    static constexpr const char* kDoc = "x in another dtype";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr bool kAnyGradient = true;
    Dtype to;
    Dtype from;

    Tensor forward(Context& ctx, const Tensors& in) {
        if (ctx.saves_for_nothing(0)) ctx.save(in[0]);
        return converted_to(in[0], to);
    }
    bool can_recompute(const Context& ctx) const { return ctx.saved_count() > 0; }
    void recompute(Context& ctx, const Tensor& y) {
        const Tensor x = ctx.saved(0);
        kernels_for(y.device()).copy(x.view(), y.view());
    }
    Tensors backward(Context&, const Tensor& g) { return {g.dtype() == from ? g : converted_to(g, from)}; }
};

}  // namespace

Tensor cast(const Tensor& x, Dtype dtype) {
    return x.dtype() == dtype ? x : apply(Cast{dtype, x.dtype()}, {x});
}

}  // namespace invar::ops
