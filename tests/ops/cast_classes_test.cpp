// What autocast does with each op: the class every op states, and the dtype its result has under each policy.
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "invar/amp/autocast.h"
#include "invar/ops/apply.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/ops/cases.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

// Said a second time on purpose: a class that changes by accident changes the numerics of every model. Pointwise ops
// have theirs in the table of cases.
const std::vector<std::pair<CastClass, std::vector<std::string>>> kClasses{
    {CastClass::low,
     {"matmul", "linear", "conv2d", "conv_transpose2d", "attention", "self_attention", "linear_cross_entropy",
      "linears"}},
    {CastClass::fp32,
     {"softmax", "log_softmax", "sum", "mean", "var", "std", "prod", "norm", "cumsum", "upsample", "cross_entropy",
      "nll_loss"}},
    {CastClass::wide_inside, {"layer_norm", "rms_norm", "group_norm"}},
    {CastClass::widest, {"where", "cat", "residual_sum"}},
    {CastClass::keep,
     {"eq",          "ne",          "lt",          "le",      "gt",   "ge",   "logical_and", "logical_or",
      "logical_xor", "logical_not", "masked_fill", "tril",    "triu", "roll", "one_hot",     "any",
      "all",         "argmax",      "argmin",      "argsort", "min",  "sort", "topk"}},
    {CastClass::keep, {"reshape",    "permute",    "unsqueeze",  "squeeze", "slice",  "index", "expand", "contiguous",
                       "max_pool2d", "avg_pool2d", "batch_norm", "swiglu",  "rotary", "max",   "amax",   "amin",
                       "gather",     "dropout",    "embedding",  "cast",    "to",     "pad"}},
};

TEST(CastClasses, AreWhatTheTableSays) {
    std::map<std::string, CastClass> expected;
    for (const auto& [cast, names] : kClasses)
        for (const std::string& name : names) expected[name] = cast;
    for (const OpCase& op_case : all_cases())
        if (op_case.cast) expected[op_case.op()] = *op_case.cast;
    for (const OpEntry& entry : registered_ops()) {
        if (std::string(entry.name).find("test_") == 0) continue;
        ASSERT_TRUE(expected.contains(entry.name)) << entry.name << " is in no row of the table";
        EXPECT_EQ(name_of(expected[entry.name]), name_of(entry.cast)) << entry.name;
    }
}

// The dtype an op's result should have, from its class and its inputs' dtype alone.
Dtype expected_dtype(CastClass cast, Dtype input, const CastPolicy& policy) {
    if (policy.mode == CastPolicy::Mode::off) return input;
    if (policy.mode == CastPolicy::Mode::fp32) return cast == CastClass::keep ? input : Dtype::f32;
    if (cast == CastClass::low || cast == CastClass::wide_inside) return policy.low;
    if (cast == CastClass::fp32) return Dtype::f32;
    return input;
}

TEST(CastClasses, DecideTheDtypeOfEveryResult) {
    const CastPolicy policies[] = {{CastPolicy::Mode::low, Dtype::f16, Level::O1},
                                   {CastPolicy::Mode::low, Dtype::bf16, Level::O1},
                                   {CastPolicy::Mode::low, Dtype::f16, Level::O2},
                                   Autocast::off(),
                                   Autocast::fp32()};
    std::map<std::string, CastClass> classes;
    for (const OpEntry& entry : registered_ops()) classes[entry.name] = entry.cast;
    for (const CastPolicy& policy : policies)
        for (const Dtype input : {Dtype::f32, policy.low})
            for (const OpCase& op_case : all_cases()) {
                const CastClass cast = classes.at(op_case.op());
                if (op_case.op() == "cast" || (cast == CastClass::refuse && policy.mode == CastPolicy::Mode::low))
                    continue;
                // Class losses give FP32 whatever they get.
                const bool wide = op_case.op() == "cross_entropy" || op_case.op() == "nll_loss" ||
                                  op_case.op() == "linear_cross_entropy";
                const Prepared prepared = prepare_case(op_case, input);
                const Autocast autocast(policy);
                const Dtype expected = wide ? Dtype::f32 : expected_dtype(cast, input, policy);
                EXPECT_EQ(name_of(prepared.run(prepared.leaves).dtype()), name_of(expected))
                    << op_case.name << " on " << name_of(input) << ", mode " << int(policy.mode) << ", level "
                    << name_of(policy.level);
            }
}

TEST(CastClasses, Float64IsNeverCast) {
    const Tensor x = normal({2, 3}, 0, 1, Dtype::f64);
    const Autocast autocast(Dtype::f16);
    EXPECT_EQ(matmul(x, transpose(x, 0, 1)).dtype(), Dtype::f64);
    EXPECT_EQ(exp(x).dtype(), Dtype::f64);
}

TEST(CastClasses, BceOnProbabilitiesIsRefusedWithTheReasonAndTheWayOut) {
    const Tensor p = full({3}, 0.5), t = ones({3});
    {
        const Autocast autocast(Dtype::f16);
        EXPECT_ERROR(bce(p, t), UsageError, "bce_with_logits");
        EXPECT_ERROR(bce(p, t), UsageError, "does not fit in 16 bits");
        EXPECT_NO_THROW(bce_with_logits(p, t));
        const Autocast pinned(Autocast::fp32());
        EXPECT_NO_THROW(bce(p, t));
    }
    EXPECT_NO_THROW(bce(p, t));
}

Dtype product_dtype() {
    const Tensor x = ones({2, 2});
    return matmul(x, x).dtype();
}

TEST(Autocast, NestsAndRestoresOnTheWayOut) {
    EXPECT_EQ(product_dtype(), Dtype::f32);
    {
        const Autocast outer(Dtype::f16);
        EXPECT_EQ(product_dtype(), Dtype::f16);
        {
            const Autocast inner(Dtype::bf16);
            EXPECT_EQ(product_dtype(), Dtype::bf16);
            const Autocast off(Autocast::off());
            EXPECT_EQ(product_dtype(), Dtype::f32);
        }
        EXPECT_EQ(product_dtype(), Dtype::f16);
        try {
            const Autocast inner(Autocast::fp32());
            EXPECT_EQ(product_dtype(), Dtype::f32);
            throw Error("left by an exception");
        } catch (const Error&) {
        }
        EXPECT_EQ(product_dtype(), Dtype::f16);
    }
    EXPECT_EQ(product_dtype(), Dtype::f32);
}

TEST(Autocast, DoesNotReachOtherThreads) {
    const Autocast autocast(Dtype::f16);
    Dtype there = Dtype::u8;
    std::thread([&] { there = product_dtype(); }).join();
    EXPECT_EQ(there, Dtype::f32);
    EXPECT_EQ(product_dtype(), Dtype::f16);
}

TEST(Autocast, SwitchedOffDoesNothing) {
    const Autocast autocast(Dtype::f16, false);
    EXPECT_EQ(product_dtype(), Dtype::f32);
}

TEST(Autocast, RunsIn16BitsOnly) {
    EXPECT_ERROR(const Autocast wide(Dtype::f32), UsageError, "f16 or bf16");
}

TEST(Autocast, PinnedToFp32WidensWhatComesIn16Bits) {
    const Tensor x = ones({2, 2}, Dtype::f16);
    const Autocast pin(Autocast::fp32());
    EXPECT_EQ(matmul(x, x).dtype(), Dtype::f32);
}

TEST(Autocast, MixedArithmeticWidensAtO1AndNarrowsAtO2) {
    const Tensor wide = ones({2}), narrow = ones({2}, Dtype::f16);
    const Autocast o1(Dtype::f16);
    EXPECT_EQ((wide + narrow).dtype(), Dtype::f32);
    EXPECT_EQ(cat({narrow, wide}).dtype(), Dtype::f32);
    const Autocast o2(Dtype::f16, true, Level::O2);
    EXPECT_EQ((wide + narrow).dtype(), Dtype::f16);
    EXPECT_EQ((wide + wide).dtype(), Dtype::f32);  // losses add up in FP32 at any level
}

TEST(Autocast, CastsAreRecordedSoThatAnF32LeafGetsAnF32Gradient) {
    const Tensor w = full({2, 3}, 0.25).set_requires_grad();
    const Autocast autocast(Dtype::f16);
    const Tensor y = linear(ones({4, 3}), w);
    EXPECT_EQ(y.dtype(), Dtype::f16);
    EXPECT_STREQ(y.node()->inputs()[1]->name(), "cast");
    backward(sum(y));
    EXPECT_EQ(w.grad().dtype(), Dtype::f32);
    EXPECT_EQ(w.grad().to_vector<double>(), std::vector<double>(6, 4.0));
}

TEST(Autocast, AWeightWithAShadowIsNotCastAndItsGradientArrivesInF32) {
    const Tensor w = full({1, 2}, 0.25).set_requires_grad();
    w.set_shadow(full({1, 2}, 0.5, Dtype::f16));  // different on purpose: the result tells which was used
    const Autocast autocast(Dtype::f16);
    const Tensor y = linear(ones({3, 2}), w);
    EXPECT_EQ(y.to_vector<double>(), std::vector<double>(3, 1.0));
    EXPECT_STREQ(y.node()->inputs()[1]->name(), "accumulate");
    backward(sum(y));
    EXPECT_EQ(w.grad().dtype(), Dtype::f32);
    const Autocast other(Dtype::bf16);  // a shadow of another dtype is of no use
    EXPECT_EQ(linear(ones({3, 2}), w).to_vector<double>(), std::vector<double>(3, 0.5));
}

TEST(Autocast, WeightGradientsAreNotRoundedTo16Bits) {
    // 1 + 2^-12 does not exist in f16: the sum of the two products is kept only where the product writes FP32.
    const Tensor x = Tensor::from(std::vector<float>{1.0f, 0x1p-12f}, {2, 1});
    Tensor linear_w = ones({1, 1}).set_requires_grad(), matmul_w = ones({1, 1}).set_requires_grad();
    Tensor conv_w = ones({1, 1, 1, 1}).set_requires_grad(), bias = zeros({1}).set_requires_grad();
    for (const Tensor& w : {linear_w, matmul_w, conv_w}) w.set_shadow(cast(w.detach(), Dtype::f16));
    const Autocast autocast(Dtype::f16);
    backward(linear(x, linear_w), ones({2, 1}, Dtype::f16));
    backward(matmul(x, matmul_w), ones({2, 1}, Dtype::f16));
    backward(conv2d(reshape(x, {1, 2, 1, 1}), conv_w), ones({1, 2, 1, 1}, Dtype::f16));
    backward(linear(x, ones({1, 1}), bias), x);
    EXPECT_EQ(linear_w.grad().item(), 1 + 0x1p-12);
    EXPECT_EQ(matmul_w.grad().item(), 1 + 0x1p-12);
    EXPECT_EQ(bias.grad().item(), 1 + 0x1p-12);
    EXPECT_EQ(conv_w.grad().item(), 1 + 0x1p-12);
}

}  // namespace
}  // namespace invar::testing
