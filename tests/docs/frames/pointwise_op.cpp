// A struct of kernels/pointwise.h: its gradient is that of its values.
#include <gtest/gtest.h>

#include "invar/kernels/pointwise.h"

using namespace ::invar;
using namespace ::invar::pointwise;

// BLOCK

TEST(DocsPointwiseOp, HasTheGradientOfItsValues) {
    for (const double x : {-3.0, -0.5, 0.25, 2.0}) {
        const double h = 1e-6;
        const double slope = (Softsign::forward(x + h, {}) - Softsign::forward(x - h, {})) / (2 * h);
        EXPECT_NEAR(Softsign::backward(1.0, x, {}), slope, 1e-8) << x;
        EXPECT_NEAR(Softsign::forward(float(x), {}), float(Softsign::forward(x, {})), 1e-6) << x;
    }
}
