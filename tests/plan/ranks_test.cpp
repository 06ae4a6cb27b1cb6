// What ranks send, by cases that were worked out by hand.
#include "invar/plan/ranks.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// 100 Mi parameters in mixed precision: 16-bit weights, FP32 masters.
CountedStep mixed() {
    CountedStep step;
    step.elements = step.parameters = 100 * kMiB;
    step.weight_bytes = 2;
    step.masters = true;
    step.samples = 8;
    step.recorded = true;
    step.buckets.assign(16, step.elements / 16);
    return step;
}

CountedStep fp32() {
    CountedStep step = mixed();
    step.weight_bytes = 4;
    step.masters = false;
    return step;
}

TEST(Ranks, AloneSendNothing) {
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
        EXPECT_EQ(wire_bytes(mixed(), {1, strategy}).total(), 0);
        EXPECT_EQ(time_of_rank(mixed(), {1, strategy}, card_named("h200")).exposed, 0);
    }
}

TEST(Ranks, SendGradientsTwiceOrGradientsAndWeights) {
    // 3 of 4 parts of 400 MiB, there and back.
    EXPECT_EQ(wire_bytes(mixed(), {4, Strategy::ddp}).total(), 600.0 * kMiB);
    // In BF16 half of that.
    EXPECT_EQ(wire_bytes(mixed(), {4, Strategy::ddp, 2}).reduced, 150.0 * kMiB);
    EXPECT_EQ(wire_bytes(mixed(), {4, Strategy::ddp, 2}).gathered, 300.0 * kMiB) << "sums are FP32";
    // 3 of 4 parts of 400 MiB of gradients, and of 200 MiB of 16-bit weights.
    for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
        EXPECT_EQ(wire_bytes(mixed(), {4, strategy}).reduced, 300.0 * kMiB);
        EXPECT_EQ(wire_bytes(mixed(), {4, strategy}).gathered, 150.0 * kMiB);
        EXPECT_EQ(wire_bytes(fp32(), {4, strategy}).gathered, 300.0 * kMiB);
    }
    EXPECT_EQ(wire_bytes(mixed(), {1024, Strategy::ddp}).total(), 2 * 1023.0 / 1024 * 400 * kMiB);
}

Card round_numbers() {
    Card card = card_named("h200");
    card.node = 8, card.link = 100e9, card.network = 10e9, card.latency = 0;
    return card;
}

TEST(Ranks, PassOverTheirNodeAndThenTheNetwork) {
    EXPECT_EQ(pass_seconds(8e9, 1, round_numbers()), 0);
    EXPECT_DOUBLE_EQ(pass_seconds(8e9, 2, round_numbers()), 0.04);  // half of it at 100 GB/s
    EXPECT_DOUBLE_EQ(pass_seconds(8e9, 8, round_numbers()), 0.07);  // seven parts of eight
    // Of each card's eighth, one GB, half goes to the other node at 10 GB/s.
    EXPECT_DOUBLE_EQ(pass_seconds(8e9, 16, round_numbers()), 0.07 + 0.05);
    Card far = round_numbers();
    far.latency = 1e-3;
    EXPECT_DOUBLE_EQ(pass_seconds(8e9, 64, far), 0.07 + 7e-3 + 0.0875 + 3e-3);
}

// A step that backward takes so many seconds of, on a card that copies a terabyte in one.
CountedStep lasting(double seconds, Card& card) {
    CountedStep step = mixed();
    card.copy = 1e12, card.gap = 0;
    dry::Work work;
    work.kernel = "unary";
    work.phase = dry::Phase::backward;
    work.bytes = seconds * 0.95e12;
    step.work = {work};
    return step;
}

TEST(Ranks, HideWhatTravelsBehindBackward) {
    Card card = round_numbers();
    const CountedStep step = lasting(1.0, card);
    const RankTime time = time_of_rank(step, {8, Strategy::ddp}, card);
    const double bucket = 2 * 25.0 * kMiB * 7 / 8 / 100e9;  // of 16
    EXPECT_NEAR(time.compute.backward, 1.0, 1e-9);
    EXPECT_NEAR(time.communication, 16 * bucket, 1e-9);
    // The last bucket is waited for; the others hold backward up a little.
    EXPECT_NEAR(time.exposed, bucket + 0.1 * 15 * bucket, 1e-9);
}

TEST(Ranks, WaitForLinksThatAreSlowerThanBackward) {
    Card card = round_numbers();
    const CountedStep step = lasting(1e-3, card);
    const RankTime time = time_of_rank(step, {8, Strategy::ddp}, card);
    EXPECT_GT(time.exposed, time.communication - 1e-3);
    EXPECT_LE(time.exposed, time.communication);
    const RankTime shared = time_of_rank(step, {8, Strategy::zero1}, card);
    EXPECT_LT(shared.communication, time.communication);
}

TEST(Ranks, WaitForAllWhereNothingTravelsBesideBackward) {
    Card card = round_numbers();
    CountedStep step = lasting(1.0, card);
    step.overlap = false;
    const RankTime time = time_of_rank(step, {8, Strategy::ddp}, card);
    EXPECT_NEAR(time.exposed, time.communication, 1e-12);
}

// A large bucket that backward fills last is waited for, whatever the others are.
TEST(Ranks, SendBucketsAsTheyAre) {
    Card card = round_numbers();
    CountedStep step = lasting(1.0, card);
    step.buckets = {10 * kMiB, 90 * kMiB};
    const RankTime time = time_of_rank(step, {8, Strategy::ddp}, card);
    const double small = 2 * 40.0 * kMiB * 7 / 8 / 100e9, large = 9 * small;
    EXPECT_NEAR(time.communication, small + large, 1e-9);
    EXPECT_NEAR(time.exposed, large + 0.1 * small, 1e-9);
}

TEST(Ranks, SendTheSumsOfAnAccumulationOnceButForZero2) {
    Card card = round_numbers();
    CountedStep step = lasting(1.0, card);
    step.batches = 4;
    const CountedStep single = lasting(1.0, card);
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1}) {
        EXPECT_EQ(time_of_rank(step, {8, strategy}, card).communication,
                  time_of_rank(single, {8, strategy}, card).communication);
        EXPECT_EQ(wire_bytes(step, {8, strategy}).reduced, wire_bytes(single, {8, strategy}).reduced);
    }
    // Under zero2 nobody could add them up before.
    const Ranks zero2{8, Strategy::zero2};
    EXPECT_EQ(wire_bytes(step, zero2).reduced, 4 * wire_bytes(single, zero2).reduced);
    EXPECT_EQ(wire_bytes(step, zero2).gathered, wire_bytes(single, zero2).gathered);
    EXPECT_GT(time_of_rank(step, zero2, card).communication, 2 * time_of_rank(single, zero2, card).communication);
}

TEST(Cards, AreListedWhereOneIsNotKnown) {
    EXPECT_ERROR(card_named("h20"), UsageError, "--card h20: there is no such card (did you mean 'h200'?)");
    EXPECT_ERROR(card_named("h20"), UsageError, "there are h200, h100, a100");
    EXPECT_ERROR(parse_strategy("zero3"), UsageError, "strategy 'zero3' is not there");
}

}  // namespace
}  // namespace invar
