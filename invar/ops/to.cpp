#include "invar/ops/to.h"

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

Tensor moved(const Tensor& x, Device device) {
    if (device == x.device()) return x;
    const Tensor source = dense(x);
    Tensor result = Tensor::empty(x.shape(), x.dtype(), device);
    if (device.is_cpu())
        kernels_for(x.device()).download(result.raw(), source.raw(), source.bytes());
    else if (x.device().is_cpu())
        kernels_for(device).upload(result.raw(), source.raw(), source.bytes());
    else
        fail("to: {} cannot go to {} directly; move it to the CPU first", x.str(), device.str());
    return result;
}

struct To {
    static constexpr const char* kName = "to";
    static constexpr const char* kDoc = "x on another device";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr bool kAnyGradient = true;
    Device device, from;

    Tensor forward(Context&, const Tensors& in) { return moved(in[0], device); }
    Tensors backward(Context&, const Tensor& g) { return {moved(g, from)}; }
};

}  // namespace

Tensor to(const Tensor& x, Device device) {
    return x.device() == device ? x : apply(To{device, x.device()}, {x});
}

}  // namespace invar::ops
