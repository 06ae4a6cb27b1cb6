// A model whose loss a test can make NaN while every gradient stays finite, as ops that wash NaN away would.
#pragma once

#include <limits>

#include "invar/ops/apply.h"
#include "invar/ops/ops.h"
#include "invar/train/setup.h"

namespace invar {

// logits + poison, and a gradient of zeros.
struct Poison {
    static constexpr const char* kName = "poison";
    static constexpr CastClass kCast = CastClass::fp32;
    Tensor forward(Context&, const Tensors& inputs) const { return ops::add(inputs[0], inputs[1]); }
    Tensors backward(Context&, const Tensor& gradient) const { return {ops::zeros_like(gradient), {}}; }
};

struct Poisoned : Module {
    Poisoned(std::unique_ptr<Module> model, Device device)
        : inner(std::move(model)), poison(ops::zeros({}, Dtype::f32, device)) {
        inner->train();
    }
    Tensor forward(const Tensor& x) override { return apply(Poison{}, {(*inner)(x), poison}); }
    void set(bool bad) {
        kernels_for(poison.device()).fill(poison.view(), bad ? std::numeric_limits<double>::quiet_NaN() : 0.0);
    }
    std::unique_ptr<Module> inner;
    Tensor poison;
};

inline Poisoned& poison(Setup& setup) {
    auto poisoned = std::make_unique<Poisoned>(std::move(setup.model), setup.device);
    Poisoned& reference = *poisoned;
    setup.model = std::move(poisoned);
    return reference;
}

}  // namespace invar
