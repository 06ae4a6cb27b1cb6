// Every op in f16 and bf16 against f64 on the same rounded inputs. The tolerance follows from the format: each op on
// the way rounds its result once, by half an epsilon of the terms it is made of; sums are kept in FP32.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "invar/core/format_info.h"
#include "invar/ops/ops.h"
#include "tests/ops/cases.h"

namespace invar::testing {
namespace {

double norm(const std::vector<double>& v) {
    double total = 0;
    for (const double x : v) total += x * x;
    return std::sqrt(total);
}

// The recorded ops behind a result: how often a value was rounded on its way.
std::size_t ops_behind(const Tensor& y) {
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

// The distance as a share of what the format allows.
double error_share(const std::vector<double>& got, const std::vector<double>& exact, double terms, Dtype dtype,
                   std::size_t roundings) {
    std::vector<double> difference;
    for (std::size_t i = 0; i < got.size(); ++i) difference.push_back(got[i] - exact[i]);
    const FormatInfo format = format_info(dtype);
    const double allowed = 0.5 * format.epsilon * double(roundings) * terms * norm(exact);
    // Below the smallest normal value the rounding is absolute.
    return norm(difference) / (allowed + format.smallest_subnormal * double(got.size()));
}

class LowPrecision : public ::testing::TestWithParam<Dtype> {};

TEST_P(LowPrecision, EveryOpStaysWithinItsRounding) {
    for (const OpCase& op_case : all_cases()) {
        const Prepared low = prepare_case(op_case, GetParam());
        Prepared exact = low;
        exact.leaves.clear();
        for (const Tensor& leaf : low.leaves)
            exact.leaves.push_back(Tensor::from(leaf.to_vector<double>(), leaf.shape()).set_requires_grad());

        const Tensor y = low.run(low.leaves), reference = exact.run(exact.leaves);
        ASSERT_EQ(y.shape(), reference.shape()) << op_case.name;
        const std::size_t roundings = ops_behind(y);
        EXPECT_LE(
            error_share(y.to_vector<double>(), reference.to_vector<double>(), op_case.terms, GetParam(), roundings), 1)
            << op_case.name;

        const Tensor weights = Tensor::from(random_values(y.numel(), 0.5, 1.5, 99), y.shape(), GetParam());
        backward(y, weights);
        backward(reference, Tensor::from(weights.to_vector<double>(), y.shape()));
        for (std::size_t i = 0; i < low.leaves.size(); ++i) {
            const Tensor grad = low.leaves[i].grad();
            EXPECT_EQ(grad.dtype(), GetParam()) << op_case.name;
            EXPECT_LE(error_share(grad.to_vector<double>(), exact.leaves[i].grad().to_vector<double>(),
                                  op_case.gradient_terms, GetParam(), roundings + 1),
                      1)
                << op_case.name << ", gradient of input " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, LowPrecision, ::testing::Values(Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace invar::testing
