// A step in two halves: what it has to know, and what it decides from that alone.
#include "invar/kernels/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "invar/core/tensor.h"
#include "invar/kernels/kernels.h"
#include "invar/kernels/update.h"

namespace invar {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

StepState found_in(const std::vector<float>& gradients, double loss) {
    StepState state;
    const Tensor values = Tensor::from(gradients, {std::int64_t(gradients.size())});
    kernels_for({}).grad_stats(values.view(), &state, Tensor::scalar(loss).view());
    return state;
}

StepState planned(StepState found, float scale = 1.0f) {
    ScaleState state;
    state.scale = scale;
    kernels_for({}).plan(&found, &state, {ClipSpec::Kind::norm, 1.0f}, {});
    return found;
}

// What two who train together would tell each other between the halves.
StepState agreed(StepState a, const StepState& b) {
    a.sum_squares += b.sum_squares;
    a.max_abs = std::fmax(a.max_abs, b.max_abs);
    a.nonfinite += b.nonfinite;
    a.bad_loss |= b.bad_loss;
    return a;
}

TEST(Step, KnowsNormExtremeAndFinitenessBeforeAnythingIsDecided) {
    const StepState found = found_in({3, -4, INFINITY, NAN}, kNan);
    EXPECT_EQ(found.nonfinite, 2);
    EXPECT_EQ(found.first_nonfinite, 2);
    EXPECT_TRUE(found.bad_loss);
    EXPECT_FALSE(found.skip) << "that is the second half's";
    EXPECT_EQ(found_in({3, -4}, 1).sum_squares, 25);
    EXPECT_EQ(found_in({3, -4}, 1).max_abs, 4);
}

TEST(Step, IsDecidedAlikeHoweverManyFoundWhatItRestsOn) {
    const StepState whole = planned(found_in({3, 4, 12, 0}, 1), 4.0f);
    const StepState halves = planned(agreed(found_in({3, 4}, 1), found_in({12, 0}, 1)), 4.0f);
    EXPECT_EQ(whole.grad_norm, 13.0f / 4.0f);
    EXPECT_EQ(halves.grad_norm, whole.grad_norm);
    EXPECT_EQ(halves.unscale, whole.unscale);
    EXPECT_FALSE(halves.skip);
}

TEST(Step, IsSkippedByAllWhereOneFoundWhatIsNotFinite) {
    const StepState good = found_in({3, 4}, 1);
    EXPECT_FALSE(planned(good).skip);
    EXPECT_TRUE(planned(agreed(good, found_in({1, NAN}, 1))).skip);
    EXPECT_TRUE(planned(agreed(good, found_in({1, 1}, kNan))).skip) << "zeros and clamps may hide a bad loss";
    EXPECT_FALSE(planned(found_in({3, 4}, 1)).bad_loss) << "what an earlier step found is not kept";
}

// The rule that knows its kind as it runs, as a GPU's kernel does, and the one compiled for it, as the CPU's loops are.
TEST(Update, IsOneRuleWhetherItsKindIsKnownBeforeOrNot) {
    for (const auto kind : {OptimizerSpec::Kind::sgd, OptimizerSpec::Kind::adam, OptimizerSpec::Kind::adamw}) {
        OptimizerSpec spec;
        spec.kind = kind;
        spec.momentum = 0.9;
        spec.weight_decay = 0.01;
        Update update;
        update.prepare(spec, StepState{}, 0);
        float w[2] = {0.7f, 0.7f}, m[2] = {0.1f, 0.1f}, v[2] = {0.2f, 0.2f};
        update.apply(w[0], 0.3f, m[0], v[0], true);
        with_kind(kind, [&](auto constant) { update.apply<constant.value>(w[1], 0.3f, m[1], v[1], true); });
        EXPECT_EQ(w[0], w[1]);
        EXPECT_EQ(m[0], m[1]);
        EXPECT_EQ(v[0], v[1]);
        EXPECT_NE(w[0], 0.7f);
        EXPECT_EQ(moments_of(spec), kind == OptimizerSpec::Kind::sgd ? 1 : 2);
    }
}

}  // namespace
}  // namespace invar
