// What a check's own short runs are: their batches, their epochs, their checkpoints, and what differs between two.
#include <gtest/gtest.h>

#include <thread>

#include "invar/diagnose/check_parts.h"
#include "invar/diagnose/diagnose.h"
#include "tests/diagnose/clusters.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

Config quiet_config(std::int64_t batch_size = 16) {
    Config config = small_config("unused");
    config.data.batch_size = batch_size;
    config.data.num_workers = 0;
    return config;
}

// Clusters to train on that a run sees otherwise.
struct OnSeenOtherwise : Clusters {
    explicit OnSeenOtherwise(SeenOtherwise::Change change)
        : train(std::make_shared<SeenOtherwise>(std::move(change))) {}
    std::shared_ptr<const Dataset> data(Split split) const override {
        return split == Split::train ? train : Clusters::data(split);
    }
    std::shared_ptr<const Dataset> train;
};

// Clusters with a model of one's own.
template <class Model>
struct WithModel : Clusters {
    std::unique_ptr<Module> make_model() const override { return std::make_unique<Model>(); }
};

TEST(CheckSeed, SeesASecondEpochThatDoesNotRepeat) {
    float read = 0;
    const auto task = std::make_shared<OnSeenOtherwise>([&](const ReadOptions& options, Batch& batch) {
        if (options.epoch == 1) batch["x"].data<float>()[0] += ++read;
    });
    const RepeatCheck check = check_seed(task, quiet_config(32));  // two batches an epoch, and three steps
    EXPECT_EQ(check.mark, Mark::fail) << check.text;
    EXPECT_TRUE(check.differs.starts_with("the loss of step 3 (")) << check.text;
}

int forward_runs = 0;

// Keeps in a buffer what no seed decides, and computes nothing with it.
class CountsRuns : public ClusterModel {
  public:
    CountsRuns() : ClusterModel({}), runs_(add_buffer("runs", ops::zeros({1}))) {}
    Tensor forward(const Tensor& x) override {
        if (training()) runs_ = ops::full({1}, ++forward_runs);
        return ClusterModel::forward(x);
    }

  private:
    Tensor& runs_;
};

TEST(CheckSeed, SeesABufferThatDiffersAfterStepsOfTheSameLosses) {
    const RepeatCheck check = check_seed(std::make_shared<WithModel<CountsRuns>>(), quiet_config());
    EXPECT_EQ(check.mark, Mark::fail);
    EXPECT_EQ(check.differs, "the weights after 3 steps (runs)") << check.text;
}

TEST(CheckMemory, MakesLaterBatchesSmallerByAsMuchAsAStepTakesTooLong) {
    struct Slow : Clusters {
        Tensor loss(Module& model, const Batch& batch) const override {
            std::this_thread::sleep_for(std::chrono::milliseconds(1520));
            return Clusters::loss(model, batch);
        }
    };
    Config config = quiet_config(1000);
    const MemoryCheck check = check_memory(std::make_shared<Slow>(), config);
    EXPECT_GT(check.seconds, 1.5);
    EXPECT_EQ(config.data.batch_size, std::int64_t(1000 * 1.5 / check.seconds)) << "of a step of a second and a half";
}

TEST(CheckResume, CutsARunOffBeforeItsLastStep) {
    const RepeatCheck check = check_resume(std::make_shared<Clusters>(), quiet_config());
    EXPECT_EQ(check.mark, Mark::pass);
    EXPECT_EQ(check.steps, 4);
    EXPECT_EQ(check.text, "a run cut off after step 3 and resumed ends step 4 with the same bytes");
}

// Draws a random number with its fourth batch that nothing is made of: a run that is resumed does not come to it.
class DrawsLate : public ClusterModel {
  public:
    DrawsLate() : ClusterModel({}) {}
    Tensor forward(const Tensor& x) override {
        const Tensor y = ClusterModel::forward(x);
        if (training() && ++batches_ == 4) default_generator().reserve(1);
        return y;
    }

  private:
    int batches_ = 0;
};

TEST(CheckResume, NamesTheEntryThatDiffersWhereNoTensorDoes) {
    const RepeatCheck check = check_resume(std::make_shared<WithModel<DrawsLate>>(), quiet_config());
    EXPECT_EQ(check.mark, Mark::fail);
    EXPECT_EQ(check.differs, "rng") << check.text;
}

TEST(CheckResume, WritesNoCheckpointsOfMoreThanAGibibyte) {
    // 2^27 weights in the memory of one.
    struct Large : Module {
        Large() { add_parameter("weight", Tensor::empty({1}).as_strided(0, {1 << 27}, {0})); }
        Tensor forward(const Tensor& x) override { return x; }
    };
    const RepeatCheck check = check_resume(std::make_shared<WithModel<Large>>(), quiet_config());
    EXPECT_EQ(check.mark, Mark::warn);
    EXPECT_EQ(check.text, "not checked: checkpoints of 1.5 GiB are too large for scratch files");
}

// Notes the batches that it trains on.
struct Noting : OnSeenOtherwise {
    Noting() : OnSeenOtherwise([](const ReadOptions&, Batch& batch) { batch.set("as_trained", Tensor::scalar(1)); }) {}
    Tensor loss(Module& model, const Batch& batch) const override {
        if (model.training()) sizes.push_back(batch.size), own += batch.has("as_trained") ? 1 : 0;
        return Clusters::loss(model, batch);
    }
    mutable std::vector<std::int64_t> sizes;
    mutable std::size_t own = 0;
};

TEST(CheckRun, TakesSixteenSamplesInThePlaceOfMore) {
    const auto task = std::make_shared<Noting>();
    const RunCheck check = check_run(task, quiet_config(32));
    EXPECT_EQ(check.mark, Mark::pass) << check.text;
    ASSERT_GE(task->sizes.size(), 3u);
    for (const std::int64_t size : task->sizes) EXPECT_EQ(size, 16);
    EXPECT_EQ(task->own, 0u);
}

TEST(CheckRun, TakesTheRunsOwnBatchesUpToSixteenSamples) {
    const auto task = std::make_shared<Noting>();
    const RunCheck check = check_run(task, quiet_config(16));
    EXPECT_EQ(check.mark, Mark::pass) << check.text;
    ASSERT_GE(task->sizes.size(), 3u);
    EXPECT_EQ(task->own, task->sizes.size());
}

TEST(CheckRun, LeavesToOthersWhatOnlyAPrecisionIsToBlameFor) {
    Config config = quiet_config();
    config.trainer.precision = "16-mixed";
    config.scaler.enabled = false;
    const auto task = std::make_shared<Clusters>(ClusterFaults{.loss_factor = 1e-6});
    Config full = config;
    const DiagnoseOptions options = diagnose_options(full, "");
    invar::Setup setup(task, full);
    const Diagnosis d = diagnose(setup, options);
    ASSERT_FALSE(d.concerns.empty());
    EXPECT_EQ(name_of(d.concerns[0].kind), "underflow") << d.concerns[0].text;
    const RunCheck check = check_run(task, config);
    EXPECT_EQ(check.mark, Mark::pass) << check.text;
}

}  // namespace
}  // namespace invar
