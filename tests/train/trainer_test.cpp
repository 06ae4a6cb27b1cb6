#include "invar/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/tasks/registry.h"
#include "tests/core/expect_error.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

TEST(Summary, KnowsTheLargestNormOfAllStepsAndOnlyWhatWasMeasured) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    Stopper all;
    const RunSummary every = train(config, all);
    config.trainer.log_every_n_steps = 1000;
    const RunSummary few = train(config);
    double largest = 0;
    for (const StepMetrics& m : all.steps) largest = std::max(largest, m.grad_norm);
    EXPECT_EQ(every.max_grad_norm, largest);
    EXPECT_EQ(few.max_grad_norm, largest) << "whatever is logged";
    config.optimizer.choose("sgd");
    config.optimizer.lr = 1e30;
    config.trainer.on_instability = "stop";
    config.exp_name = "broken";
    EXPECT_THROW(train(config), Error);
    const auto summary = nlohmann::json::parse(file_bytes(scratch.path() / "broken" / "summary.json"));
    EXPECT_FALSE(summary.contains("val_loss")) << "it never got there";
    const auto lines = read_jsonl(scratch.path() / "broken" / "metrics.jsonl");
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.back().at("alert"), "loss_nonfinite");
    EXPECT_NE(std::string(lines.back().at("message")).find("training stopped at step"), std::string::npos);
}

TEST(Trainer, EndsWithTheSameBytesFromTheSameSeedAndOthersFromAnother) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.exp_name = "same";
    config.trainer.threads = 2;
    const RunSummary one = train(config), two = train(config);
    EXPECT_NE(one.folder, two.folder);
    EXPECT_EQ(one.status, "finished");
    EXPECT_EQ(one.steps, 20);
    EXPECT_EQ(one.epochs, 2);
    EXPECT_EQ(file_bytes(last_checkpoint(one.folder)), file_bytes(last_checkpoint(two.folder)));
    EXPECT_EQ(lines_of(one.folder), lines_of(two.folder));
    EXPECT_EQ(one.val("accuracy"), two.val("accuracy"));
    config.seed = 6;
    EXPECT_NE(file_bytes(last_checkpoint(train(config).folder)), file_bytes(last_checkpoint(one.folder)));
}

TEST(Trainer, LearnsWhatThereIsToLearn) {
    const ScratchFolder scratch;
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"}) {
        Config config = small_config(scratch.path());
        config.trainer.precision = precision;
        config.trainer.max_epochs = 8;
        config.optimizer.lr = 0.01;
        Stopper observer;
        const RunSummary summary = train(config, observer);
        EXPECT_LT(summary.train_loss, 0.5 * observer.steps.front().loss) << precision;
        EXPECT_GT(summary.val("accuracy"), 0.8) << precision;
        EXPECT_TRUE(summary.all_finite) << precision;
    }
}

struct Way {
    const char* name;
    const char* precision;
    std::int64_t accumulate;
    double validate_share;
    std::int64_t checkpoint_every;
};
void PrintTo(const Way& way, std::ostream* out) {
    *out << way.name;
}

class Resuming : public testing::TestWithParam<Way> {
  protected:
    Config config(const fs::path& output) const {
        Config config = small_config(output);
        config.trainer.precision = GetParam().precision;
        config.trainer.accumulate_grad_batches = GetParam().accumulate;
        config.trainer.val_check_interval.share = GetParam().validate_share;
        config.trainer.checkpoint_every_n_steps = GetParam().checkpoint_every;
        config.scaler.init_scale = 0x1p24;  // the first steps overflow
        config.scaler.growth_interval = 4;
        config.scheduler.choose("cosine");
        config.trainer.gradient_clip_val = 1.0;
        return config;
    }
};

// Stopped in mid-epoch, at the end of one, and twice in a run.
TEST_P(Resuming, EndsWithTheBytesOfTheRunThatWasNotInterrupted) {
    const ScratchFolder scratch;
    Config config = this->config(scratch.path());
    config.exp_name = "whole";
    const RunSummary whole = train(config);
    const std::string expected = file_bytes(last_checkpoint(whole.folder));
    const std::vector<std::string> lines = lines_of(whole.folder);
    config.exp_name = "parts";
    const bool scaled = std::string(GetParam().precision) == "16-mixed";
    EXPECT_EQ(whole.skipped > 0, scaled) << "this test wants skipped steps";
    for (std::int64_t stop = 2; stop < whole.steps; stop += 4) {
        config.exp_name = fmt::format("parts{}", stop);
        const fs::path folder = scratch.path() / config.exp_name;
        Stopper first(stop), second(stop + 3);
        const RunSummary begun = train(config, first);
        ASSERT_EQ(begun.folder, folder);
        EXPECT_EQ(begun.status, "interrupted");
        EXPECT_EQ(begun.steps, stop);
        train(config, second, folder);
        const RunSummary ended = train(config, folder);
        EXPECT_EQ(ended.status, "finished");
        EXPECT_EQ(ended.skipped, whole.skipped);
        EXPECT_EQ(ended.val("loss"), whole.val("loss"));
        // The configuration holds the run's name, hence not the whole file.
        Checkpoint ours = load_checkpoint(last_checkpoint(folder)),
                   theirs = load_checkpoint(last_checkpoint(whole.folder));
        ours.state.erase("config"), theirs.state.erase("config");
        EXPECT_EQ(ours.state, theirs.state) << "stopped at " << stop;
        ASSERT_EQ(ours.tensors.size(), theirs.tensors.size());
        for (const auto& [name, tensor] : theirs.tensors) {
            const Tensor& mine = ours.tensors.at(name);
            ASSERT_EQ(mine.bytes(), tensor.bytes()) << name;
            EXPECT_EQ(std::memcmp(mine.raw(), tensor.raw(), tensor.bytes()), 0) << name << ", stopped at " << stop;
        }
        EXPECT_EQ(lines_of(folder), lines) << "stopped at " << stop;
    }
    // With the same name, the file itself.
    config.exp_name = "whole";
    config.output_dir = (scratch.path() / "elsewhere").string();
    Config same = config;
    Stopper stopper(3);
    const fs::path folder = train(config, stopper).folder;
    same.output_dir = scratch.path().string();
    train(same, folder);
    EXPECT_EQ(file_bytes(last_checkpoint(folder)), expected);
}
INSTANTIATE_TEST_SUITE_P(All, Resuming,
                         testing::Values(Way{"Fp32", "32-true", 1, 1.0, 0},
                                         Way{"Fp16WithSkippedSteps", "16-mixed", 1, 0.5, 3},
                                         Way{"Bf16Accumulating", "bf16-mixed", 3, 0.5, 5},
                                         Way{"Fp16Accumulating", "16-mixed", 4, 1.0, 1},
                                         Way{"Bf16True", "bf16-true", 1, 1.0, 4}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Trainer, ResumingAFinishedRunChangesNothing) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const RunSummary whole = train(config);
    const std::string checkpoint = file_bytes(last_checkpoint(whole.folder));
    const std::vector<std::string> lines = lines_of(whole.folder);
    const RunSummary again = train(config, whole.folder);
    EXPECT_EQ(again.status, "finished");
    EXPECT_EQ(again.val("accuracy"), whole.val("accuracy"));
    EXPECT_EQ(file_bytes(last_checkpoint(whole.folder)), checkpoint);
    EXPECT_EQ(lines_of(whole.folder), lines);
}

TEST(Trainer, ShowsSkippedStepsInMetricsNotesAndSummaryAndHoldsTheRate) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "16-mixed";
    config.scaler.init_scale = 0x1p30;
    config.scheduler.choose("step");
    config.scheduler.as<StepOptions>().step_size = 1;
    config.scheduler.as<StepOptions>().gamma = 0.9;
    Stopper observer;
    const RunSummary summary = train(config, observer);
    ASSERT_GT(summary.skipped, 0);
    ASSERT_LT(summary.skipped, 20);
    std::int64_t skipped = 0;
    double rate = config.optimizer.lr;
    for (const StepMetrics& m : observer.steps) {
        EXPECT_NEAR(m.lr, rate, 1e-9) << "step " << m.step;
        skipped += m.skipped_now;
        EXPECT_EQ(m.skipped, skipped);
        if (!m.skipped_now) rate *= 0.9;
    }
    EXPECT_EQ(summary.skipped, skipped);
    EXPECT_FALSE(observer.notes.empty());
    std::int64_t logged = 0;
    for (const nlohmann::json& line : read_jsonl(summary.folder / "metrics.jsonl"))
        if (line.contains("skipped_now")) logged += line.at("skipped_now").get<bool>();
    EXPECT_EQ(logged, skipped);
    EXPECT_EQ(nlohmann::json::parse(file_bytes(summary.folder / "summary.json")).at("skipped"), skipped);
}

TEST(Trainer, PassesOverACorruptedCheckpointAndSaysSo) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.checkpoint_every_n_steps = 4;
    const RunSummary whole = train(config);
    const std::string expected = file_bytes(last_checkpoint(whole.folder));
    for (const fs::path& path : {last_checkpoint(whole.folder)}) {
        std::string bytes = file_bytes(path);
        bytes[bytes.size() / 2] ^= 4;
        std::ofstream(path, std::ios::binary) << bytes;
    }
    Stopper observer;
    train(config, observer, whole.folder);
    ASSERT_GE(observer.notes.size(), 2u);
    EXPECT_NE(observer.notes[0].find("step_00000020"), std::string::npos) << observer.notes[0];
    EXPECT_NE(observer.notes[1].find("resuming at step 16"), std::string::npos) << observer.notes[1];
    EXPECT_EQ(file_bytes(last_checkpoint(whole.folder)), expected);
}

TEST(Trainer, RefusesAnotherModelsCheckpointAndLeavesTheFolderAsItWas) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    Stopper stop(4);
    const fs::path folder = train(config, stop).folder;
    const auto before = all_files(folder);
    Config wider = config, plain = config;
    wider.model.as<MlpOptions>().hidden = {13};
    plain.optimizer.choose("sgd");
    EXPECT_ERROR(Trainer(wider, folder), Error, "another model");
    EXPECT_ERROR(Trainer(plain, folder), Error, "another optimizer");
    EXPECT_EQ(all_files(folder), before);
}

TEST(Snapshot, RestoresNothingWhereOnePartIsMissing) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "16-mixed";
    invar::Setup setup(config), other(config);  // gtest has a Setup of its own
    Checkpoint good = take_snapshot(setup, {3, 0, 3}, "");
    const auto state = [&] {
        const Checkpoint now = take_snapshot(other, {}, "");
        std::map<std::string, std::vector<float>> all;
        for (const auto& [name, tensor] : now.tensors) all[name] = tensor.to_vector<float>();
        return std::pair(all, now.state.dump());
    };
    for (const auto& [name, tensor] : good.tensors)
        tensor.data<float>()[0] += 1;  // the optimizer's are windows of its own
    const auto before = state();
    for (const char* part : {"progress", "optimizer", "scaler", "rng"}) {
        Checkpoint bad = good;
        bad.state.erase(part);
        EXPECT_ERROR(restore_snapshot(other, bad), Error, "lacks");
        EXPECT_EQ(state(), before) << part;
        bad = good;
        bad.state[part] = "text";
        EXPECT_ERROR(restore_snapshot(other, bad), Error, "written by something else");
        EXPECT_EQ(state(), before) << part;
    }
    Checkpoint bad = good;
    bad.state["scaler"].erase("scale");
    EXPECT_ERROR(restore_snapshot(other, bad), Error, "scaler");
    EXPECT_EQ(state(), before);
    bad = good;
    bad.tensors.erase(bad.tensors.begin());
    EXPECT_ERROR(restore_snapshot(other, bad), Error, "another model");
    EXPECT_EQ(state(), before);
    const auto with_count = [&](const char* part, const char* name, std::int64_t count) {
        Checkpoint changed = good;
        changed.state[part][name] = count;
        return changed;
    };
    for (const char* name : {"step", "epoch", "batch"})
        for (const std::int64_t count : {std::int64_t(-1), std::int64_t(1) << 60})
            EXPECT_ERROR(restore_snapshot(other, with_count("progress", name, count)), Error,
                         fmt::format("it holds a count of {}", count));
    EXPECT_ERROR(restore_snapshot(other, with_count("optimizer", "skipped", -5)), Error, "it holds a count of -5");
    EXPECT_ERROR(restore_snapshot(other, with_count("optimizer", "skipped_in_a_row", 4)), Error,
                 "it has skipped 0 steps, and 4 of them in a row");
    EXPECT_EQ(state(), before);
    EXPECT_EQ(restore_snapshot(other, good).step, 3);
}

// The first step moves a weight by its momentum times the rate, element by element.
TEST(Snapshot, HoldsMomentsInTheLayoutsOfTheirWeights) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.model.choose("convnet");
    config.data.as<SyntheticOptions>().width = 6;
    config.optimizer.choose("sgd", SgdOptions{.momentum = 0.9});
    config.optimizer.lr = 0.125;
    config.trainer.max_steps = 1;
    const StateDict before = make_initial_model(*make_task(config), config)->state_dict();
    const Checkpoint checkpoint = load_checkpoint(last_checkpoint(train(config).folder));
    const StateDict after = model_weights(checkpoint);
    int images = 0;
    for (const auto& [name, tensor] : checkpoint.tensors) {
        if (!name.starts_with("optimizer.momentum_buffer.")) continue;
        const std::string weight = name.substr(std::string("optimizer.momentum_buffer.").size());
        ASSERT_EQ(tensor.shape(), after.at(weight).shape()) << name;
        images += tensor.rank() == 4;
        const auto moment = tensor.to_vector<float>(), old = before.at(weight).to_vector<float>(),
                   now = after.at(weight).to_vector<float>();
        for (std::size_t i = 0; i < moment.size(); ++i)
            ASSERT_NEAR(old[i] - now[i], 0.125f * moment[i], 1e-6f) << name << " " << i;
    }
    EXPECT_GT(images, 0) << "this test wants convolutions";
}

TEST(Snapshot, AScalerStartsAfreshWhereTheRunHadNone) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    Stopper stop(3);
    const fs::path folder = train(config, stop).folder;
    config.trainer.precision = "16-mixed";
    Trainer trainer(config, folder);
    EXPECT_EQ(trainer.setup().scaler->get_scale(), 65536.0);
}

TEST(Trainer, RecomputingActivationsChangesNoBit) {
    const ScratchFolder scratch;
    for (const char* model : {"mlp", "convnet"})
        for (const char* precision : {"32-true", "16-mixed"})
            for (const char* level : {"light", "block", "true"}) {
                Config config = small_config(scratch.path());
                config.model.choose(model);
                config.data.as<SyntheticOptions>().width = 6;
                config.trainer.max_epochs = 1;
                config.trainer.precision = precision;
                const Checkpoint kept = load_checkpoint(last_checkpoint(train(config).folder));
                config.trainer.recompute = level;
                const Checkpoint recomputed = load_checkpoint(last_checkpoint(train(config).folder));
                EXPECT_EQ(kept.state.at("rng"), recomputed.state.at("rng"));
                for (const auto& [name, tensor] : kept.tensors)
                    EXPECT_EQ(recomputed.tensors.at(name).to_vector<float>(), tensor.to_vector<float>())
                        << model << " " << name;
            }
}

TEST(Trainer, GivesUpOnARunThatCannotRecoverAndNamesAParameter) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.max_epochs = 100;
    config.trainer.log_every_n_steps = 10;
    config.optimizer.choose("sgd");
    config.optimizer.lr = 1e10;
    config.model.set("dropout", "0");
    EXPECT_ERROR(train(config), Error, "first bad gradient: 1.weight");
    const auto lines = read_jsonl(scratch.path() / "run" / "metrics.jsonl");
    ASSERT_FALSE(lines.empty());
    EXPECT_LE(lines.back().at("step").get<std::int64_t>(), 130);
}

TEST(Trainer, GivesUpOnAQuietRunToo) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.max_epochs = 100;
    config.trainer.log_every_n_steps = 1000000;
    config.optimizer.choose("sgd");
    config.optimizer.lr = 1e10;
    config.model.set("dropout", "0");
    EXPECT_ERROR(train(config), Error, "steps in a row");
}

TEST(Trainer, LeavesFrozenParametersAsTheyWere) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.freeze = {"1.*"};
    const StateDict before = make_initial_model(*make_task(config), config)->state_dict();
    const StateDict after = model_weights(load_checkpoint(last_checkpoint(train(config).folder)));
    for (const auto& [name, value] : before)
        EXPECT_EQ(value.to_vector<float>() == after.at(name).to_vector<float>(), name.starts_with("1.")) << name;
    config.trainer.freeze = {"fc*"};
    EXPECT_ERROR(invar::Setup{config}, UsageError, "'fc*'");
}

TEST(Setup, RefusesWhatDoesNotFit) {
    const ScratchFolder scratch;
    const Config good = small_config(scratch.path());
    Config config = good;
    config.model.as<MlpOptions>().classes = 3;
    EXPECT_ERROR(invar::Setup{config}, UsageError, "model.classes");
    config = good;
    config.data.batch_size = 151;
    config.data.drop_last = true;
    EXPECT_ERROR(invar::Setup{config}, UsageError, "batch");
    config = good;
    config.trainer.limit_train_batches = BatchCount::of(0);
    EXPECT_ERROR(invar::Setup{config}, UsageError, "limit_train_batches");
    config = good;
    config.init_from = (scratch.path() / "none.safetensors").string();
    EXPECT_ERROR(invar::Setup{config}, IoError, "none.safetensors");
    config = good;
    config.trainer.precision_overrides = {{"fc9", "32-true"}};
    EXPECT_ERROR(invar::Setup{config}, UsageError, "fc9");
}

// What is logged beside the norm is what was left of it.
TEST(Trainer, LogsTheNormAfterClippingWhichIsTheNormWhereNothingIsClipped) {
    const ScratchFolder scratch;
    for (const double limit : {0.01, 1e6}) {
        Config config = small_config(scratch.path());
        config.trainer.max_epochs = 1;
        config.trainer.gradient_clip_val = limit;
        Stopper observer;
        train(config, observer);
        ASSERT_EQ(observer.steps.size(), 10u);
        for (const StepMetrics& m : observer.steps) {
            ASSERT_GT(m.grad_norm, 0.02) << "this test wants gradients between the limits";
            ASSERT_TRUE(m.grad_norm_clipped);
            EXPECT_NEAR(*m.grad_norm_clipped, std::min(limit, double(m.grad_norm)), 1e-5 * m.grad_norm);
        }
    }
}

// Data that say one thing of themselves.
class Described final : public Dataset {
  public:
    explicit Described(DataDescription description) : description_(std::move(description)) {}
    std::string name() const override { return "flowers"; }
    std::int64_t size() const override { return 0; }
    DataInfo info() const override { return {}; }
    DataDescription description() const override { return description_; }
    Batch read(std::span<const std::int64_t>) const override { return {}; }

  private:
    DataDescription description_;
};

TEST(Snapshot, IsOfTheSameDataWhereTheySayNothingElseOfThemselves) {
    Checkpoint checkpoint;
    const DataDescription lilies{{"classes", "lily, rose"}};
    EXPECT_NO_THROW(check_same_data(checkpoint, Described(lilies), "file")) << "it says nothing of its data";
    checkpoint.state["data"] = {{"classes", "lily, rose"}, {"rows", "7"}};
    EXPECT_NO_THROW(check_same_data(checkpoint, Described(lilies), "file"));
    EXPECT_NO_THROW(check_same_data(checkpoint, Described(DataDescription{{"columns", "3"}}), "file"))
        << "not to be compared";
    EXPECT_ERROR(check_same_data(checkpoint, Described(DataDescription{{"classes", "oak"}}), "file"), UsageError,
                 "file: it was trained on other data than flowers: classes was lily, rose, and is oak");
}

}  // namespace
}  // namespace invar
