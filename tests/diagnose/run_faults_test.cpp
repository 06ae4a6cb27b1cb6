// What is wrong with a run in any precision, planted by hand one by one, and a sound run that has none of it.
#include "invar/diagnose/run_faults.h"

#include <gtest/gtest.h>

#include "invar/diagnose/check_parts.h"
#include "invar/diagnose/significance.h"
#include "tests/diagnose/clusters.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

Config cluster_config(const std::string& precision = "16-mixed") {
    Config config = small_config("unused");
    config.data.batch_size = 16;
    config.data.num_workers = 0;
    config.trainer.precision = precision;
    return config;
}

Diagnosis diagnosed(const ClusterFaults& faults, Config config = cluster_config(), int steps = 3) {
    DiagnoseOptions options = diagnose_options(config, "");
    options.steps = steps;
    invar::Setup setup(std::make_shared<Clusters>(faults), config);
    return diagnose(setup, options);
}

std::string all_of(const Diagnosis& d) {
    std::string text = d.finding ? d.finding.text() : "";
    for (const Concern& c : d.concerns) text += fmt::format("{}: {}\n", name_of(c.kind), c.text);
    return text;
}

// The first concern is of this kind, names this module, and says this.
void expect_named(const Diagnosis& d, Concern::Kind kind, std::string_view module, std::string_view part) {
    ASSERT_FALSE(d.concerns.empty()) << "nothing was said: " << all_of(d);
    EXPECT_EQ(name_of(d.concerns[0].kind), name_of(kind)) << all_of(d);
    EXPECT_EQ(d.concerns[0].module, module) << all_of(d);
    EXPECT_NE(d.concerns[0].text.find(part), std::string::npos) << all_of(d);
}

TEST(RunFaults, AreNoneInASoundRun) {
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"})
        for (const int accumulate : {1, 4}) {
            Config config = cluster_config(precision);
            config.trainer.accumulate_grad_batches = accumulate;
            config.trainer.gradient_clip_val = 1.0;
            const Diagnosis d = diagnosed({}, config);
            EXPECT_TRUE(d.healthy()) << precision << "\n" << all_of(d);
            EXPECT_TRUE(d.averages.empty());
        }
}

TEST(RunFaults, NameAFrozenLayerUnlessTheConfigurationFreezesIt) {
    expect_named(diagnosed({.frozen_in = true}), Concern::Kind::frozen, "in", "in is frozen: requires_grad is false");
    Config config = cluster_config();
    config.trainer.freeze = {"in"};
    EXPECT_TRUE(diagnosed({}, config).healthy());
}

TEST(RunFaults, NameALayerThatIsCutOff) {
    expect_named(diagnosed({.detached = true}), Concern::Kind::frozen, "in",
                 "no gradient reaches in, though the loss depends on it");
}

TEST(RunFaults, TellALayerThatIsNotUsedFromOneThatIsCutOff) {
    expect_named(diagnosed({.unused = true}), Concern::Kind::no_gradient, "spare",
                 "the loss does not depend on spare: it is never used");
}

TEST(RunFaults, NameTheLayerThatGetsNothingBackAndTheOpThatIsDead) {
    expect_named(diagnosed({.dead = true}), Concern::Kind::no_gradient, "",
                 "the gradient of in is 0 in all 3 steps: relu in the model itself makes nothing but zeros");
}

TEST(RunFaults, NameAFlatLoss) {
    expect_named(diagnosed({.constant_loss = true}), Concern::Kind::no_gradient, "out",
                 "the gradient is 0 in every weight and in all 3 steps: the loss is flat");
}

TEST(RunFaults, NameALayerWhoseUpdatesFp32RoundsAway) {
    Config config = cluster_config();
    config.optimizer.choose("sgd");
    config.optimizer.lr = 1e-12;
    expect_named(diagnosed({}, config), Concern::Kind::no_gradient, "out",
                 "every update rounds to nothing, in FP32 too");
}

TEST(RunFaults, NameNaNInDataThatNoStepHasSeen) {
    const Diagnosis d = diagnosed({.nan_at = 5}, cluster_config(), 1);
    ASSERT_FALSE(d.concerns.empty());
    expect_named(d, Concern::Kind::data, "",
                 "1 values of x are NaN or infinite in the data to train on, the first in sample 5");
}

TEST(RunFaults, NameLabelsThatAreAllTheSame) {
    expect_named(diagnosed({.constant_labels = true}), Concern::Kind::constant_labels, "",
                 "all labels of 64 samples are 3 (y)");
}

TEST(RunFaults, NameARateThatStaysAtZero) {
    Config none = cluster_config();
    none.optimizer.lr = 0;
    expect_named(diagnosed({}, none), Concern::Kind::learning_rate, "", "optimizer.lr is 0");
    Config slow = cluster_config();
    slow.trainer.max_steps = 20;
    slow.scheduler.warmup_steps = 1000000;
    expect_named(diagnosed({}, slow), Concern::Kind::learning_rate, "",
                 "scheduler.warmup_steps=1000000 rises far beyond the run's end");
    Config fine = cluster_config();
    fine.trainer.max_steps = 20;
    fine.scheduler.warmup_steps = 10;
    EXPECT_TRUE(diagnosed({}, fine).healthy());
}

TEST(RunFaults, NameAScheduleOfZeros) {
    const Clusters task;
    const std::unique_ptr<Module> model = task.make_model();
    Optimizer optimizer(*model, {.lr = 0.1});
    ScheduleSpec schedule{.kind = ScheduleSpec::Kind::curve, .total_steps = 10};
    optimizer.set_schedule(schedule, std::vector<double>(10, 0.0));
    const MaybeConcern fault = rate_fault(optimizer, 10);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->text, "the learning rate is 0 in all 10 steps of the run: the scheduler's factor never rises");
    optimizer.set_schedule(schedule, {0, 0, 0, 0, 0, 0, 0, 0, 0, 1});
    EXPECT_FALSE(rate_fault(optimizer, 10));
}

TEST(RunFaults, NameDropoutThatIsOnInEvaluation) {
    expect_named(diagnosed({.random_evaluation = true}), Concern::Kind::evaluation, "",
                 "two evaluations of the same 8 samples differ: dropout in the model itself is random in evaluation");
}

TEST(RunFaults, NameStatisticsThatEvaluationChangesAndPutThemBack) {
    Config config = cluster_config("32-true");
    invar::Setup setup(std::make_shared<Clusters>(ClusterFaults{.statistics_in_evaluation = true}), config);
    const MaybeConcern fault = evaluation_fault(setup);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->kind, Concern::Kind::evaluation);
    EXPECT_NE(fault->text.find("evaluation changes average"), std::string::npos) << fault->text;
    for (const float value : setup.model->buffers().front().second->to_vector<float>()) EXPECT_EQ(value, 0.0f);
}

TEST(RunFaults, NameALossThatIsASum) {
    expect_named(diagnosed({.sum_loss = true}), Concern::Kind::accumulation, "loss", "it is a sum over samples");
}

TEST(RunFaults, NameALossThatIsDividedByTheBatchesOfAStep) {
    Config config = cluster_config();
    config.trainer.accumulate_grad_batches = 4;
    expect_named(diagnosed({.loss_factor = 0.25}, config), Concern::Kind::accumulation, "loss",
                 "is 4 times less than the one that is measured of the same samples, while 4 batches make a step");
    expect_named(diagnosed({.loss_factor = 4}, config), Concern::Kind::accumulation, "loss", "is 4 times the one");
    EXPECT_TRUE(diagnosed({.loss_factor = 0.25}).healthy()) << "a weight of the loss, where a step is one batch";
}

TEST(RunFaults, NameClippingOfGradientsThatCarryTheLossScale) {
    expect_named(diagnosed({.clips_gradients = true}), Concern::Kind::clipping, "in",
                 "something clips it while it carries the scale");
    EXPECT_TRUE(diagnosed({.clips_gradients = true}, cluster_config("bf16-mixed")).healthy())
        << "without a scale it clips what it should";
}

TEST(RunFaults, NameALimitThatIsOneForScaledGradients) {
    Config config = cluster_config();
    config.trainer.gradient_clip_val = 1.0 / 65536;
    const Diagnosis d = diagnosed({}, config);
    expect_named(d, Concern::Kind::clipping, "", "of the gradient in all 3 steps");
    EXPECT_EQ(d.concerns[0].remedy.kind, Remedy::Kind::gradient_clip);
}

// A layer beside the first one that hardly counts, and whose gradient is clipped.
struct HardlyClipped : ClusterModel {
    HardlyClipped() : ClusterModel({}), side_(add<Linear>("side", 6, 6)) {}
    Tensor forward(const Tensor& x) override {
        return ClusterModel::forward(x + apply(ClippedGradient{}, {side_(x) * 1e-4}));
    }
    Linear& side_;
};

TEST(RunFaults, LeaveClippingAloneWhereTheGradientIsNextToNothing) {
    struct Task : Clusters {
        std::unique_ptr<Module> make_model() const override { return std::make_unique<HardlyClipped>(); }
    };
    invar::Setup setup(std::make_shared<Task>(), cluster_config("32-true"));
    setup.train_data->start_epoch(0);
    const std::vector<Batch> group = setup.next_group();
    const MaybeConcern fault = scaled_clip_fault(setup, {group, default_generator().state()}, setup.loss, 65536);
    EXPECT_FALSE(fault) << fault->text;
}

TEST(RunFaults, AdviseALimitNearTheGradientsAndNoneBelowOne) {
    const ClipSpec clip{ClipSpec::Kind::norm, 1e-6f};
    const auto advised = [&](double norm) {
        const std::vector<StepFigures> steps = {{1.0, norm}, {1.0, 2 * norm}};
        return clip_fault(clip, steps).value().remedy;
    };
    EXPECT_EQ(advised(0.2), Remedy::of_gradient_clip(1));
    EXPECT_EQ(advised(1.1), Remedy::of_gradient_clip(1));
    EXPECT_EQ(advised(30), Remedy::of_gradient_clip(32));
}

TEST(RunFaults, TakeWhatIsTheSameInEverySampleForAFaultOfDataToTrainOn) {
    DataCheck data;
    data.read = data.samples = 24;
    TensorSummary labels;
    labels.name = "y", labels.min = labels.max = 3;
    data.tensors.push_back(labels);
    const MaybeConcern fault = data_fault(data);
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->kind, Concern::Kind::constant_labels);
    data.split = Split::test;
    EXPECT_FALSE(data_fault(data)) << "a test may be of one class";
    data.split = Split::train;
    data.read = 1;
    EXPECT_FALSE(data_fault(data)) << "one sample is like itself";
}

TEST(RunFaults, LeaveBuffersAloneThatAreNoAverages) {
    struct Model : ClusterModel {
        Model() : ClusterModel({}) { add_buffer("table", ops::full({8}, 2, Dtype::f16)); }
    };
    struct Task : Clusters {
        std::unique_ptr<Module> make_model() const override { return std::make_unique<Model>(); }
    };
    invar::Setup setup(std::make_shared<Task>(), cluster_config("32-true"));
    setup.train_data->start_epoch(0);
    const std::vector<Batch> group = setup.next_group();
    EXPECT_TRUE(still_averages(setup, {group, default_generator().state()}, setup.loss).empty());
}

TEST(RunFaults, NameAMovingAverageThatStandsStillInSixteenBits) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const Diagnosis d = diagnosed({.average = dtype});
        expect_named(d, Concern::Kind::moving_average, "", "buffer average (");
        ASSERT_EQ(d.averages.size(), 1u);
        EXPECT_GT(d.averages[0].share(), 0.9);
        EXPECT_GT(d.averages[0].range, 1.3);
    }
}

TEST(RunFaults, LeaveAveragesAloneThatMove) {
    const Diagnosis quick = diagnosed({.average = Dtype::f16, .momentum = 0.9});
    EXPECT_TRUE(quick.healthy()) << all_of(quick);
    ASSERT_EQ(quick.averages.size(), 1u);
    EXPECT_LT(quick.averages[0].share(), 0.1);
    const Diagnosis full = diagnosed({.average = Dtype::f32});
    EXPECT_TRUE(full.healthy()) << all_of(full);
    EXPECT_TRUE(full.averages.empty());
}

TEST(RunFaults, LeaveTheRunAsItWas) {
    Config config = cluster_config("32-true");
    const auto task = std::make_shared<Clusters>(ClusterFaults{.unused = true, .average = Dtype::f16});
    invar::Setup setup(task, config);
    setup.train_data->start_epoch(0);
    const std::vector<Batch> group = setup.next_group();
    const StateDict before = setup.model->state_dict();
    const RngState rng = default_generator().state();
    faults_before_steps(setup, setup.loss);
    still_averages(setup, {group, rng}, setup.loss);
    EXPECT_EQ(default_generator().state().offset, rng.offset);
    for (const auto& [name, tensor] : setup.model->state_dict())
        EXPECT_EQ(tensor.to_vector<double>(), before.at(name).to_vector<double>()) << name;
}

TEST(LostUpdates, CountWeightDecayByItself) {
    const auto lost = [](double lr, double decay) {
        Config config = cluster_config("bf16-true");
        config.optimizer.choose("adamw");
        config.optimizer.lr = lr;
        config.optimizer.weight_decay = decay;
        return diagnosed({}, config, 1);
    };
    const Diagnosis none = lost(1e-3, 0.01);
    EXPECT_FALSE(none.masters);
    EXPECT_GT(none.updates[0].decays, 0);
    EXPECT_EQ(none.updates[0].decay_share(), 1.0) << "1e-5 of a weight is less than half its last place in BF16";
    EXPECT_EQ(lost(0.1, 0.5).updates[0].decay_share(), 0.0);
    EXPECT_EQ(lost(0.1, 0).updates[0].decays, 0);
}

SampledStep step_of(const std::string& op, std::vector<float> input, std::vector<float> result) {
    SampledStep step;
    step.ops.ops.push_back({"layer", op, {std::move(input)}, std::move(result)});
    return step;
}

TEST(Significance, IsNotLostByAGateThatLeavesLittleOfItsInput) {
    const std::unique_ptr<Module> model = Clusters().make_model();
    const Optimizer optimizer(*model, {});
    std::vector<Significance> gate, other;
    compare_steps(step_of("relu", {-100, 0.02f}, {0, 0.02f}), step_of("relu", {-100, 0.01f}, {0, 0.01f}), optimizer,
                  gate);
    ASSERT_EQ(gate.size(), 1u);
    EXPECT_EQ(gate[0].made, 0.0) << gate[0].op;
    compare_steps(step_of("sub", {-100, 0.02f}, {0.5f, 0.02f}), step_of("sub", {-100, 0.01f}, {0.1f, 0.01f}), optimizer,
                  other);
    EXPECT_GT(other[0].made, 1.0);
    EXPECT_EQ(other[0].op, "sub");
}

TEST(Significance, TellsHowFarAModuleIsOffAtItsWorst) {
    const std::unique_ptr<Module> model = Clusters().make_model();
    const Optimizer optimizer(*model, {});
    std::vector<Significance> found;
    for (const float result : {10.5f, 15.0f, 11.0f})
        compare_steps(step_of("mul", {1}, {result}), step_of("mul", {1}, {10}), optimizer, found);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].off, 0.5);
}

TEST(Significance, IsLostByAnOpThatMakesFewerValuesThanItIsGiven) {
    const std::unique_ptr<Module> model = Clusters().make_model();
    const Optimizer optimizer(*model, {});
    std::vector<Significance> found;
    compare_steps(step_of("sum", {1, 2}, {4.5f}), step_of("sum", {1, 2}, {3}), optimizer, found);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].op, "sum");
    EXPECT_EQ(found[0].made, 0.5);
    EXPECT_EQ(found[0].given, 0.0);
}

TEST(Significance, KeepsTheOpThatIsInfiniteInTheCandidateAlone) {
    const std::unique_ptr<Module> model = Clusters().make_model();
    const Optimizer optimizer(*model, {});
    std::vector<Significance> found, masked;
    compare_steps(step_of("mul", {300}, {INFINITY}), step_of("mul", {300}, {90000}), optimizer, found);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].infinite_op, "mul");
    EXPECT_EQ(found[0].in_full, 90000);
    compare_steps(step_of("where", {1}, {-INFINITY}), step_of("where", {1}, {-INFINITY}), optimizer, masked);
    EXPECT_EQ(masked[0].infinite_op, "") << "a mask is infinite on purpose";
}

TEST(CheckRun, FailsWhatCannotBeMeantAndWarnsOfWhatMay) {
    const auto run = [](const ClusterFaults& faults, Config config = cluster_config("32-true")) {
        return check_run(std::make_shared<Clusters>(faults), config);
    };
    const RunCheck sound = run({});
    EXPECT_EQ(sound.mark, Mark::pass) << sound.text;
    EXPECT_EQ(sound.text, "over 3 steps all 4 parameters that learn move, and evaluation gives the same twice");
    const RunCheck random = run({.random_evaluation = true});
    EXPECT_EQ(random.mark, Mark::fail);
    EXPECT_EQ(random.kind, "evaluation");
    const RunCheck frozen = run({.frozen_in = true});
    EXPECT_EQ(frozen.mark, Mark::warn);
    EXPECT_EQ(frozen.module, "in");
    Config still = cluster_config("32-true");
    still.optimizer.lr = 0;
    EXPECT_EQ(run({}, still).mark, Mark::fail);
}

}  // namespace
}  // namespace invar
