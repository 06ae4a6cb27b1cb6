#include "invar/core/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <thread>

namespace invar {
namespace {

std::array<std::uint32_t, 4> words(Random4 random) {
    return {random.v[0], random.v[1], random.v[2], random.v[3]};
}
using Words = std::array<std::uint32_t, 4>;

// The vectors published with Random123, as counter words c0..c3 and key words k0 k1. Ours are packed low word
// first: the counter is c1:c0, the stream c3:c2, the seed k1:k0.
TEST(Philox, ReproducesThePublishedVectors) {
    EXPECT_EQ(words(philox(0, 0, 0)), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(words(philox(~0ull, ~0ull, ~0ull)), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: tells the words' places apart.
    EXPECT_EQ(words(philox(0x299f31d0'a4093822ull, 0x85a308d3'243f6a88ull, 0x03707344'13198a2eull)),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, DependsOnEveryBitOfSeedCounterAndStream) {
    std::set<Words> seen{words(philox(0, 0, 0))};
    for (int bit = 0; bit < 64; ++bit) {
        const std::uint64_t one = 1ull << bit;
        seen.insert(words(philox(one, 0, 0)));
        seen.insert(words(philox(0, one, 0)));
        seen.insert(words(philox(0, 0, one)));
    }
    EXPECT_EQ(seen.size(), 1 + 3 * 64u);
}

TEST(Philox, IsUniformByChiSquare) {
    constexpr int kBins = 256, kCounters = 1 << 18;
    std::array<std::array<int, kBins>, 4> histogram{};  // one a word, of the top bits that to_unit keeps
    for (int i = 0; i < kCounters; ++i) {
        const Random4 random = philox(42, std::uint64_t(i));
        for (int word = 0; word < 4; ++word) ++histogram[word][int(to_unit(random.v[word]) * kBins)];
    }
    const double expected = double(kCounters) / kBins;
    for (int word = 0; word < 4; ++word) {
        double chi_square = 0;
        for (const int count : histogram[word]) chi_square += (count - expected) * (count - expected) / expected;
        // 255 degrees of freedom: mean 255, deviation sqrt(510) = 22.6; five deviations either way.
        EXPECT_NEAR(chi_square, kBins - 1, 5 * std::sqrt(2.0 * (kBins - 1))) << "word " << word;
    }
}

TEST(Philox, NeighbouringCountersAndStreamsAreUncorrelated) {
    constexpr int kPairs = 1 << 16;
    double by_counter = 0, by_stream = 0, by_seed = 0;
    for (int i = 0; i < kPairs; ++i) {
        const double x = to_unit(philox(7, i).v[0]) - 0.5;
        by_counter += x * (to_unit(philox(7, i + 1).v[0]) - 0.5);
        by_stream += x * (to_unit(philox(7, i, 1).v[0]) - 0.5);
        by_seed += x * (to_unit(philox(8, i).v[0]) - 0.5);
    }
    const double five_deviations = 5 * std::sqrt(double(kPairs)) / 12;  // a product of two uniforms has deviation 1/12
    EXPECT_LT(std::fabs(by_counter), five_deviations);
    EXPECT_LT(std::fabs(by_stream), five_deviations);
    EXPECT_LT(std::fabs(by_seed), five_deviations);
}

TEST(ToUnit, ReachesZeroButNeverOne) {
    EXPECT_EQ(to_unit(0), 0.0f);
    EXPECT_EQ(to_unit(0xff), 0.0f) << "the low eight bits do not count";
    EXPECT_EQ(to_unit(0x100), 0x1p-24f);
    EXPECT_EQ(to_unit(0x8000'0000u), 0.5f);
    EXPECT_EQ(to_unit(0xffff'ffffu), 1 - 0x1p-24f);
    EXPECT_LT(to_unit(0xffff'ffffu), 1.0f);
}

TEST(Generator, ReservesCountersOnceAndReplaysThem) {
    Generator generator(5);
    const RngState first = generator.reserve(10), second = generator.reserve(1);
    EXPECT_EQ(first, (RngState{5, 0}));
    EXPECT_EQ(second, (RngState{5, 10}));
    const RngState here = generator.state();
    const RngState third = generator.reserve(3);
    generator.set_state(here);
    EXPECT_EQ(generator.reserve(3), third);
    EXPECT_EQ(generator.state(), (RngState{5, 14}));
}

TEST(ReservedNumbers, OfSomeSamplesAreThoseTheyHaveInTheWholeBatch) {
    const RngState start{5, 100};
    Generator whole;
    whole.set_state(start);
    EXPECT_EQ(reserve_for_samples(whole, 7 * 13, 8).skip, 0);
    for (std::int64_t first = 0; first < 7; ++first) {
        Generator own;
        own.set_state(start);
        const SampleWindow window(first, 1, 7);
        const ReservedNumbers numbers = reserve_for_samples(own, 13, 8);
        EXPECT_EQ(std::int64_t(numbers.from.offset - start.offset) * 8 + numbers.skip, first * 13);
        EXPECT_LT(numbers.skip, 8);
        EXPECT_EQ(own.state(), whole.state()) << "all go on from the same place";
    }
}

TEST(Generator, OfOneThreadIsNotThatOfAnother) {
    default_generator().set_state({1, 100});
    RngState other;
    std::thread([&] {
        default_generator().reserve(7);
        other = default_generator().state();
    }).join();
    EXPECT_EQ(other, (RngState{0, 7}));
    EXPECT_EQ(default_generator().state(), (RngState{1, 100}));
    default_generator().set_state({});
}

}  // namespace
}  // namespace invar
