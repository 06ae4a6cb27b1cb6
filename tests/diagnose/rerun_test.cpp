// Steps of a run that are trained again: from where, how far, and what is learnt from it.
#include "invar/diagnose/rerun.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/diagnose/failure.h"
#include "invar/diagnose/record_failure.h"
#include "invar/diagnose/step_again.h"
#include "invar/train/run_folder.h"
#include "tests/core/expect_error.h"
#include "tests/diagnose/clusters.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

Config cluster_config(double rate) {
    Config config = small_config("unused");
    config.data.num_workers = 0;
    config.optimizer.choose("sgd");
    config.optimizer.lr = rate;
    return config;
}

FailedStep failed_at(std::int64_t step) {
    FailedStep failed;
    failed.found.at.before.step = step - 1;
    return failed;
}

// The data hold a NaN, so that every try ends within an epoch however many steps were to be done.
TEST(TryInFullPrecision, DoesAThousandStepsAgainAndNotOneMore) {
    const RerunStart start{std::make_shared<Clusters>(ClusterFaults{.nan_at = 5}), {}, cluster_config(0.1), {}};
    Explanation why;
    EXPECT_EQ(try_in_full_precision(start, failed_at(kMostStepsAgain - 25), why),
              "from the beginning FP32 goes the same way: no precision is to blame");
    EXPECT_EQ(why.full_precision, Explanation::FullPrecision::fails);
    why = {};
    EXPECT_EQ(try_in_full_precision(start, failed_at(kMostStepsAgain - 24), why),
              "the 976 steps since the last good checkpoint are too many to be tried in FP32");
    EXPECT_EQ(why.full_precision, Explanation::FullPrecision::unknown);
}

// The sum of the squares of all weights: a step takes w to (1 - 2 lr) w.
struct Bowl : Clusters {
    Tensor loss(Module& model, const Batch&) const override {
        Tensor sum;
        for (const Parameter* p : model.parameters()) {
            const Tensor squares = ops::sum(p->value * p->value);
            sum = sum ? sum + squares : squares;
        }
        return sum;
    }
};

TEST(TryInFullPrecision, AdvisesTheLargestRateThatGoesWell) {
    const auto advised = [](double rate) {
        const RerunStart start{std::make_shared<Bowl>(), {}, cluster_config(rate), {}};
        Explanation why;
        const std::string said = try_in_full_precision(start, failed_at(3), why);
        EXPECT_EQ(why.verified, bool(why.remedy)) << said;
        EXPECT_NE(said.find("no precision is to blame"), std::string::npos) << said;
        return why.remedy;
    };
    EXPECT_EQ(advised(3).kind, Remedy::Kind::learning_rate);
    EXPECT_NEAR(advised(3).value, 0.3, 1e-12) << "weights shrink by 0.4 a step, and grew by 5";
    EXPECT_NEAR(advised(30).value, 0.3, 1e-12);
    EXPECT_EQ(advised(3e4), Remedy{}) << "a thousandth of it is too much";
}

TEST(Explain, GoesBackToTheCheckpointFromBeforeTheFirstStep) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.data.num_workers = 0;
    invar::Setup setup(config);
    setup.train_data->start_epoch(0);
    FailedStep step{scratch.path(), config, setup.next_group(), {}};
    step.found.kind = Instability::Kind::loss_diverged;
    step.checkpoint = 0;
    // Not the weights that the seed would give.
    for (Parameter* p : setup.model->parameters()) p->value.data<float>()[0] = 0.125f;
    const Checkpoint before = take_snapshot(setup, {}, to_yaml(config));
    CheckpointFolder(RunFolder::checkpoints_of(step.run), 1).save(0, before);
    explain(setup, step);
    const Failure kept = load_failure(failure_folder(step.run));
    EXPECT_EQ(kept.progress.step, 0);
    for (const auto& [name, tensor] : before.tensors)
        EXPECT_EQ(kept.state.tensors.at(name).to_vector<double>(), tensor.to_vector<double>()) << name;
}

TEST(WayToStep, LeadsFromTheFirstStepToTheLast) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    std::ofstream(scratch.path() / "summary.json") << R"({"steps": 5})";
    for (const std::int64_t step : {1, 5}) {
        const WayToStep way = way_to_step(scratch.path(), config, step);
        EXPECT_TRUE(way.checkpoint.empty());
        EXPECT_EQ(way.again(), step - 1);
    }
    EXPECT_ERROR(way_to_step(scratch.path(), config, 0), UsageError, "counted from 1, so that there is no step 0");
    EXPECT_ERROR(way_to_step(scratch.path(), config, 6), UsageError, "has steps 1 to 5, and no step 6");
}

TEST(StateBefore, TheFirstStepOfAnEpochIsAtTheBeginningOfIt) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.data.num_workers = 0;
    invar::Setup fresh(config);
    const std::int64_t each = fresh.steps_per_epoch;
    fresh.train_data->start_epoch(1);
    const std::vector<Batch> first = fresh.next_group();
    const Failure found = state_before({each + 1, {}, 0}, config);
    EXPECT_EQ(found.progress.step, each);
    EXPECT_EQ(found.progress.epoch, 1);
    EXPECT_EQ(found.progress.batch, 0);
    ASSERT_EQ(found.group.size(), 1u);
    EXPECT_EQ(found.group[0]["x"].to_vector<float>(), first[0]["x"].to_vector<float>());
}

}  // namespace
}  // namespace invar
