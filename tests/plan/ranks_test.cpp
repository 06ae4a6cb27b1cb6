// What ranks share out and send, by cases that were worked out by hand.
#include "invar/plan/ranks.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// 100 Mi parameters in mixed precision: 16-bit weights, FP32 masters, gradients and two moments.
CountedStep mixed() {
    CountedStep step;
    step.elements = step.parameters = 100 * kMiB;
    step.weight_bytes = 2;
    step.masters = true;
    step.samples = 8;
    step.recorded = true;
    const std::int64_t bytes[kPurposes] = {200, 400, 400, 800, 1000, 64, 1};
    for (std::size_t i = 0; i < std::size_t(kPurposes); ++i) step.step.peak[i] = bytes[i] * kMiB;
    step.step.peak_total = 2800 * kMiB;
    step.evaluation.peak_total = 2000 * kMiB;
    step.held = 3000 * kMiB;
    return step;
}

CountedStep fp32() {
    CountedStep step = mixed();
    step.weight_bytes = 4;
    step.masters = false;
    step.step.peak[std::size_t(Purpose::weights)] = 400 * kMiB;
    step.step.peak[std::size_t(Purpose::masters)] = 0;
    return step;
}

std::int64_t mebibytes(const RankMemory& memory, Purpose purpose) {
    return memory.peak[std::size_t(purpose)] / kMiB;
}

TEST(Ranks, ByDdpEachHoldsWhatOneHoldsAlone) {
    const RankMemory memory = memory_of_rank(mixed(), {64, Strategy::ddp});
    std::array<std::int64_t, kPurposes> expected = mixed().step.peak;
    const std::int64_t sums = 400 * kMiB / 64;  // of its share
    expected[std::size_t(Purpose::gradients)] += sums;
    EXPECT_EQ(memory.peak, expected);
    EXPECT_EQ(memory.total, 2800 * kMiB + sums);
    EXPECT_EQ(memory.held, 3000 * kMiB + sums);
}

TEST(Ranks, ByZero1ShareOutMastersAndMoments) {
    const RankMemory memory = memory_of_rank(mixed(), {4, Strategy::zero1});
    EXPECT_EQ(mebibytes(memory, Purpose::weights), 200);
    EXPECT_EQ(mebibytes(memory, Purpose::masters), 100);
    EXPECT_EQ(mebibytes(memory, Purpose::optimizer), 200);
    EXPECT_EQ(mebibytes(memory, Purpose::gradients), 400 + 100);  // all, and the sums of its share
    EXPECT_EQ(memory.total, (2800 - 300 - 600 + 100) * kMiB);
    EXPECT_EQ(memory.evaluation, (2000 - 300 - 600 + 100) * kMiB);
    CountedStep with_norms = mixed();
    with_norms.wide = 3 * kMiB;  // elements that every rank has in FP32
    EXPECT_EQ(mebibytes(memory_of_rank(with_norms, {4, Strategy::zero1}), Purpose::weights), 200 + 12);
}

TEST(Ranks, ByZero2ShareOutGradientsToo) {
    const RankMemory memory = memory_of_rank(mixed(), {4, Strategy::zero2});
    EXPECT_EQ(mebibytes(memory, Purpose::gradients), 100 + 75);  // and three buckets that are under way
    EXPECT_EQ(memory.total, (2800 - 300 - 600 - 225) * kMiB);
}

TEST(Ranks, WithoutMastersKeepTheirWeightsWhole) {
    const RankMemory memory = memory_of_rank(fp32(), {4, Strategy::zero1});
    EXPECT_EQ(mebibytes(memory, Purpose::weights), 400);
    EXPECT_EQ(mebibytes(memory, Purpose::masters), 100);  // what it updates, before it is handed round
    EXPECT_EQ(mebibytes(memory, Purpose::optimizer), 200);
}

TEST(Ranks, AloneHoldAndSendTheSameByEveryStrategy) {
    for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2}) {
        EXPECT_EQ(memory_of_rank(mixed(), {1, strategy}).peak, mixed().step.peak);
        EXPECT_EQ(wire_bytes(mixed(), {1, strategy}).total(), 0);
        EXPECT_EQ(time_of_rank(mixed(), {1, strategy}, card_named("h200")).exposed, 0);
    }
}

TEST(Ranks, SendGradientsTwiceOrGradientsAndWeights) {
    // 3 of 4 parts of 400 MiB, there and back.
    EXPECT_EQ(wire_bytes(mixed(), {4, Strategy::ddp}).total(), 600.0 * kMiB);
    // In BF16 half of that.
    EXPECT_EQ(wire_bytes(mixed(), {4, Strategy::ddp, 2}).total(), 300.0 * kMiB);
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

TEST(Ranks, SendTheSumsOfAnAccumulationOnce) {
    Card card = round_numbers();
    CountedStep step = lasting(1.0, card);
    step.batches = 4;
    EXPECT_EQ(time_of_rank(step, {8, Strategy::ddp}, card).communication,
              time_of_rank(lasting(1.0, card), {8, Strategy::ddp}, card).communication);
}

TEST(Cards, AreListedWhereOneIsNotKnown) {
    EXPECT_ERROR(card_named("h20"), UsageError, "--card h20: there is no such card (did you mean 'h200'?)");
    EXPECT_ERROR(card_named("h20"), UsageError, "there are h200, h100, a100");
    EXPECT_ERROR(parse_strategy("zero3"), UsageError, "strategy 'zero3' is not there");
}

}  // namespace
}  // namespace invar
