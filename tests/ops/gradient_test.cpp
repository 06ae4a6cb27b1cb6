// Gradients of every op against f64 finite differences.
#include <gtest/gtest.h>

#include <set>

#include "invar/ops/apply.h"
#include "invar/ops/ops.h"
#include "tests/ops/cases.h"

namespace invar::testing {
namespace {

TEST(Gradients, OfEveryOpMatchFiniteDifferences) {
    for (const OpCase& op_case : all_cases()) {
        const Prepared prepared = prepare_case(op_case, Dtype::f64);
        EXPECT_EQ(gradient_mismatch(prepared.run, prepared.leaves), "") << op_case.name;
    }
}

TEST(Gradients, OfEveryOpMatchFiniteDifferencesOnTransposedInputs) {
    for (const OpCase& op_case : all_cases()) {
        const Prepared prepared = prepare_case(op_case, Dtype::f64, true);
        EXPECT_EQ(gradient_mismatch(prepared.run, prepared.leaves), "") << op_case.name;
    }
}

TEST(Gradients, AreCheckedForEveryOpThereIs) {
    std::set<std::string> covered;
    for (const OpCase& op_case : all_cases()) covered.insert(op_case.op());
    for (const OpEntry& entry : registered_ops())
        EXPECT_TRUE(covered.contains(entry.name) || std::string(entry.name).find("test_") == 0)
            << entry.name << " has no case";
    EXPECT_GT(registered_ops().size(), 50u);
}

// Twice x, with a gradient that says three.
struct WrongGradient {
    static constexpr const char* kName = "test_wrong_gradient";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor forward(Context&, const Tensors& in) {
        const NoGrad no_grad;
        return in[0] * 2.0;
    }
    Tensors backward(Context&, const Tensor& g) { return {g * 3.0}; }
};

TEST(Gradients, TheCheckDetectsAWrongGradient) {
    const Tensor x = Tensor::from(std::vector<double>{1, 2}, {2}).set_requires_grad();
    const std::string mismatch = gradient_mismatch([](const Tensors& in) { return apply(WrongGradient{}, in); }, {x});
    EXPECT_NE(mismatch.find("input 0 element 0"), std::string::npos) << mismatch;
}

TEST(Gradients, TheCheckDetectsAMissingGradient) {
    const Tensor x = Tensor::from(std::vector<double>{1, 2}, {2}).set_requires_grad();
    const Tensor y = Tensor::from(std::vector<double>{1, 2}, {2}).set_requires_grad();
    EXPECT_EQ(gradient_mismatch([](const Tensors& in) { return ops::neg(in[0]); }, {x, y}), "input 1 got no gradient");
}

struct NoCast {
    static constexpr const char* kName = "test_no_cast";
    Tensor forward(Context&, const Tensors& in) { return in[0]; }
    Tensors backward(Context&, const Tensor& g) { return {g}; }
};
struct NoBackward {
    static constexpr const char* kName = "test_no_backward";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor forward(Context&, const Tensors& in) { return in[0]; }
};
static_assert(!OpDefinition<NoCast>, "an op without an autocast class must not compile");
static_assert(!OpDefinition<NoBackward>, "an op without a gradient must not compile");
static_assert(OpDefinition<WrongGradient>);

}  // namespace
}  // namespace invar::testing
