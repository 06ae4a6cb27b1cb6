#include "tests/ops/exactness.h"

namespace invar::testing {
namespace {

TEST(Exactness, OfWholeNumbersSurvivesEveryCast) {
    expect_exact_casts({});
}
TEST(Exactness, OfWholeNumbersIsThatOfTwosComplement) {
    expect_exact_whole_numbers({});
}
TEST(Exactness, OfConstantRowsIsNormalisedToZero) {
    expect_constant_rows_to_become_zero({});
}
TEST(Exactness, OfAveragesIsThatOfADivision) {
    expect_divided_averages({});
}
TEST(Exactness, OfConstantsIsThatOfTheTensor) {
    expect_exact_constants({});
}
TEST(Exactness, OfActivationsGradientsHoldsOverWideRanges) {
    expect_gradients_with_all_digits({});
}
TEST(Exactness, OfFunctionsHoldsOverWideRanges) {
    expect_functions_with_all_digits({});
}
TEST(Exactness, OfAnEmptyBatchIsNoReasonToRefuseIt) {
    expect_empty_batches_to_be_normalised({});
}

}  // namespace
}  // namespace invar::testing
