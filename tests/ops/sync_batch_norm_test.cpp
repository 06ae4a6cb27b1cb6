// A batch norm over ranks against the same norm over all their rows on one: results, gradients and running statistics.
#include "invar/ops/sync_batch_norm.h"

#include <gtest/gtest.h>

#include <numeric>

#include "invar/autograd/node.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/dist/thread_ranks.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {
namespace {

using namespace invar::ops;
using Numbers = std::vector<double>;

constexpr std::int64_t kChannels = 5;

struct Norm {
    Numbers y, gx, gresidual, ggamma, gbeta, running_mean, running_var;
};

// Rows first to last of what all ranks have together. Means of channels lie apart, so that wrong ones show.
Tensor rows(std::uint64_t seed, std::int64_t first, std::int64_t count, Dtype dtype, std::int64_t all) {
    Numbers values = random_values(all * kChannels, -2, 2, seed);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += double(i % kChannels) + 0.1 * double(i / kChannels);
    return Tensor::from(Numbers(values.begin() + first * kChannels, values.begin() + (first + count) * kChannels),
                        {count, kChannels}, dtype);
}

Norm run(std::int64_t first, std::int64_t count, std::int64_t all, Dtype dtype, bool relu, bool residual,
         double share = 1) {
    Tensor x = rows(1, first, count, dtype, all).set_requires_grad();
    Tensor added = rows(2, first, count, dtype, all).set_requires_grad();
    Tensor gamma = Tensor::from(random_values(kChannels, 0.5, 2, 3), {kChannels}, Dtype::f32).set_requires_grad();
    Tensor beta = Tensor::from(random_values(kChannels, -3, 0, 4), {kChannels}, Dtype::f32).set_requires_grad();
    const Tensor mean = Tensor::from(Numbers(kChannels, 0.5), {kChannels}, Dtype::f32);
    const Tensor var = Tensor::from(Numbers(kChannels, 2.0), {kChannels}, Dtype::f32);
    const Tensor y = batch_norm(x, gamma, beta, mean, var, true, 0.1, 1e-5,
                                {relu ? Activation::relu : Activation::none, residual ? added : Tensor{}});
    const Tensor weights = rows(5, first, count, Dtype::f32, all);
    backward(sum(y * y * weights) * share);
    const auto numbers = [](const Tensor& t) { return t ? t.to_vector<double>() : Numbers{}; };
    return {numbers(y),           numbers(x.grad()), numbers(added.grad()), numbers(gamma.grad()),
            numbers(beta.grad()), numbers(mean),     numbers(var)};
}

void expect_near(const Numbers& a, const Numbers& b, double tolerance, const char* what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    double largest = 1;
    for (const double value : b) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * largest) << what << " " << i;
}

void append(Numbers& all, const Numbers& part) {
    all.insert(all.end(), part.begin(), part.end());
}
void add(Numbers& sum, const Numbers& part) {
    if (sum.empty()) sum.resize(part.size(), 0.0);
    for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
}

TEST(SyncBatchNorm, GivesWhatOneRankGivesForAllRows) {
    const std::vector<std::int64_t> counts{7, 4, 1};
    const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t(0));
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::f16}) {
        const double tolerance = dtype == Dtype::bf16 ? 0.02 : dtype == Dtype::f16 ? 0.003 : 2e-6;
        for (const auto& [relu, residual] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
            const Norm one = run(0, all, all, dtype, relu, residual);
            std::vector<Norm> ranks(4);
            as_ranks(4, [&](Communicator& world) {
                const SyncBatchNorm together(&world);
                const std::size_t r = std::size_t(world.rank());
                const bool spare = r == counts.size();  // works on a row of another, which counts for nothing
                const SyncBatchNorm::Spare here(spare);
                const std::int64_t first = std::accumulate(
                    counts.begin(), counts.begin() + std::min<std::int64_t>(world.rank(), 3), std::int64_t(0));
                ranks[r] = run(spare ? 2 : first, spare ? 1 : counts[r], all, dtype, relu, residual, spare ? 0 : 1);
            });
            Norm together;
            for (std::size_t r = 0; r < counts.size(); ++r) {
                append(together.y, ranks[r].y);
                append(together.gx, ranks[r].gx);
                append(together.gresidual, ranks[r].gresidual);
            }
            for (const Norm& rank : ranks) {
                add(together.ggamma, rank.ggamma);
                add(together.gbeta, rank.gbeta);
                EXPECT_EQ(rank.running_mean, ranks[0].running_mean) << "the same bits on every rank";
                EXPECT_EQ(rank.running_var, ranks[0].running_var);
            }
            SCOPED_TRACE(fmt::format("{} relu {} residual {}", name_of(dtype), relu, residual));
            expect_near(together.y, one.y, tolerance, "y");
            expect_near(together.gx, one.gx, 2 * tolerance, "gx");
            expect_near(together.gresidual, one.gresidual, tolerance, "gresidual");
            expect_near(together.ggamma, one.ggamma, 2 * tolerance, "ggamma");
            expect_near(together.gbeta, one.gbeta, 2 * tolerance, "gbeta");
            expect_near(ranks[0].running_mean, one.running_mean, 1e-6, "running mean");
            expect_near(ranks[0].running_var, one.running_var, 1e-6, "running variance");
            expect_near(ranks[3].gx, Numbers(kChannels, 0.0), 0, "the gradient of a spare row");
        }
    }
}

TEST(SyncBatchNorm, NeedsMoreThanOneRowOnAllRanksTogether) {
    as_ranks(2, [](Communicator& world) {
        const SyncBatchNorm together(&world);
        const SyncBatchNorm::Spare spare(world.rank() == 1);
        EXPECT_ERROR(run(0, 1, 1, Dtype::f32, false, false), Error, "on all ranks together has no variance");
    });
}

TEST(SyncBatchNorm, LeavesEachRankByItselfOutsideItsScope) {
    std::vector<Norm> ranks(2);
    as_ranks(2, [&](Communicator& world) {
        ranks[std::size_t(world.rank())] = run(4 * world.rank(), 4, 8, Dtype::f32, false, false);
    });
    EXPECT_NE(ranks[0].running_mean, ranks[1].running_mean);
    EXPECT_EQ(ranks[0].y, run(0, 4, 8, Dtype::f32, false, false).y);
}

}  // namespace
}  // namespace invar::testing
