// How far a result may be from the exact one: what its format and the number of roundings on the way allow.
#pragma once

#include <cmath>
#include <set>
#include <vector>

#include "invar/core/format_info.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {

inline double norm(const std::vector<double>& v) {
    double total = 0;
    for (const double x : v) total += x * x;
    return std::sqrt(total);
}

// The recorded ops behind a result: how often a value was rounded on its way.
inline std::size_t ops_behind(const Tensor& y) {
    std::set<const Node*> seen;
    std::vector<const Node*> open{y.node().get()};
    while (!open.empty()) {
        const Node* node = open.back();
        open.pop_back();
        if (node == nullptr || dynamic_cast<const Accumulator*>(node) || !seen.insert(node).second) continue;
        for (const auto& input : node->inputs()) open.push_back(input.get());
    }
    return seen.size();
}

// The distance as a share of what the format allows. Sums of `summed` terms are kept in FP32 (FP64 for f64): each term
// may cost them an epsilon.
inline double error_share(const std::vector<double>& got, const std::vector<double>& exact, double terms, Dtype dtype,
                          std::size_t roundings, std::int64_t summed = 0) {
    std::vector<double> difference;
    for (std::size_t i = 0; i < got.size(); ++i) difference.push_back(got[i] - exact[i]);
    const FormatInfo format = format_info(dtype);
    const double wide = format_info(dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32).epsilon;
    const double allowed = 0.5 * (format.epsilon * double(roundings) + wide * double(summed)) * terms * norm(exact);
    // Below the smallest normal value the rounding is absolute.
    return norm(difference) / (allowed + format.smallest_subnormal * double(got.size()));
}

// How far the gradients move, as a share of what the format allows, when the incoming one is not dense but lies in
// memory like this. Functions may be shorter where all is dense, but nothing else is computed.
inline double layout_error(const Function& function, const Tensors& inputs, Layout incoming, double terms,
                           Dtype dtype) {
    const auto gradients = [&](const Tensor& y, const Tensor& gradient) {
        for (const Tensor& input : inputs) input.set_grad({});
        backward(y, gradient);
        std::vector<std::vector<double>> all;
        for (const Tensor& input : inputs)
            all.push_back(input.grad() ? input.grad().to_vector<double>() : std::vector<double>{});
        return all;
    };
    const Tensor first = function(inputs), second = function(inputs);
    const Tensor strided =
        laid_out(random_values(first.numel(), 0.5, 1.5, 99), first.shape(), first.dtype(), first.device(), incoming);
    const Tensor dense =
        laid_out(strided.to_vector<double>(), first.shape(), first.dtype(), first.device(), Layout::dense);
    const auto got = gradients(first, strided), expected = gradients(second, dense);
    double largest = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double share = error_share(got[i], expected[i], terms, dtype, ops_behind(second) + 1);
        largest = share <= largest ? largest : share;  // NaN counts
    }
    return largest;
}

}  // namespace invar::testing
