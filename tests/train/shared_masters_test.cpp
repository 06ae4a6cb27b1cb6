// Masters that ranks share out: who holds what, and that nobody computes anything else for it.
#include <gtest/gtest.h>

#include <mutex>

#include "invar/io/safetensors.h"
#include "invar/models/resnet.h"
#include "invar/ops/ops.h"
#include "invar/train/trainer.h"
#include "tests/train/trained_ranks.h"

namespace invar {
namespace {

// A norm that reads FP32 between layers that read 16 bits, and a head in FP32.
Config mixed_net(const std::string& strategy) {
    Config config = config_for(strategy, "bf16-mixed");
    config.model.choose("vit", VitOptions{.patch = 3, .layers = 2, .heads = 2, .width = 32});
    config.data.choose("synthetic",
                       SyntheticOptions{.size = 150, .height = 6, .width = 6, .channels = 2, .classes = 4});
    config.trainer.precision_overrides = {{"head", "32-true"}};
    return config;
}

// By purpose, counted by hand: masters, moments and gradients of four ranks' shares, nothing of all but shadows and
// what FP32 operations read.
TEST(Ranks, HoldNothingElseOfAllButWhatForwardReads) {
    for (const char* strategy : {"zero1", "zero2"}) {
        as_ranks(4, [&](Communicator& ranks) {
            invar::Setup setup(mixed_net(strategy));
            const ParameterStore& store = setup.optimizer->store();
            std::int64_t wide = 0, all = 0;
            for (const Parameter* p : store.parameters()) {
                all += p->value.numel();
                wide += p->home == nullptr ? p->value.numel() : 0;
                const bool in_fp32 = p->name.find("norm") != p->name.npos ||
                                     p->name.find("cls_token") != p->name.npos ||
                                     p->name.find("pos_embed") != p->name.npos || p->name.starts_with("head");
                EXPECT_EQ(p->home == nullptr, in_fp32) << p->name;
            }
            EXPECT_GT(wide, 0);
            EXPECT_LT(wide, all / 4);
            EXPECT_EQ(store.own_weights().numel() * ranks.size(), store.elements());
            EXPECT_EQ(store.held_moment(0).numel() * ranks.size(), store.elements());
            EXPECT_EQ(store.shadow().numel(), store.elements());
        });
    }
}

// Nor while it is made: a parameter at a time is drawn, or read from a file, and what of it is this rank's is kept.
TEST(Ranks, NeverHoldAWholeModelWhileTheyAreSetUp) {
    const ScratchFolder scratch;
    const auto set_up = [](const std::string& strategy, const std::string& init_from) {
        Config config = config_for(strategy, "bf16-mixed");
        config.model.choose("mlp", MlpOptions{.hidden = std::vector<std::int64_t>(12, 128), .dropout = 0});
        config.init_from = init_from;
        return config;
    };
    std::map<std::string, RawBytes> drawn;
    {
        invar::Setup alone(set_up("ddp", ""));
        drawn = state_of(alone);
        save_safetensors(scratch.path() / "weights.safetensors", alone.model->state_dict(), {});
    }
    for (const std::string& init_from : {std::string(), (scratch.path() / "weights.safetensors").string()}) {
        as_ranks(4, [&](Communicator& ranks) {
            ranks.barrier();
            const std::int64_t before = memory_stats({}).live_total;
            if (ranks.leads()) reset_peak_memory({});
            ranks.barrier();
            invar::Setup setup(set_up("zero1", init_from));
            const ParameterStore& store = setup.optimizer->store();
            ranks.barrier();
            const MemoryStats stats = memory_stats({});
            std::int64_t largest = 0;
            for (const Parameter* p : store.parameters()) largest = std::max(largest, p->value.numel());
            // Ranks that are threads count together; a value, and what of a file it is made from.
            EXPECT_LE(stats.peak_total - stats.live_total, 4 * 2 * 4 * largest) << init_from;
            EXPECT_LT(stats.peak_total - stats.live_total, 4 * store.elements()) << "less than one whole model";
            EXPECT_GT(stats.live_total, before);
            ranks.barrier();
            EXPECT_EQ(state_of(setup), drawn) << init_from;
        });
    }
}

TEST(Ranks, AgreeToTheBitWithNormsAndAHeadInFp32) {
    const Trained ddp = train_as_ranks(3, mixed_net("ddp"), 8)[0];
    for (const char* strategy : {"zero1", "zero2"}) {
        const std::vector<Trained> ranks = train_as_ranks(3, mixed_net(strategy), 8);
        for (const Trained& each : ranks) EXPECT_EQ(each.state, ddp.state) << strategy;
    }
}

// Through other precisions and back, as a schedule does it, and by an override in the middle.
TEST(Ranks, ChangePrecisionsWithMastersSharedOut) {
    const auto train = [](const std::string& strategy) {
        Trained trained;
        std::mutex mutex;
        as_ranks(2, [&](Communicator& ranks) {
            invar::Setup setup(mixed_net(strategy));
            setup.train_data->start_epoch(0);
            const auto steps = [&] {
                for (int i = 0; i < 2; ++i) step_function(setup)(setup.next_group());
            };
            steps();
            for (const char* precision : {"16-mixed", "32-true", "bf16-mixed"}) {
                setup.set_precision(Precision::parse(precision));
                EXPECT_EQ(setup.optimizer->store().shares_masters(),
                          strategy != "ddp" && std::string(precision) != "32-true");
                steps();
            }
            setup.override_precision({{"blocks.0", "32-true"}});
            EXPECT_FALSE(setup.optimizer->store().shares_masters());
            steps();
            std::map<std::string, RawBytes> state = state_of(setup);
            const std::lock_guard lock(mutex);
            if (ranks.leads()) trained.state = std::move(state);
        });
        return trained.state;
    };
    const std::map<std::string, RawBytes> ddp = train("ddp");
    EXPECT_EQ(train("zero1"), ddp);
    EXPECT_EQ(train("zero2"), ddp);
}

TEST(Ranks, AverageTheirSharesOfTheWeights) {
    const auto train = [](const std::string& strategy) {
        StateDict average;
        double loss = 0;
        as_ranks(2, [&](Communicator& ranks) {
            Config config = mixed_net(strategy);
            config.trainer.ema_decay = 0.9;
            invar::Setup setup(config);
            setup.train_data->start_epoch(0);
            for (int i = 0; i < 4; ++i) {
                step_function(setup)(setup.next_group());
                if (i == 0) {
                    EXPECT_GT(setup.average->state_dict(*setup.optimizer).size(), 10u);
                }
            }
            const std::map<std::string, RawBytes> before = state_of(setup);
            {
                const WeightAverage::Applied applied(setup.average.get(), *setup.optimizer);
                const Evaluation found = evaluate(*setup.task, *setup.model, *setup.test_data, setup.precision);
                if (ranks.leads()) loss = found.loss();
            }
            EXPECT_EQ(state_of(setup), before);
            const StateDict mine = setup.average->state_dict(*setup.optimizer);
            if (ranks.leads()) average = mine;
        });
        std::map<std::string, RawBytes> state;
        for (const auto& [name, tensor] : average) state[name] = raw_bytes(tensor);
        return std::pair(state, loss);
    };
    const auto ddp = train("ddp");
    EXPECT_EQ(train("zero1"), ddp);
    EXPECT_EQ(train("zero2"), ddp);
}

// Of many buckets no more than three beside the share, from the first step on: one travels, and an operation may add to
// two.
TEST(Ranks, LetGradientsGoAsTheyAreSent) {
    std::int64_t held = 0;
    as_ranks(2, [&](Communicator& ranks) {
        Config config = config_for("zero2");
        config.model.choose("mlp", MlpOptions{.hidden = std::vector<std::int64_t>(12, 64), .dropout = 0});
        invar::Setup setup(config);
        setup.train_data->start_epoch(0);
        const ParameterStore& store = setup.optimizer->store();
        EXPECT_GT(store.buckets().size(), 8u);
        std::int64_t largest = 0;
        for (const Bucket& bucket : store.buckets()) largest = std::max(largest, bucket.count);
        ranks.barrier();
        if (ranks.leads()) reset_peak_memory(Device::cpu());
        ranks.barrier();
        for (int i = 0; i < 2; ++i) step_function(setup)(setup.next_group());
        ranks.barrier();
        const std::int64_t peak = memory_stats(Device::cpu()).peak_of(Purpose::gradients);
        // Ranks that are threads count together; blocks are rounded up.
        EXPECT_LE(peak, 2 * 4 * (store.gradient_share().numel() + 3 * largest) + 8192) << largest;
        EXPECT_LT(peak, 2 * 4 * store.elements());
        if (ranks.leads()) held = peak;
        ranks.barrier();
    });
    EXPECT_GT(held, 0);
}

// Averages of running statistics are each rank's own, and a validation is of one model all the same.
TEST(Ranks, ValidateTheAverageThatIsSaved) {
    const ScratchFolder scratch;
    Config config = config_for("ddp");
    config.output_dir = scratch.path().string();
    config.model.choose("resnet", ResNetOptions{.layers = 18, .stem = "cifar", .width = 4});
    config.data.choose("synthetic",
                       SyntheticOptions{.size = 40, .height = 16, .width = 16, .channels = 2, .classes = 4});
    config.trainer.ema_decay = 0.8;
    config.trainer.max_epochs = 1;
    RunSummary summary;
    as_ranks(2, [&](Communicator& ranks) {
        Trainer trainer(config);
        Observer silent;
        const RunSummary own = trainer.fit(silent);
        if (ranks.leads()) summary = own;
    });
    config.trainer.ema_decay = 0;
    invar::Setup alone(config);
    const std::filesystem::path file = CheckpointFolder(RunFolder::checkpoints_of(summary.folder), 1).latest().path;
    alone.model->load_state_dict(model_weights(load_checkpoint(file)));
    const Evaluation found = evaluate(*alone.task, *alone.model, *alone.test_data, alone.precision);
    EXPECT_NEAR(summary.val("loss"), found.loss(), 1e-5);
}

TEST(Ranks, SayWhatToDoWhereFp32IsReadOfWhatIsSharedOut) {
    as_ranks(2, [&](Communicator&) {
        invar::Setup setup(mixed_net("zero1"));
        for (const Parameter* p : setup.optimizer->store().parameters()) {
            if (p->home == nullptr) continue;
            try {
                ops::sum(p->value);
                ADD_FAILURE() << p->name;
            } catch (const UsageError& error) {
                EXPECT_NE(std::string(error.what()).find("precision_overrides"), std::string::npos) << error.what();
            }
            break;
        }
    });
}

}  // namespace
}  // namespace invar
