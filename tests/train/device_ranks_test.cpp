// Ranks whose devices exchange and agree by themselves, against those that go by their hosts.
#include <gtest/gtest.h>

#include <cmath>

#include "invar/ops/ops.h"
#include "tests/dist/deferred_collectives.h"
#include "tests/train/trained_ranks.h"

namespace invar {
namespace {

// NaN is not equal to itself.
std::vector<double> without_nan(std::vector<double> values) {
    for (double& value : values) value = std::isnan(value) ? -1.0 : value;
    return values;
}

// The same where devices exchange and agree by themselves.
TEST(Ranks, DecideTheSameWithoutTheHost) {
    for (const char* precision : {"32-true", "bf16-mixed", "16-mixed"}) {
        for (const char* strategy : {"ddp", "zero1", "zero2"}) {
            for (const std::int64_t accumulate : {1, 2}) {
                const std::string what = fmt::format("{} {} {}", strategy, precision, accumulate);
                Config config = config_for(strategy, precision);
                config.trainer.gradient_clip_val = 0.5;
                config.trainer.accumulate_grad_batches = accumulate;
                config.scaler.init_scale = 0x1p30;  // overflows at first
                const std::vector<Trained> by_host = train_as_ranks(3, config, 20);
                std::vector<Trained> by_device(3);
                as_ranks(3, [&](Communicator& ranks) {
                    DeferredRanks deferred(ranks);
                    const WorldScope scope(deferred);
                    by_device[std::size_t(ranks.rank())] = train_steps(config, 20);
                    EXPECT_EQ(deferred.left(), 0u) << what;
                });
                for (std::size_t r = 0; r < 3; ++r) {
                    EXPECT_EQ(by_device[r].losses, by_host[r].losses) << what;
                    EXPECT_EQ(without_nan(by_device[r].norms), without_nan(by_host[r].norms)) << what;
                    EXPECT_EQ(by_device[r].state, by_host[r].state) << what;
                }
            }
        }
    }
}

// Gradients of NaN in one layer on one rank, though its loss is finite, told of with their place and rank; and
// parameters that only one rank reaches.
TEST(Ranks, TellTheSameOfAnOverflowWithoutTheHost) {
    const auto told = [](Communicator& ranks, const std::string& strategy) {
        Config config = config_for(strategy);
        config.trainer.accumulate_grad_batches = 2;
        std::vector<std::string> lines;
        invar::Setup setup(config);
        setup.train_data->start_epoch(0);
        const LossFunction good = setup.loss;
        for (std::size_t layer = 0; layer < setup.optimizer->store().parameters().size(); ++layer) {
            int batch = 0;
            setup.loss = [&](Module& model, const Batch& b) {
                const Tensor loss = good(model, b), weight = setup.optimizer->store().parameters()[layer]->value;
                return ranks.rank() == int(layer % 2) && batch++ == 1 ? loss + ops::sqrt(ops::sum(weight) * 0.0) : loss;
            };
            if (layer == 2)  // rank 0 has no gradient at all
                setup.loss = [&](Module& model, const Batch& b) {
                    const Tensor loss = good(model, b);
                    return ranks.rank() == 0 ? Tensor::from<float>({float(loss.item())}, {}).set_requires_grad() : loss;
                };
            setup.optimizer->ask_to_stop(ranks.rank() == 1 ? int(layer) : 0);
            step_function(setup)(setup.next_group());
            EXPECT_EQ(setup.optimizer->asked_to_stop(), int(layer));
            const StepState s = setup.optimizer->state();
            lines.push_back(fmt::format("{} {} {} {} {} {:a}", s.skip, s.taken, s.nonfinite, s.first_nonfinite,
                                        s.bad_rank, s.skip ? 0.0 : s.sum_squares));
        }
        return std::pair(lines, state_of(setup));
    };
    for (const char* strategy : {"ddp", "zero1", "zero2"}) {
        as_ranks(2, [&](Communicator& ranks) {
            const auto by_host = told(ranks, strategy);
            EXPECT_EQ(by_host.first[1].substr(0, 3), "1 0") << by_host.first[1];
            EXPECT_EQ(by_host.first[2].substr(0, 3), "0 1") << by_host.first[2];
            DeferredRanks deferred(ranks);
            const WorldScope scope(deferred);
            const auto by_device = told(deferred, strategy);
            EXPECT_EQ(by_device.first, by_host.first) << strategy;
            EXPECT_EQ(by_device.second, by_host.second) << strategy;
        });
    }
}

}  // namespace
}  // namespace invar
