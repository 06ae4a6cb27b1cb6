// Runs with a moving average of their weights: what uses it, what does not change by it, and how it is gone on with.
#include <gtest/gtest.h>

#include "invar/tasks/registry.h"
#include "invar/train/snapshot.h"
#include "invar/train/step.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

// The first steps overflow, and are skipped.
Config averaged_config(const fs::path& output) {
    Config config = small_config(output);
    config.trainer.ema_decay = 0.9;
    config.trainer.precision = "16-mixed";
    config.scaler.init_scale = 0x1p24;
    config.scaler.growth_interval = 6;
    config.trainer.checkpoint_every_n_steps = 3;
    return config;
}

double loss_of(const Config& config, const StateDict& weights) {
    const Setup setup(config);
    setup.model->load_state_dict(weights);
    return evaluate(*setup.task, *setup.model, *setup.test_data, setup.precision).loss();
}

StateDict part_of(const Checkpoint& checkpoint, const std::string& prefix) {
    StateDict part;
    for (const auto& [name, tensor] : checkpoint.tensors)
        if (name.starts_with(prefix)) part.emplace(name.substr(prefix.size()), tensor);
    return part;
}

std::string bytes_of(const StateDict& state) {
    std::string bytes;
    for (const auto& [name, tensor] : state)
        bytes += name + std::string(static_cast<const char*>(tensor.raw()), tensor.bytes());
    return bytes;
}

bool says(const std::vector<std::string>& notes, const std::string& words) {
    return std::ranges::any_of(notes, [&](const std::string& note) { return note.find(words) != note.npos; });
}

TEST(Average, IsWhatValidationsAndReadersOfCheckpointsUse) {
    const ScratchFolder scratch;
    const Config config = averaged_config(scratch.path());
    const RunSummary run = train(config);
    EXPECT_GT(run.skipped, 0);
    const Checkpoint last = load_checkpoint(last_checkpoint(run.folder));
    const double logged = lines_with(run.folder, "val_loss").back().at("val_loss");
    EXPECT_EQ(loss_of(config, model_weights(last)), logged);
    EXPECT_NE(loss_of(config, part_of(last, "model.")), logged);
    EXPECT_EQ(bytes_of(part_of(last, "ema.")), bytes_of(model_weights(last)));
}

// Any task, and the weights that it was asked to show.
class Shown : public Task {
  public:
    explicit Shown(std::shared_ptr<const Task> task) : task_(std::move(task)) {}
    std::string name() const override { return task_->name(); }
    std::shared_ptr<const Dataset> data(Split split) const override { return task_->data(split); }
    std::unique_ptr<Module> make_model() const override { return task_->make_model(); }
    Tensor loss(Module& model, const Batch& batch) const override { return task_->loss(model, batch); }
    std::vector<Metric> metrics() const override { return task_->metrics(); }
    std::vector<double> measure(Module& model, const Batch& batch) const override {
        return task_->measure(model, batch);
    }
    std::vector<Image> pictures(Module& model, const NextBatch&) const override {
        weights = bytes_of(model.state_dict());
        return {};
    }
    mutable std::string weights;

  private:
    std::shared_ptr<const Task> task_;
};

TEST(Average, IsWhatPicturesShow) {
    const ScratchFolder scratch;
    const Config config = averaged_config(scratch.path());
    const auto task = std::make_shared<Shown>(make_task(config));
    Trainer trainer(task, config);
    const Checkpoint last = load_checkpoint(last_checkpoint(trainer.fit().folder));
    EXPECT_EQ(task->weights, bytes_of(model_weights(last)));
    EXPECT_NE(task->weights, bytes_of(part_of(last, "model.")));
}

TEST(Average, ChangesNothingOfTheTraining) {
    const ScratchFolder scratch;
    Config config = averaged_config(scratch.path());
    const Checkpoint with = load_checkpoint(last_checkpoint(train(config).folder));
    config.exp_name = "without";
    config.trainer.ema_decay = 0;
    const Checkpoint without = load_checkpoint(last_checkpoint(train(config).folder));
    for (const char* part : {"model.", "optimizer."})
        EXPECT_EQ(bytes_of(part_of(with, part)), bytes_of(part_of(without, part))) << part;
    EXPECT_FALSE(has_average(without));
    EXPECT_EQ(bytes_of(model_weights(without)), bytes_of(part_of(without, "model.")));
}

TEST(Average, OfAResumedRunHasTheBytesOfTheUndisturbedOne) {
    const ScratchFolder scratch;
    Config config = averaged_config(scratch.path());
    config.trainer.ema_warmup = true;
    const fs::path whole = undisturbed(config), run = scratch.path() / "run";
    for (const std::int64_t kill : {2, 5, 13}) {
        fs::remove_all(run);
        train_until(config, kill);
        train(config, run);
        EXPECT_EQ(file_bytes(last_checkpoint(run)), file_bytes(last_checkpoint(whole))) << "killed at " << kill;
        EXPECT_EQ(lines_of(run), lines_of(whole)) << "killed at " << kill;
    }
}

TEST(Average, BeginsWithTheWeightsOfACheckpointThatHasNone) {
    const ScratchFolder scratch;
    Config config = averaged_config(scratch.path());
    config.trainer.ema_decay = 0;
    config.trainer.max_steps = 9;
    const fs::path run = train(config).folder;
    const std::string before = bytes_of(part_of(load_checkpoint(last_checkpoint(run)), "model."));
    config.trainer.ema_decay = 0.9;
    config.trainer.max_steps = -1;
    Trainer resumed(config, run);
    const invar::Setup& setup = resumed.setup();
    EXPECT_EQ(bytes_of(setup.average->state_dict(*setup.optimizer)), before);
    EXPECT_EQ(setup.average->spec().since, setup.optimizer->state().taken);
    Stopper observer;
    resumed.fit(observer);
    EXPECT_TRUE(says(observer.notes, "the average begins with the weights of step 10"));
    EXPECT_TRUE(has_average(load_checkpoint(last_checkpoint(run))));
}

TEST(Average, IsLetGoWhereARunGoesOnWithoutIt) {
    const ScratchFolder scratch;
    Config config = averaged_config(scratch.path());
    config.trainer.max_steps = 9;
    const fs::path run = train(config).folder;
    config.trainer.ema_decay = 0;
    config.trainer.max_steps = -1;
    Stopper observer;
    train(config, observer, run);
    EXPECT_TRUE(says(observer.notes, "averaged weights of the checkpoint are let go"));
    EXPECT_FALSE(has_average(load_checkpoint(last_checkpoint(run))));
}

TEST(Average, StaysWithItsParametersWhereTheyMoveToFp32) {
    const ScratchFolder scratch;
    Config config = averaged_config(scratch.path());
    config.trainer.precision = "bf16-true";
    invar::Setup setup(config);
    const auto step = step_function(setup);
    const auto average = [&] { return setup.average->state_dict(*setup.optimizer); };
    setup.train_data->start_epoch(0);
    for (int i = 0; i < 3; ++i) step(setup.next_group());
    const StateDict before = average();
    setup.set_precision(Precision::parse("32-true"));
    EXPECT_EQ(bytes_of(average()), bytes_of(before));
    step(setup.next_group());
    const StateDict weights = setup.model->state_dict();
    for (const auto& [name, tensor] : average()) {
        const auto now = tensor.to_vector<double>(), old = before.at(name).to_vector<double>(),
                   trained = weights.at(name).to_vector<double>();
        for (std::size_t i = 0; i < now.size(); ++i)
            EXPECT_NEAR(now[i], 0.9 * old[i] + 0.1 * trained[i], 1e-6) << name << " " << i;
    }
}

}  // namespace
}  // namespace invar
