#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "invar/core/formats.h"
#include "tests/core/expect_error.h"
#include "tests/dist/thread_ranks.h"

namespace invar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// What rank r has at place i: no two sums in another order are the same.
float value_at(int rank, std::int64_t i) {
    return float(std::sin(double(i) * 1.37 + rank * 0.7) * std::pow(10.0, (rank * 5 + i) % 9 - 4));
}

Tensor values_of(int rank, std::int64_t count) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(value_at(rank, i));
    return Tensor::from<float>(values, {count});
}

// Long ones travel in parts.
TEST(Communicator, SumsInRankOrder) {
    for (const auto& [size, piece] : std::vector<std::pair<int, std::int64_t>>{{1, 37}, {2, 37}, {3, 70001}, {4, 37}}) {
        as_ranks(size, [&, size = size, piece = piece](Communicator& ranks) {
            const Tensor whole = values_of(ranks.rank(), piece * size), share = Tensor::empty({piece}, Dtype::f32);
            ranks.wait(ranks.reduce_scatter(whole, share));
            for (std::int64_t i = 0; i < piece; ++i) {
                const std::int64_t at = ranks.rank() * piece + i;
                float sum = value_at(0, at);
                for (int r = 1; r < size; ++r) sum += value_at(r, at);
                EXPECT_EQ(share.data<float>()[i], sum);
            }
            // In place as well: everybody then has all sums.
            const Tensor mine = whole.window(ranks.rank() * piece, {piece});
            ranks.wait(ranks.reduce_scatter(whole, mine));
            EXPECT_EQ(mine.to_vector<float>(), share.to_vector<float>());
            ranks.wait(ranks.all_gather(mine, whole));
            for (std::int64_t at = 0; at < piece * size; ++at) {
                float sum = value_at(0, at);
                for (int r = 1; r < size; ++r) sum += value_at(r, at);
                EXPECT_EQ(whole.data<float>()[at], sum);
            }
        });
    }
}

TEST(Communicator, RoundsEachPartOnceWhereGradientsTravelAsBf16) {
    as_ranks(3, [](Communicator& ranks) {
        const std::int64_t piece = 64;
        const Tensor whole = values_of(ranks.rank(), piece * 3), share = Tensor::empty({piece}, Dtype::f32);
        ranks.wait(ranks.reduce_scatter(whole, share, Dtype::bf16));
        for (std::int64_t i = 0; i < piece; ++i) {
            const std::int64_t at = ranks.rank() * piece + i;
            float sum = float(bf16(value_at(0, at)));
            for (int r = 1; r < 3; ++r) sum += float(bf16(value_at(r, at)));
            EXPECT_EQ(share.data<float>()[i], sum);
        }
    });
}

TEST(Communicator, SaysWhoseValueWasTheFirstThatIsNotFinite) {
    const std::vector<std::tuple<Dtype, std::int64_t, std::int64_t>> cases{
        {Dtype::f32, 50, 0}, {Dtype::bf16, 50, 0}, {Dtype::f32, 200001, 140000}, {Dtype::bf16, 200001, 140000}};
    for (const auto& [wire, piece, far] : cases) {
        as_ranks(4, [&, wire = wire, piece = piece, far = far](Communicator& ranks) {
            const Tensor whole = values_of(ranks.rank(), piece * 4), share = Tensor::empty({piece}, Dtype::f32);
            if (ranks.rank() == 2) whole.data<float>()[piece + far + 7] = kInf;
            if (ranks.rank() == 3)
                whole.data<float>()[piece + far + 7] = -kInf, whole.data<float>()[piece + far + 5] = 3e38f;
            if (ranks.rank() == 0) whole.data<float>()[piece + far + 5] = 3e38f;
            ReduceFinding found;
            ranks.wait(ranks.reduce_scatter(whole, share, wire, &found));
            EXPECT_EQ(found.place, ranks.rank() == 1 ? far + 5 : -1);
            EXPECT_EQ(found.rank, -1);  // both were finite, and their sum is not
            whole.data<float>()[piece + far + 5] = 0;
            ranks.wait(ranks.reduce_scatter(whole, share, wire, &found));
            EXPECT_EQ(found.place, ranks.rank() == 1 ? far + 7 : -1);
            EXPECT_EQ(found.rank, ranks.rank() == 1 ? 2 : -1);
        });
    }
}

TEST(Communicator, CarriesPlainData) {
    as_ranks(3, [](Communicator& ranks) {
        EXPECT_EQ(ranks.gathered(ranks.rank() * 10), (std::vector<int>{0, 10, 20}));
        EXPECT_EQ(ranks.gathered(std::string(std::size_t(ranks.rank()), 'x')),
                  (std::vector<std::string>{"", "x", "xx"}));
        EXPECT_EQ(ranks.broadcast_text(ranks.rank() == 1 ? "from one" : "", 1), "from one");
        std::vector<double> sums{1.0 * ranks.rank(), 0.5};
        ranks.sum(sums);
        EXPECT_EQ(sums, (std::vector<double>{3.0, 1.5}));
        EXPECT_TRUE(ranks.any(ranks.rank() == 2));
        EXPECT_FALSE(ranks.any(false));
        ranks.check_same("the weather", "fair");
        EXPECT_ERROR(ranks.check_same("the seeds", ranks.rank() == 1 ? "5" : "4"), UsageError,
                     "the seeds differ between ranks: '4' on rank 0 and '5' on rank 1");
        ranks.barrier();
    });
}

TEST(Communicator, WorksOnBesideWhoAsked) {
    as_ranks(2, [](Communicator& ranks) {
        std::vector<Tensor> wholes, shares;
        std::vector<Communicator::Ticket> tickets;
        for (int i = 0; i < 20; ++i) {
            wholes.push_back(values_of(ranks.rank() + i, 2048));
            shares.push_back(Tensor::empty({1024}, Dtype::f32));
            tickets.push_back(ranks.reduce_scatter(wholes.back(), shares.back()));
        }
        for (std::size_t i = tickets.size(); i-- > 0;) {
            ranks.wait(tickets[i]);  // in any order
            EXPECT_EQ(shares[i].data<float>()[3],
                      value_at(int(i), ranks.rank() * 1024 + 3) + value_at(1 + int(i), ranks.rank() * 1024 + 3));
        }
        EXPECT_GT(ranks.times().busy, 0.0);
    });
}

TEST(Communicator, AloneIsARankOfItsOwn) {
    const std::unique_ptr<Communicator> alone = make_alone();
    EXPECT_TRUE(alone->alone());
    const Tensor whole = values_of(0, 8), share = Tensor::empty({8}, Dtype::f32);
    alone->wait(alone->reduce_scatter(whole, share));
    EXPECT_EQ(share.to_vector<float>(), whole.to_vector<float>());
    EXPECT_EQ(alone->gathered(std::string("me")), std::vector<std::string>{"me"});
}

}  // namespace
}  // namespace invar
