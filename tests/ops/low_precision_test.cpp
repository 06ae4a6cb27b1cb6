// Every op in f16 and bf16 against f64 on the same rounded inputs. The tolerance follows from the format: each op on
// the way rounds its result once, by half an epsilon of the terms it is made of; sums are kept in FP32.
#include <gtest/gtest.h>

#include "invar/ops/ops.h"
#include "tests/ops/cases.h"
#include "tests/ops/rounding.h"

namespace invar::testing {
namespace {

// The format, and how the inputs lie in memory.
class LowPrecision : public ::testing::TestWithParam<std::tuple<Dtype, Layout>> {};

TEST_P(LowPrecision, EveryOpStaysWithinItsRounding) {
    const auto [dtype, inputs] = GetParam();
    for (const OpCase& op_case : all_cases()) {
        const Prepared low = prepare_case(op_case, dtype, inputs);
        Prepared exact = low;
        exact.leaves.clear();
        for (const Tensor& leaf : low.leaves)
            exact.leaves.push_back(Tensor::from(leaf.to_vector<double>(), leaf.shape()).set_requires_grad());

        const Tensor y = low.run(low.leaves), reference = exact.run(exact.leaves);
        ASSERT_EQ(y.shape(), reference.shape()) << op_case.name;
        const std::size_t roundings = ops_behind(y);
        EXPECT_LE(error_share(y.to_vector<double>(), reference.to_vector<double>(), op_case.terms, dtype, roundings), 1)
            << op_case.name;

        const Tensor weights = Tensor::from(random_values(y.numel(), 0.5, 1.5, 99), y.shape(), dtype);
        backward(y, weights);
        backward(reference, Tensor::from(weights.to_vector<double>(), y.shape()));
        for (std::size_t i = 0; i < low.leaves.size(); ++i) {
            const Tensor grad = low.leaves[i].grad();
            EXPECT_EQ(grad.dtype(), dtype) << op_case.name;
            EXPECT_LE(error_share(grad.to_vector<double>(), exact.leaves[i].grad().to_vector<double>(),
                                  op_case.gradient_terms, dtype, roundings + 1),
                      1)
                << op_case.name << ", gradient of input " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, LowPrecision,
                         ::testing::Combine(::testing::Values(Dtype::f16, Dtype::bf16),
                                            ::testing::Values(Layout::dense, Layout::transposed, Layout::sliced)),
                         [](const auto& info) {
                             return fmt::format("{}_{}_inputs", name_of(std::get<0>(info.param)),
                                                name_of(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace invar::testing
