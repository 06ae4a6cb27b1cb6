// What is drawn for the samples of a batch, against what is drawn for parts of them by those who work on the parts
// alone. Samples of odd sizes begin in the middle of a counter.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "invar/autograd/node.h"
#include "invar/core/rng.h"
#include "invar/ops/ops.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {

// `op` of leaves of [samples, ...]: its result, then the gradient of the first leaf. The loss weighs elements apart.
using SampleOp = std::function<Tensor(const std::vector<Tensor>&)>;

inline std::vector<std::vector<double>> drawn_for(const SampleOp& op, std::vector<Tensor> leaves) {
    for (Tensor& leaf : leaves) leaf.set_requires_grad();
    const Tensor y = op(leaves);
    backward(y, ops::full(y.shape(), 0.5, y.dtype(), y.device()));
    return {y.to_vector<double>(), leaves[0].grad().to_vector<double>()};
}

inline void expect_parts_of_whole(const SampleOp& op, const std::vector<Tensor>& leaves, double tolerance) {
    constexpr std::int64_t kCuts[] = {0, 3, 4, 7};
    const std::int64_t samples = leaves[0].size(0);
    ASSERT_EQ(samples, kCuts[3]);
    default_generator().set_state({11, 5});
    const auto whole = drawn_for(op, leaves);
    const RngState behind = default_generator().state();
    for (int part = 0; part < 3; ++part) {
        const std::int64_t first = kCuts[part], count = kCuts[part + 1] - first;
        std::vector<Tensor> own;
        for (const Tensor& leaf : leaves) own.push_back(ops::slice(leaf, 0, first, first + count).detach());
        default_generator().set_state({11, 5});
        const SampleWindow window(first, count, samples);
        const auto here = drawn_for(op, own);
        EXPECT_EQ(default_generator().state(), behind) << "part " << part;
        for (std::size_t which = 0; which < here.size(); ++which) {
            const std::size_t each = whole[which].size() / std::size_t(samples);
            ASSERT_EQ(here[which].size(), each * std::size_t(count));
            for (std::size_t i = 0; i < here[which].size(); ++i)
                ASSERT_NEAR(here[which][i], whole[which][std::size_t(first) * each + i], tolerance)
                    << (which == 0 ? "result " : "gradient ") << i << " of part " << part;
        }
    }
}

inline void expect_dropout_by_samples(Dtype dtype, Device device) {
    for (const std::int64_t width : {1, 13, 65, 4099}) {
        SCOPED_TRACE(width);
        const Tensor x = Tensor::from(random_values(7 * width, 1, 2, 3), {7, width}, dtype);
        expect_parts_of_whole([](const std::vector<Tensor>& in) { return ops::dropout(in[0], 0.4, true); },
                              {ops::to(x, device)}, 0);
    }
}

// 3 heads of 37 x 37 weights: 4107 numbers a sample.
inline void expect_attention_by_samples(Dtype dtype, Device device, double tolerance) {
    for (const bool causal : {false, true}) {
        SCOPED_TRACE(causal);
        std::vector<Tensor> qkv;
        for (const std::uint64_t seed : {1, 2, 3})
            qkv.push_back(
                ops::to(Tensor::from(random_values(7 * 3 * 37 * 64, -1, 1, seed), {7, 3, 37, 64}, dtype), device));
        expect_parts_of_whole(
            [&](const std::vector<Tensor>& in) {
                return ops::attention(in[0], in[1], in[2], {.causal = causal, .dropout = 0.3});
            },
            qkv, tolerance);
    }
}

}  // namespace invar::testing
