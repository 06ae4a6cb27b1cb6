// Batch norms over the samples of all ranks, against those of one process.
#include <gtest/gtest.h>

#include "invar/models/resnet.h"
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

TEST(Ranks, SynchroniseBatchNormsToThoseOfTheWholeBatch) {
    for (const char* precision : {"32-true", "16-mixed"}) {
        const double tolerance = std::string(precision) == "32-true" ? 1e-4 : 0.03;
        Config config = with_batch_norm(precision);
        const Trained one = train_steps(config, 5);
        ASSERT_FALSE(one.running.empty());
        for (const int size : {2, 3}) {
            for (const char* recompute : {"none", "light", "block"}) {
                config.trainer.recompute = recompute;
                SCOPED_TRACE(fmt::format("{} ranks, {}, recompute {}", size, precision, recompute));
                const std::vector<Trained> ranks = train_as_ranks(size, config, 5);
                for (std::size_t i = 0; i < one.losses.size(); ++i)
                    EXPECT_NEAR(ranks[0].losses[i], one.losses[i], tolerance) << i;
                EXPECT_LE(largest_difference(ranks[0].weights, one.weights), tolerance);
                EXPECT_LE(largest_difference(ranks[0].running, one.running), tolerance);
                for (const Trained& each : ranks) {
                    EXPECT_EQ(each.state, ranks[0].state);
                    EXPECT_EQ(each.running, ranks[0].running) << "the same bits on every rank";
                }
            }
        }
        config.trainer.recompute = "none";
        config.trainer.sync_batchnorm = false;
        const std::vector<Trained> apart = train_as_ranks(2, config, 5);
        EXPECT_GT(largest_difference(apart[0].running, one.running), 2 * tolerance);
        EXPECT_NE(apart[0].running, apart[1].running) << "each has its own";
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

}  // namespace
}  // namespace invar
