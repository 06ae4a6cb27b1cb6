// Ranks against one process: the same batches, the same decisions, the same weights.
#include <gtest/gtest.h>

#include <cmath>

#include "invar/ops/ops.h"
#include "tests/dist/low_sum.h"
#include "tests/train/trained_ranks.h"

namespace invar {
namespace {

double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(double(a[i]) - double(b[i]), 2);
    return std::sqrt(sum);
}

TEST(Ranks, TrainAsOneProcessDoes) {
    Config config = config_for("ddp");
    const Trained one = train_steps(config, 50);
    // What a change of the weights in their last bits does by itself.
    const Trained perturbed = train_steps(config, 50, [](invar::Setup& setup) {
        for (Parameter* p : setup.optimizer->store().parameters()) {
            float* values = p->value.data<float>();
            for (std::int64_t i = 0; i < p->value.numel(); ++i) values[i] *= i % 2 == 0 ? 1.0f + 6e-8f : 1.0f - 6e-8f;
        }
    });
    const double allowed = 3 * distance(one.weights, perturbed.weights);
    ASSERT_GT(allowed, 0);
    for (const int size : {2, 3, 4}) {
        const std::vector<Trained> ranks = train_as_ranks(size, config, 50);
        EXPECT_LE(distance(one.weights, ranks[0].weights), allowed) << size;
        for (const Trained& each : ranks) {
            EXPECT_EQ(each.state, ranks[0].state);
            EXPECT_EQ(each.losses, ranks[0].losses);
            EXPECT_EQ(each.rng, one.rng);
            EXPECT_EQ(each.evaluation.samples, one.evaluation.samples);
            EXPECT_NEAR(each.evaluation.loss(), one.evaluation.loss(), 1e-3);
        }
        EXPECT_EQ(train_as_ranks(size, config, 50)[0].state, ranks[0].state) << "again, to the bit";
    }
}

TEST(Ranks, StrategiesAgreeToTheBit) {
    for (const char* precision : {"32-true", "bf16-mixed", "16-mixed", "bf16-true"}) {
        for (const int size : {2, 3, 4}) {
            Config config = config_for("ddp", precision);
            config.trainer.gradient_clip_val = 0.5;
            const Trained ddp = train_as_ranks(size, config, 12)[0];
            for (const char* strategy : {"zero1", "zero2"}) {
                config.trainer.strategy = strategy;
                const std::vector<Trained> ranks = train_as_ranks(size, config, 12);
                for (const Trained& each : ranks) {
                    EXPECT_EQ(each.state, ddp.state) << strategy << " " << precision << " " << size;
                    EXPECT_EQ(each.losses, ddp.losses);
                    EXPECT_EQ(each.norms, ddp.norms);
                }
            }
        }
    }
}

TEST(Ranks, AccumulateToTheGradientOfTheLargeBatch) {
    Config config = config_for("ddp");
    config.trainer.accumulate_grad_batches = 3;
    const Trained one = train_steps(config, 12);
    for (const char* strategy : {"ddp", "zero1", "zero2"}) {
        config.trainer.strategy = strategy;
        const Trained ranks = train_as_ranks(3, config, 12)[2];
        for (std::size_t i = 0; i < one.losses.size(); ++i)
            EXPECT_NEAR(one.losses[i], ranks.losses[i], 2e-4) << strategy;
        EXPECT_LE(distance(one.weights, ranks.weights),
                  1e-3 * distance(one.weights, std::vector<float>(one.weights.size())));
    }
}

TEST(Ranks, SendTheSameWhetherTheyWaitOrNot) {
    Config config = config_for("zero2");
    const Trained early = train_as_ranks(2, config, 6)[0];
    config.trainer.overlap = false;
    EXPECT_EQ(train_as_ranks(2, config, 6)[0].state, early.state);
    config.trainer.bucket_mb = 100;
    EXPECT_NEAR(train_as_ranks(2, config, 6)[0].losses.back(), early.losses.back(), 1e-4);
}

TEST(Ranks, DropTheSameElementsAsOneProcess) {
    Config config = config_for("ddp");
    for (const std::int64_t odd : {0, 1}) {  // samples then begin in the middle of a counter
        config.model.choose("mlp", MlpOptions{.hidden = {64 + odd, 32 - odd}, .dropout = 0.5});
        const Trained one = train_steps(config, 8);
        for (const int size : {2, 3}) {
            const Trained ranks = train_as_ranks(size, config, 8)[1];
            EXPECT_EQ(one.rng, ranks.rng);
            for (std::size_t i = 0; i < one.losses.size(); ++i)
                EXPECT_NEAR(one.losses[i], ranks.losses[i], 2e-4) << i << " on " << size << " ranks, odd " << odd;
        }
    }
}

// One rank's loss or one layer's gradient overflows in one micro-batch of one rank: nobody's bits change.
TEST(Ranks, LeaveEverythingAsItIsAfterAnOverflowAnywhere) {
    Config config = config_for("ddp", "16-mixed");
    config.trainer.accumulate_grad_batches = 2;
    for (const auto& [strategy, size] : std::vector<std::pair<const char*, int>>{
             {"ddp", 2}, {"zero1", 2}, {"zero2", 2}, {"ddp", 3}, {"zero1", 4}, {"zero2", 3}}) {
        config.trainer.strategy = strategy;
        for (int bad_rank = 0; bad_rank < size; ++bad_rank) {
            for (int bad_batch = 0; bad_batch < 2; ++bad_batch) {
                as_ranks(size, [&](Communicator& ranks) {
                    invar::Setup setup(config);
                    setup.train_data->start_epoch(0);
                    step_function(setup)(setup.next_group());
                    for (std::size_t layer = 0; layer < setup.optimizer->store().parameters().size(); ++layer) {
                        const std::map<std::string, RawBytes> before = state_of(setup);
                        std::vector<Batch> group = setup.next_group();
                        if (group.size() < 2) {
                            setup.train_data->start_epoch(1);
                            group = setup.next_group();
                        }
                        const LossFunction good = setup.loss;
                        int batch = 0;
                        setup.loss = [&](Module& model, const Batch& b) {
                            Tensor loss = good(model, b);
                            if (ranks.rank() != bad_rank || batch++ != bad_batch) return loss;
                            const Tensor weight = setup.optimizer->store().parameters()[layer]->value;
                            return loss + low_sum(weight) * 1e38 * 1e3;  // its gradient does not fit in FP32
                        };
                        step_function(setup)(group);
                        setup.loss = good;
                        const StepState state = setup.optimizer->state();
                        EXPECT_EQ(state.skip, 1);
                        EXPECT_EQ(state.bad_rank, bad_rank) << strategy << " " << layer;
                        EXPECT_EQ(state_of(setup), before) << strategy << " rank " << bad_rank << " layer " << layer;
                        for (const Parameter* p : setup.optimizer->store().parameters()) {
                            const Tensor shadow = p->value.shadow(), again = Tensor::empty_like(shadow);
                            kernels_for(shadow.device()).copy(p->whole().view(), again.view());
                            EXPECT_EQ(raw_bytes(shadow), raw_bytes(again));
                        }
                    }
                });
            }
        }
    }
}

TEST(Ranks, HoldTheirShareAlone) {
    for (const char* strategy : {"ddp", "zero1", "zero2"}) {
        as_ranks(4, [&](Communicator&) {
            invar::Setup setup(config_for(strategy, "bf16-mixed"));
            const ParameterStore& store = setup.optimizer->store();
            EXPECT_GE(store.buckets().size(), 3u);
            EXPECT_EQ(store.gradient_share().numel() * 4, store.elements());
            const FlatStore stepped = store.flat_to_step();
            EXPECT_EQ(stepped.count,
                      std::string(strategy) == "ddp" ? store.elements() : store.gradient_share().numel());
            EXPECT_EQ(store.own_weights().numel(), stepped.count);
            EXPECT_EQ(store.shares_masters(), std::string(strategy) != "ddp");
            EXPECT_EQ(store.flat().gradients == nullptr, std::string(strategy) == "zero2");
        });
    }
}

TEST(Ranks, RefuseToTrainDifferentThings) {
    const auto with = [](const std::function<void(Config&, int)>& change) {
        try {
            as_ranks(2, [&](Communicator& ranks) {
                Config config = config_for("ddp");
                change(config, ranks.rank());
                invar::Setup setup(config);
            });
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_NE(with([](Config& c, int rank) { c.optimizer.lr = rank == 1 ? 0.5 : 0.25; }).find("lr: 0.5"),
              std::string::npos);
    EXPECT_NE(with([](Config& c, int) { c.data.batch_size = 1; }).find("less than the 2 ranks"), std::string::npos);
}

TEST(Ranks, RefuseAGpuBesideACpu) {
    const auto with = [](const std::function<Device(int rank)>& device) {
        try {
            as_ranks(3, [&](Communicator& ranks) {
                const Device mine = device(ranks.rank());
                check_same_device(ranks, mine, mine.is_cpu() ? "no driver on this host" : "");
            });
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_EQ(with([](int) { return Device::cpu(); }), "");
    EXPECT_EQ(with([](int) { return Device::cuda(); }), "");
    EXPECT_EQ(
        with([](int rank) { return rank == 1 ? Device::cpu() : Device::cuda(); }),
        "rank 0 is on a GPU and rank 1 on the CPU: no driver on this host; --device cpu takes the CPU of all of them");
    EXPECT_NE(with([](int rank) { return rank == 2 ? Device::cuda() : Device::cpu(); }).find("rank 2 is on a GPU"),
              std::string::npos);
}

// mpirun tells all of them, a cluster perhaps one.
TEST(Ranks, StopTogetherAndKnowTheSignalThatAskedThemTo) {
    for (const int number : {0, 15}) {
        const ScratchFolder scratch;
        as_ranks(2, [&](Communicator& ranks) {
            struct Asker : Observer {
                void step_launched(const Progress& progress, std::int64_t) override {
                    if (asks && progress.step == 3) Trainer::request_stop("SIGTERM", number);
                }
                bool asks = false;
                int number = 0;
            } asker;
            asker.asks = ranks.rank() == 1;
            asker.number = number;
            Config config = config_for("ddp");
            config.output_dir = scratch.path().string();
            Trainer trainer(config);
            const RunSummary run = trainer.fit(asker);
            EXPECT_EQ(run.status, "interrupted");
            EXPECT_LE(run.steps, 5);
            EXPECT_EQ(trainer.stop_number(), std::max(number, 1));
        });
    }
}

}  // namespace
}  // namespace invar
