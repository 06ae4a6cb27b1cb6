// An operation of your own: one struct with a name, an autocast class, forward and backward. It is cast, recorded,
// checkpointed and listed like the built-in ones; without kCast it would not compile.
#include <cmath>
#include <cstdio>

#include "invar/invar.h"

using namespace invar;

namespace {

// sqrt(1 + x^2): sensitive to overflow of the square, so it asks for FP32.
struct SoftAbs {
    static constexpr const char* kName = "soft_abs";
    static constexpr CastClass kCast = CastClass::fp32;

    Tensor forward(Context& ctx, const Tensors& in) {
        Tensor y = ops::sqrt(ops::affine(ops::mul(in[0].detach(), in[0].detach()), 1, 1));
        ctx.save(in[0]);
        ctx.save(y);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) { return {g * (ctx.saved(0).detach() / ctx.saved(1).detach())}; }
};

Tensor soft_abs(const Tensor& x) {
    return apply(SoftAbs{}, {x});
}

}  // namespace

int main() {
    Tensor x = Tensor::from<float>({-300.0f, -1.0f, 0.0f, 2.0f}, {4}, Dtype::f32);
    x.set_requires_grad();

    Autocast cast(Dtype::f16);
    Tensor y = soft_abs(ops::cast(x, Dtype::f16));  // 300 squared would be infinity in FP16
    backward(ops::sum(y));

    std::printf("soft_abs(x) in %s:", std::string(name_of(y.dtype())).c_str());
    for (const double v : y.to_vector<double>()) std::printf(" %.4f", v);
    std::printf("\ngradient in %s:", std::string(name_of(x.grad().dtype())).c_str());
    for (const double v : x.grad().to_vector<double>()) std::printf(" %.4f", v);
    std::printf("\n");
    for (const OpEntry& op : registered_ops())
        if (std::string_view(op.name) == "soft_abs")
            std::printf("listed with class %s\n", std::string(name_of(op.cast)).c_str());
    return std::isfinite(y.to_vector<double>()[0]) ? 0 : 1;
}
