// Batch norms over the samples of all ranks, against those of one process.
#include <gtest/gtest.h>

#include "invar/models/resnet.h"
#include "tests/dist/deferred_collectives.h"
#include "tests/train/trained_ranks.h"

namespace invar {
namespace {

// Two batches of 16 an epoch, and one of 2, of which three ranks do not all get a sample.
Config with_batch_norm(const std::string& precision) {
    Config config = config_for("ddp", precision);
    config.model.choose("resnet", ResNetOptions{.layers = 18, .stem = "cifar", .width = 4});
    config.data.choose("synthetic",
                       SyntheticOptions{.size = 34, .height = 16, .width = 16, .channels = 2, .classes = 4});
    config.optimizer.choose("sgd");
    config.optimizer.lr = 0.01;
    config.trainer.sync_batchnorm = true;
    return config;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::abs(double(a[i]) - double(b[i])) / (1 + std::abs(double(b[i]))));
    return largest;
}

// How far apart trainings end, and are on the way.
struct Apart {
    double losses = 0, weights = 0, running = 0;
    Apart(const Trained& a, const Trained& b)
        : weights(largest_difference(a.weights, b.weights)), running(largest_difference(a.running, b.running)) {
        for (std::size_t i = 0; i < a.losses.size(); ++i)
            losses = std::max(losses, std::abs(a.losses[i] - b.losses[i]));
    }
};

// Three times what a rounding of each weight makes of the run, by the worst of some ways to round.
Apart allowed_by_rounding(const Config& config, const Trained& one, float rounding) {
    Apart most(one, one);
    for (const std::int64_t period : {2, 3, 5, 7}) {
        const Apart apart(train_steps(config, 5,
                                      [&](invar::Setup& setup) {
                                          for (const Parameter* p : setup.optimizer->store().parameters()) {
                                              float* const values = p->value.data<float>();
                                              for (std::int64_t i = 0; i < p->value.numel(); ++i)
                                                  values[i] *= i % period == 0 ? 1 - rounding : 1 + rounding;
                                          }
                                          setup.optimizer->store().refresh_shadow();
                                      }),
                          one);
        most.losses = std::max(most.losses, 3 * apart.losses);
        most.weights = std::max(most.weights, 3 * apart.weights);
        most.running = std::max(most.running, 3 * apart.running);
    }
    return most;
}

TEST(Ranks, SynchroniseBatchNormsToThoseOfTheWholeBatch) {
    for (const char* precision : {"32-true", "16-mixed"}) {
        Config config = with_batch_norm(precision);
        const Trained one = train_steps(config, 5);
        ASSERT_FALSE(one.running.empty());
        const Apart allowed =
            allowed_by_rounding(config, one, std::string(precision) == "32-true" ? 0x1p-24f : 0x1p-11f);
        for (const int size : {2, 3}) {
            for (const char* recompute : {"none", "light", "block"}) {
                config.trainer.recompute = recompute;
                SCOPED_TRACE(fmt::format("{} ranks, {}, recompute {}", size, precision, recompute));
                const std::vector<Trained> ranks = train_as_ranks(size, config, 5);
                const Apart apart(ranks[0], one);
                EXPECT_LE(apart.losses, allowed.losses);
                EXPECT_LE(apart.weights, allowed.weights);
                EXPECT_LE(apart.running, allowed.running);
                for (const Trained& each : ranks) {
                    EXPECT_EQ(each.state, ranks[0].state);
                    EXPECT_EQ(each.running, ranks[0].running) << "the same bits on every rank";
                }
            }
        }
        config.trainer.recompute = "none";
        config.trainer.sync_batchnorm = false;
        const std::vector<Trained> alone = train_as_ranks(2, config, 5);
        EXPECT_GT(Apart(alone[0], one).running, allowed.running);
        EXPECT_NE(alone[0].running, alone[1].running) << "each has its own";
    }
}

TEST(Ranks, SynchroniseBatchNormsUnderEveryStrategy) {
    Config config = with_batch_norm("32-true");
    const Trained ddp = train_as_ranks(3, config, 4)[0];
    for (const char* strategy : {"zero1", "zero2"}) {
        config.trainer.strategy = strategy;
        const Trained other = train_as_ranks(3, config, 4)[1];
        EXPECT_EQ(other.state, ddp.state) << strategy;
        EXPECT_EQ(other.running, ddp.running) << strategy;
    }
}

// To the same bits where devices exchange by themselves.
TEST(Ranks, SynchroniseBatchNormsWithoutTheHost) {
    const Config config = with_batch_norm("16-mixed");
    const std::vector<Trained> by_host = train_as_ranks(3, config, 4);
    as_ranks(3, [&](Communicator& ranks) {
        DeferredRanks deferred(ranks);
        const WorldScope scope(deferred);
        const Trained by_device = train_steps(config, 4);
        EXPECT_EQ(deferred.left(), 0u);
        EXPECT_EQ(by_device.state, by_host[std::size_t(ranks.rank())].state);
        EXPECT_EQ(by_device.running, by_host[std::size_t(ranks.rank())].running);
    });
}

}  // namespace
}  // namespace invar
