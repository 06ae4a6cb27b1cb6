// What the tests of the optimizer share: a model of two small parameters whose gradients are written by hand, and its
// whole state as bytes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/nn/module.h"
#include "invar/ops/ops.h"
#include "invar/optim/grad_scaler.h"

namespace invar {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Weights : Module {
    Weights()
        : a(add_parameter("a", Tensor::from<float>({0.5f, -1.25f, 2.0f}, {3}))),
          b(add_parameter("b", Tensor::from<float>({1.0f, -0.75f}, {1, 2}))) {}
    Tensor forward(const Tensor& x) override { return ops::mul(x, a.value); }
    std::vector<float> values() {
        std::vector<float> all = a.value.to_vector<float>();
        for (const float v : b.value.to_vector<float>()) all.push_back(v);
        return all;
    }
    Parameter &a, &b;
};

// The first values; the others stay as they are, or are 0 where there was no gradient.
inline void set_gradient(const Parameter& parameter, const std::vector<float>& values, float scale = 1.0f) {
    if (!parameter.value.grad()) parameter.value.set_grad(ops::zeros(parameter.value.shape()));
    const Tensor grad = parameter.value.grad();
    for (std::size_t i = 0; i < values.size(); ++i) grad.data<float>()[i] = values[i] * scale;
}

// The gradients of the golden tables: smooth, of both signs, different at every step.
inline void set_wave_gradients(Weights& model, int step, float scale = 1.0f) {
    int key = 0;
    for (Parameter* parameter : model.parameters()) {
        std::vector<float> values;
        for (std::int64_t i = 0; i < parameter->value.numel(); ++i)
            values.push_back(float(std::sin(double(i) * 1.7 + step * 0.9 + key)));
        set_gradient(*parameter, values, scale);
        ++key;
    }
}

inline std::string bytes_of(const Tensor& tensor) {
    return tensor ? std::string(static_cast<const char*>(tensor.raw()), tensor.bytes()) : std::string();
}

// Everything that a skipped step must not touch: weights, shadow and moments.
inline std::string state_bytes(Optimizer& optimizer) {
    std::string bytes = bytes_of(optimizer.store().weights()) + bytes_of(optimizer.store().shadow());
    for (const auto& [name, moment] : optimizer.state_dict()) bytes += name + bytes_of(moment);
    return bytes;
}

inline OptimizerSpec sgd_spec(double lr) {
    OptimizerSpec spec;
    spec.kind = OptimizerSpec::Kind::sgd;
    spec.lr = lr;
    return spec;
}

// The optimizer of a golden table by its name: "sgd", "momentum", "nesterov", "adam", or "adamw".
inline OptimizerSpec named_spec(const std::string& name, double weight_decay) {
    using Kind = OptimizerSpec::Kind;
    OptimizerSpec spec{.lr = 0.1, .weight_decay = weight_decay};
    spec.kind = name == "adam" ? Kind::adam : name == "adamw" ? Kind::adamw : Kind::sgd;
    spec.nesterov = name == "nesterov";
    if (name == "momentum" || spec.nesterov) spec.momentum = 0.9;
    return spec;
}

// The weights that PyTorch has after a step.
struct GoldenStep {
    const char* name;
    int step;
    std::vector<float> weights;
};

// Takes the steps of one name and compares the weights after each. Some rounding units of the largest weights are
// allowed: the order of the operations is not PyTorch's. Returns how many there were.
template <class Table, class Take>
int follow_golden(const Table& table, const std::string& name, Weights& model, const Take& take) {
    int compared = 0;
    for (const GoldenStep& golden : table) {
        if (name != golden.name) continue;
        take(golden.step);
        const std::vector<float> ours = model.values();
        for (std::size_t i = 0; i < ours.size(); ++i)
            EXPECT_NEAR(ours[i], golden.weights[i], 2e-6) << name << " step " << golden.step << " weight " << i;
        ++compared;
    }
    return compared;
}

}  // namespace invar
