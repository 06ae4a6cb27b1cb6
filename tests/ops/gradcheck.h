// The gradient check that serves every op on every device: what backward gives, against central differences in f64.
// A result of any shape is made a number by weighing its elements, so that no reduction is needed to test one.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/core/tensor.h"
#include "invar/kernels/kernels.h"
#include "tests/ops/layouts.h"

namespace invar::testing {

using Function = std::function<Tensor(const Tensors&)>;

// Reproducible values in [low, high).
inline std::vector<double> random_values(std::int64_t count, double low, double high, std::uint64_t seed) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i)
        values.push_back(low + (high - low) * double(to_unit(philox(seed, std::uint64_t(i)).v[0])));
    return values;
}

inline double weigh(const Tensor& y, const std::vector<double>& weights) {
    const std::vector<double> values = y.to_vector<double>();
    double total = 0;
    for (std::size_t i = 0; i < values.size(); ++i) total += weights[i] * values[i];
    return total;
}

// "" where the gradients of all inputs that require one agree, else the first disagreement. The gradient that comes in
// has the strides of `incoming`.
inline std::string gradient_mismatch(const Function& function, const Tensors& inputs, Layout incoming = Layout::dense) {
    for (const Tensor& input : inputs) input.set_grad({});
    const Tensor y = function(inputs);
    const Tensor gradient =
        laid_out(random_values(y.numel(), 0.5, 1.5, 99), y.shape(), y.dtype(), y.device(), incoming);
    const std::vector<double> weights = gradient.to_vector<double>();
    backward(y, gradient);
    const NoGrad no_grad;
    for (std::size_t n = 0; n < inputs.size(); ++n) {
        if (!inputs[n].requires_grad()) continue;
        if (!inputs[n].grad()) return fmt::format("input {} got no gradient", n);
        if (inputs[n].grad().shape() != inputs[n].shape()) return fmt::format("input {}: wrong shape", n);
        const std::vector<double> analytic = inputs[n].grad().to_vector<double>();
        double* x = inputs[n].data<double>();  // dense: leaves are made so
        const std::vector<double> values = inputs[n].to_vector<double>();
        for (std::size_t i = 0; i < analytic.size(); ++i) {
            const auto put = [&](double value) { kernels_for(inputs[n].device()).upload(x + i, &value, sizeof value); };
            const double kept = values[i], step = 1e-5 * std::fmax(1.0, std::fabs(kept));
            put(kept + step);
            const double above = weigh(function(inputs), weights);
            put(kept - step);
            const double below = weigh(function(inputs), weights);
            put(kept);
            const double numeric = (above - below) / (2 * step);
            // Truncation goes with step^2 = 1e-10, rounding with 1e-16 * |value| / step = 1e-11 * |value|; 100 times
            // that.
            const double tolerance = 1e-8 * (1 + std::fabs(numeric) + std::fabs(above));
            if (!(std::fabs(numeric - analytic[i]) <= tolerance))
                return fmt::format("input {} element {}: gradient {}, but differences give {}", n, i, analytic[i],
                                   numeric);
        }
    }
    return "";
}

}  // namespace invar::testing
