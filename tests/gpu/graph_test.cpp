// The recorded step against the same steps run one operation at a time: to the bit, whatever happens in between.
#include <fmt/format.h>

#include <limits>
#include <set>
#include <utility>

#include "invar/amp/autocast.h"
#include "invar/core/error.h"
#include "invar/data/synthetic.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"
#include "invar/train/recorded_step.h"
#include "invar/train/reports.h"
#include "invar/train/step.h"
#include "tests/gpu/fixture.h"
#include "tests/train/poisoned.h"

namespace invar::testing {
namespace {

using TrainedRun = invar::Setup;  // inside a test, Setup is a member of its fixture

constexpr float kInf = std::numeric_limits<float>::infinity();

Config config_for(const std::string& model, const std::string& precision, std::int64_t accumulate = 1) {
    Config config = parse_config(
        "data: {name: synthetic, size: 1280, batch_size: 32, num_workers: 2}\noptimizer: {name: adamw, lr: 0.001}\n"
        "scheduler: {name: cosine}\nscaler: {init_scale: 4096, growth_interval: 5}\nseed: 3\n",
        "test");
    config.model.choose(model);
    config.model.set("dropout", "0.3");
    config.trainer.device = "cuda";
    config.trainer.precision = precision;
    config.trainer.gradient_clip_val = 1.0;
    config.trainer.accumulate_grad_batches = accumulate;
    return config;
}

struct Outcome {
    std::vector<std::string> losses, scales, norms;  // as text: NaN is what it is
    std::vector<std::int64_t> skipped;
    std::vector<std::string> notes;
    std::vector<std::int64_t> parts;  // 0: a step that was not replayed
    std::string bytes;
    RngState rng;
};

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
    EXPECT_EQ(a.losses, b.losses) << what;
    EXPECT_EQ(a.scales, b.scales) << what;
    EXPECT_EQ(a.norms, b.norms) << what;
    EXPECT_EQ(a.skipped, b.skipped) << what;
    EXPECT_EQ(a.rng, b.rng) << what;
    EXPECT_TRUE(a.bytes == b.bytes) << what << ": other weights or moments";
}

Batch front_of(const Batch& batch, std::int64_t size) {
    return batch.head(size);
}

using Change = std::function<void(int step, TrainedRun& setup, std::vector<Batch>& group)>;

Outcome train(const Config& config, bool graph, int steps, const Change& change = {}) {
    TrainedRun setup(config);
    Reports reports(setup.device);
    Outcome outcome;
    RecordedStep step(setup.device, step_function(setup, reports.slots()),
                      {graph, [&](const std::string& note) { outcome.notes.push_back(note); }});
    setup.model->train();
    setup.train_data->start_epoch(0);
    for (int i = 0; i < steps; ++i) {
        std::vector<Batch> group;
        while (std::int64_t(group.size()) < setup.accumulate) group.push_back(*setup.train_data->next());
        if (change) change(i, setup, group);
        step(group);
        outcome.parts.push_back(step.parts());
    }
    std::uint64_t ended_ns = 0;
    for (int i = 0; i < steps; ++i) {
        const StepReport report = reports.wait();
        EXPECT_EQ(report.sequence, std::uint64_t(i + 1));
        EXPECT_GT(report.ended_ns, ended_ns) << "the device's clock, of one step after the other";
        ended_ns = report.ended_ns;
        outcome.losses.push_back(fmt::format("{}", report.loss));
        outcome.scales.push_back(fmt::format("{}", report.scale.scale));
        outcome.norms.push_back(fmt::format("{}", report.step.grad_norm));
        outcome.skipped.push_back(report.step.skipped);
    }
    EXPECT_FALSE(reports.poll());
    outcome.bytes = bytes_of(setup.optimizer->store().weights());
    if (setup.optimizer->store().shadow()) outcome.bytes += bytes_of(setup.optimizer->store().shadow());
    for (const auto& [name, moment] : setup.optimizer->state_dict()) outcome.bytes += name + bytes_of(moment);
    if (setup.average)
        for (const auto& [name, tensor] : setup.average->state_dict(*setup.optimizer))
            outcome.bytes += name + bytes_of(tensor);
    outcome.rng = default_generator().state();
    return outcome;
}

// Steps 9 and 13 meet an infinite pixel: all gradients are lost, and the scale backs off.
void overflow(int step, TrainedRun&, std::vector<Batch>& group) {
    if (step != 9 && step != 13) return;
    const Tensor& x = group.back()["x"];
    kernels_for(x.device()).fill(x.window(7, {1}).view(), kInf);
}

TEST_F(Gpu, AReplayedStepGivesTheBitsOfTheStepItself) {
    for (const char* model : {"mlp", "convnet"})
        for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"})
            for (const std::int64_t accumulate : {1, 2}) {
                const Config config = config_for(model, precision, accumulate);
                const std::string what = std::string(model) + " " + precision;
                const Outcome plain = train(config, false, 20, overflow), graphed = train(config, true, 20, overflow);
                expect_same(plain, graphed, what);
                EXPECT_EQ(plain.skipped.back(), 2) << what;
                EXPECT_TRUE(graphed.notes.empty()) << graphed.notes.front();
                EXPECT_EQ(plain.parts, std::vector<std::int64_t>(20, 0));
                for (int i = 3; i < 20; ++i) EXPECT_GT(graphed.parts[std::size_t(i)], 0) << what << ", step " << i;
                if (accumulate == 1) std::printf("%s: a graph of %d parts\n", what.c_str(), int(graphed.parts.back()));
            }
}

// Of weights and of batch norms' statistics; the two steps that overflow do not move it.
TEST_F(Gpu, AnAverageOfTheWeightsIsRecordedWithTheStep) {
    for (const char* precision : {"32-true", "16-mixed", "bf16-true"}) {
        Config config = config_for("resnet", precision);
        config.model.set("width", "4");
        config.model.set("stem", "cifar");
        config.trainer.ema_decay = 0.9;
        config.trainer.ema_warmup = true;
        const Outcome plain = train(config, false, 20, overflow), graphed = train(config, true, 20, overflow);
        expect_same(plain, graphed, precision);
        EXPECT_GT(graphed.parts.back(), 0) << "it was not recorded";
        EXPECT_TRUE(graphed.notes.empty());
        config.trainer.ema_decay = 0.3;
        EXPECT_FALSE(train(config, true, 20, overflow).bytes == graphed.bytes);
    }
}

TEST_F(Gpu, ReplaysDropOtherElementsEachTime) {
    Config config = config_for("mlp", "32-true");
    config.optimizer.lr = 0;  // what differs between steps on one batch is dropout alone
    std::optional<Batch> first;
    const Change same_batch = [&](int, TrainedRun&, std::vector<Batch>& group) {
        if (!first) first = group[0];
        group[0] = *first;
    };
    const Outcome graphed = train(config, true, 20, same_batch);
    EXPECT_EQ(std::set<std::string>(graphed.losses.begin(), graphed.losses.end()).size(), 20u);
    expect_same(train(config, false, 20, same_batch), graphed, "dropout");
}

// A step between replays that draws numbers of its own, as validation with dropout would.
TEST_F(Gpu, ReplaysGoOnWhereTheGeneratorIs) {
    const Change draw = [](int step, TrainedRun&, std::vector<Batch>& group) {
        if (step % 6 == 5) ops::dropout(group[0]["x"], 0.5, true);
    };
    const Config config = config_for("mlp", "16-mixed");
    expect_same(train(config, false, 20, draw), train(config, true, 20, draw), "numbers drawn in between");
}

TEST_F(Gpu, ASmallerBatchRunsByItselfAndLaterHasItsOwnGraph) {
    const Change smaller = [](int step, TrainedRun&, std::vector<Batch>& group) {
        if (step % 3 == 2) group[0] = front_of(group[0], 20);
    };
    const Config config = config_for("convnet", "16-mixed");
    const Outcome plain = train(config, false, 24, smaller), graphed = train(config, true, 24, smaller);
    expect_same(plain, graphed, "two shapes");
    EXPECT_EQ(graphed.parts[5], 0) << "a second small batch";
    EXPECT_GT(graphed.parts[6], 0);
    EXPECT_GT(graphed.parts[23], 0) << "a later one";
}

TEST_F(Gpu, EagerWorkBetweenReplaysTouchesNothingOfTheirs) {
    const Change other_work = [](int step, TrainedRun& setup, std::vector<Batch>& group) {
        if (step % 5 == 4) evaluate(*setup.task, *setup.model, *setup.test_data, setup.precision);
        for (const std::int64_t size : {3, 700, 30000, 200000})  // whatever was freed is written over
            kernels_for(setup.device).fill(Tensor::empty({size}, Dtype::f32, group[0]["x"].device()).view(), kInf);
    };
    const Config config = config_for("convnet", "bf16-mixed");
    expect_same(train(config, false, 20), train(config, true, 20, other_work), "with other work in between");
}

TEST_F(Gpu, AReplayedStepWithABadLossIsSkippedThoughItsGradientsAreFinite) {
    Config config = config_for("mlp", "16-mixed");
    config.optimizer.weight_decay = 0.1;  // moves the weights at every step that is taken
    Poisoned* model = nullptr;
    const Change bad = [&](int step, TrainedRun& setup, std::vector<Batch>&) {
        if (step == 0) model = &poison(setup);
        model->set(step == 1 || step == 9 || step == 13);
    };
    const Outcome plain = train(config, false, 20, bad), graphed = train(config, true, 20, bad);
    expect_same(plain, graphed, "a bad loss");
    EXPECT_EQ(graphed.skipped.back(), 3);
    EXPECT_GT(graphed.parts[9], 0) << "it was a replay";
}

TEST_F(Gpu, AFrozenLayerStandsStillInReplaysAndLearnsAgainWhenThawed) {
    const Config config = config_for("mlp", "bf16-mixed");
    std::vector<std::string> seen;
    const Change freeze = [&](int step, TrainedRun& setup, std::vector<Batch>&) {
        Tensor& frozen = setup.optimizer->store().parameters()[0]->value;
        if (step == 2 || step == 14) frozen.set_requires_grad(step == 14);
        seen.push_back(bytes_of(frozen));
    };
    const Outcome plain = train(config, false, 26, freeze);
    const std::vector<std::string> expected = std::exchange(seen, {});
    const Outcome graphed = train(config, true, 26, freeze);
    expect_same(plain, graphed, "a frozen layer");
    EXPECT_EQ(seen, expected);
    EXPECT_NE(seen[0], seen[2]);
    for (std::size_t step = 3; step <= 14; ++step) EXPECT_EQ(seen[step], seen[2]) << step;
    EXPECT_NE(seen[25], seen[14]);
    EXPECT_GT(graphed.parts[10], 0) << "it was a replay";
    EXPECT_GT(graphed.parts[25], 0);
}

TEST_F(Gpu, AChangedRateMakesANewRecording) {
    const Change faster = [](int step, TrainedRun& setup, std::vector<Batch>&) {
        if (step == 8) setup.optimizer->groups()[0].lr = 0.01f;
    };
    const Config config = config_for("mlp", "32-true");
    const Outcome graphed = train(config, true, 16, faster);
    expect_same(train(config, false, 16, faster), graphed, "another rate");
    EXPECT_GT(graphed.parts[7], 0);
    EXPECT_EQ(graphed.parts[8], 0);
    EXPECT_GT(graphed.parts[15], 0);
}

// Reads a value in the middle of the forward pass: the host cannot be left out of such a step.
struct Asking : Module {
    explicit Asking(std::unique_ptr<Module> model) : inner(std::move(model)) { inner->train(); }
    Tensor forward(const Tensor& x) override {
        const Tensor y = (*inner)(x);
        asked += ops::sum(y.detach()).item();
        return y;
    }
    std::unique_ptr<Module> inner;
    double asked = 0;
};

TEST_F(Gpu, AStepThatAsksTheHostRunsOnAndSaysWhy) {
    const Change ask = [](int step, TrainedRun& setup, std::vector<Batch>&) {
        if (step == 0) setup.model = std::make_unique<Asking>(std::move(setup.model));
    };
    const Config config = config_for("mlp", "16-mixed");
    const Outcome graphed = train(config, true, 10, ask);
    expect_same(train(config, false, 10, ask), graphed, "asking");
    ASSERT_EQ(graphed.notes.size(), 1u);
    EXPECT_NE(graphed.notes[0].find("without a CUDA graph: reading a value back"), std::string::npos)
        << graphed.notes[0];
    EXPECT_EQ(graphed.parts, std::vector<std::int64_t>(10, 0));
}

// A step of a user's own, on the public interface alone: dropout, a scaler, no Setup.
TEST_F(Gpu, AStepOfOnesOwnIsRecordedWithItsRandomNumbersAndItsMemory) {
    const auto run = [&](bool record, std::string& why) {
        default_generator().set_state({7, 0});
        Sequential model;
        model.then(std::make_unique<Linear>(12, 32))
            .then(std::make_unique<Dropout>(0.5))
            .then(std::make_unique<Linear>(32, 4));
        model.to(Device::cuda());
        Optimizer optimizer(model, {.lr = 1e-2}, StoreOptions::for_precision(Precision::parse("16-mixed")));
        GradScaler scaler({}, Device::cuda());
        RecordedStep step(Device::cuda(),
                          [&](std::span<const Batch> group) {
                              optimizer.zero_grad();
                              Tensor loss;
                              {
                                  const Autocast cast(Precision::parse("16-mixed"));
                                  loss = ops::cross_entropy(model(group[0]["x"]), group[0]["y"]);
                              }
                              scaler.backward(loss);
                              scaler.step_and_update(optimizer);
                              return loss;
                          },
                          {record});
        Generator generator(3);
        std::string losses;
        for (int i = 0; i < 12; ++i) {
            const Tensor x = ops::uniform({16, 12}, -1, 1, Dtype::f32, Device::cuda(), generator);
            const Batch batch({{"x", x}, {"y", ops::full({16}, i % 4, Dtype::i64, Device::cuda())}}, 16);
            const Tensor loss = step(batch);
            EXPECT_EQ(step.parts() > 0, record && ((i >= 3 && i < 7) || i >= 10)) << i;
            losses += fmt::format("{} ", loss.item());
            if (i == 6) optimizer.groups()[0].lr = 1e-3;  // is noticed: it is recorded anew
        }
        why = step.why_not();
        return losses;
    };
    std::string off, on;
    const std::string eager = run(false, off), recorded = run(true, on);
    EXPECT_EQ(eager, recorded);
    EXPECT_EQ(off, "it is turned off");
    EXPECT_EQ(on, "");
}

TEST_F(Gpu, GradientCheckpointingIsRecordedToo) {
    Config config = config_for("convnet", "16-mixed");
    config.trainer.recompute = "block";
    const Outcome graphed = train(config, true, 12);
    expect_same(train(config, false, 12), graphed, "recomputed activations");
    EXPECT_TRUE(graphed.notes.empty());
}

TEST_F(Gpu, ReportsComeInOrderAndGoRoundTheRing) {
    TrainedRun setup(config_for("mlp", "16-mixed"));
    Reports reports(setup.device, 4);
    RecordedStep step(setup.device, step_function(setup, reports.slots()));
    setup.model->train();
    setup.train_data->start_epoch(0);
    std::uint64_t expected = 0;
    for (int round = 0; round < 9; ++round) {
        for (int i = 0; i < 4; ++i) step(std::vector<Batch>{*setup.train_data->next()});
        for (int i = 0; i < 4; ++i) {
            const StepReport report = reports.wait();
            EXPECT_EQ(report.sequence, ++expected);
            EXPECT_EQ(std::uint64_t(report.step.taken + report.step.skipped), expected);
        }
    }
    EXPECT_FALSE(reports.poll());
    EXPECT_THROW(reports.wait(), Error) << "nothing is left to report";
}

TEST_F(Gpu, TheLoaderBringsTheSameBatchesAsOnTheCpu) {
    Config config = config_for("mlp", "32-true");
    config.data.as<SyntheticOptions>().size = 330;  // the last batch is smaller
    TrainedRun gpu(config);
    config.trainer.device = "cpu";
    TrainedRun cpu(config);
    for (const std::int64_t skip : {0, 3, 0, 9}) {
        gpu.train_data->start_epoch(skip, skip), cpu.train_data->start_epoch(skip, skip);
        std::vector<Batch> kept;  // all of them stay what they were
        for (int i = 0; i < 8; ++i) {
            std::optional<Batch> batch = gpu.train_data->next();
            if (batch) kept.push_back(*batch);
            EXPECT_EQ(gpu.train_data->position(), skip + std::int64_t(kept.size()));
        }
        for (const Batch& batch : kept) {
            const Batch expected = *cpu.train_data->next();
            EXPECT_EQ(bytes_of(batch["x"]), bytes_of(expected["x"]));
            EXPECT_EQ(bytes_of(batch["y"]), bytes_of(expected["y"]));
        }
    }
}

}  // namespace
}  // namespace invar::testing
