#include "tests/train/deeds.h"

#include "tests/train/poisoned.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

Deeds deeds_of_a_step(invar::Setup& setup) {
    setup.train_data->start_epoch(0);
    Deeds deeds;
    const WatchScope watch(&deeds);
    training_step(setup.loss, *setup.model, *setup.optimizer, *setup.scaler, setup.precision, {}, setup.next_group());
    return deeds;
}

TEST(Deeds, OfEveryPrecisionOnTheCpuAreWhatItAnnounces) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.data.choose("synthetic",
                       SyntheticOptions{.size = 150, .height = 8, .width = 8, .channels = 1, .classes = 4});
    expect_deeds(config);
}

// Levels go beside the names: what is said of them is done too.
TEST(Deeds, OfTheLevelsAreWhatTheyAnnounce) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "bf16-mixed";
    for (const auto& [level, low, says] :
         {std::tuple{"O0", Dtype::f32, "FP32 (no mixed precision)"},
          {"O1", Dtype::bf16, "matrix products and convolutions in BF16"},
          {"O2", Dtype::bf16, "everything in BF16 but losses, norms and exponentials, which are in FP32"},
          {"O3", Dtype::bf16, "everything in BF16 but losses, norms and exponentials, which are in FP32"}}) {
        config.trainer.amp_level = level;
        invar::Setup setup(config);
        Deeds deeds = deeds_of_a_step(setup);
        EXPECT_EQ(deeds.seen[CastClass::low], std::set<Dtype>{low}) << level;
        EXPECT_EQ(deeds.seen[CastClass::fp32], std::set<Dtype>{Dtype::f32}) << level;
        const std::string said = announce_precision(setup)[setup.precision == Precision{} ? 0 : 1];
        EXPECT_NE(said.find(says), std::string::npos) << said;
    }
}

TEST(Deeds, OfLaterStepsAreAnnouncedAtTheStart) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.max_steps = 8;
    config.trainer.precision_schedule = {{false, 4, "16-mixed"}, {false, 6, "bf16-mixed"}, {false, 9, "32-true"}};
    const std::vector<std::string> lines = announce_precision(invar::Setup(config));
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0], "FP32 (no mixed precision), to begin with");
    EXPECT_EQ(lines[1], "trainer.precision_schedule: 16-mixed from step 5 on, bf16-mixed from step 7 on");
    config.trainer.precision_schedule = {{false, 9, "16-mixed"}};
    EXPECT_EQ(announce_precision(invar::Setup(config)), std::vector<std::string>{"FP32 (no mixed precision)"});
}

// Single modules in other precisions are named, and nothing is said of the run that they make untrue.
TEST(Deeds, OfModulesWithAPrecisionOfTheirOwnAreWhatIsAnnounced) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    const auto announced = [&](const std::string& precision, const PrecisionOverrides& overrides,
                               const std::set<Dtype>& products) {
        config.trainer.precision = precision;
        config.trainer.precision_overrides = overrides;
        invar::Setup setup(config);
        Deeds deeds = deeds_of_a_step(setup);
        EXPECT_EQ(deeds.seen[CastClass::low], products) << precision;
        std::string text;
        for (const std::string& line : announce_precision(setup)) text += line + "\n";
        return text;
    };
    const auto tells = [](const std::string& text, const char* part) { return text.find(part) != text.npos; };
    const std::string one_low = announced("32-true", {{"1", "bf16-mixed"}}, {Dtype::f32, Dtype::bf16});
    EXPECT_FALSE(tells(one_low, "no mixed precision")) << one_low;
    EXPECT_TRUE(tells(one_low, "1 (Linear) in BF16")) << one_low;
    const std::string small = announced("32-true", {{"1", "16-mixed"}}, {Dtype::f32, Dtype::f16});
    EXPECT_TRUE(tells(small, "no loss scale")) << small;
    const std::string one_full = announced("16-mixed", {{"4", "32-true"}}, {Dtype::f32, Dtype::f16});
    EXPECT_TRUE(tells(one_full, "matrix products and convolutions in FP16")) << one_full;
    EXPECT_TRUE(tells(one_full, "4 (Linear) in FP32")) << one_full;
    const std::string all_full = announced("16-mixed", {{"*", "32-true"}}, {Dtype::f32});
    EXPECT_FALSE(tells(all_full, "matrix products and convolutions in FP16")) << all_full;
    EXPECT_TRUE(tells(all_full, "every module with weights in FP32")) << all_full;
}

TEST(Trainer, SkipsStepsWithABadLossAndLogsTheReason) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "16-mixed";
    config.trainer.max_epochs = 1;
    config.trainer.limit_val_batches = BatchCount::of(0);
    config.optimizer.choose("adamw");
    config.optimizer.weight_decay = 0.1;
    Trainer trainer(config);
    Poisoned& model = poison(trainer.setup());
    struct Poisoner : Stopper {
        explicit Poisoner(Poisoned& p) : model(p) {}
        void step_launched(const Progress& progress, std::int64_t) override { model.set(progress.step == 4); }
        Poisoned& model;
    } observer(model);
    const RunSummary summary = trainer.fit(observer);
    EXPECT_EQ(summary.status, "finished");
    EXPECT_EQ(summary.skipped, 1);
    EXPECT_FALSE(summary.all_finite);
    EXPECT_EQ(summary.final_scale, config.scaler.init_scale / 2);
    const std::vector<nlohmann::json> reasons = lines_with(summary.folder, "skip_reason");
    ASSERT_EQ(reasons.size(), 1u);
    EXPECT_EQ(reasons[0].at("step"), 5);
    EXPECT_EQ(reasons[0].at("skip_reason"), "its loss was NaN, though its gradients were finite");
}

TEST(Trainer, DoesNotValidateWhereThereIsNothingToValidateOn) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.val_check_interval = BatchCount::of(3);
    config.trainer.limit_val_batches = BatchCount::of(0);
    struct : Stopper {
        void validated(const ValidationMetrics&) override { ++validations; }
        int validations = 0;
    } observer;
    const RunSummary summary = train(config, observer);
    EXPECT_EQ(summary.status, "finished");
    EXPECT_TRUE(summary.validation.empty());
    EXPECT_EQ(observer.validations, 0);
    EXPECT_TRUE(lines_with(summary.folder, "val_loss").empty());
    EXPECT_EQ(file_bytes(summary.folder / "summary.json").find("val_"), std::string::npos);
    config.trainer.max_epochs = 3;
    EXPECT_EQ(train(config, summary.folder).status, "finished") << "and it can be resumed";
}

// Weights of 16 bits alone to FP32 ones: groups, rates, frozen parameters and missed steps come along.
TEST(Setup, KeepsEveryParameterGroupWhenThePrecisionChanges) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "bf16-true";
    invar::Setup setup(config);
    const std::vector<Parameter*> all = setup.model->parameters();
    ASSERT_EQ(all.size(), 4u);
    OptimizerSpec fast, slow;
    fast.lr = 0.1, slow.lr = 0.01, slow.weight_decay = 0.5;
    setup.optimizer = std::make_unique<Optimizer>(
        std::vector<ParameterGroup>{{{all[2], all[3]}, fast}, {{all[0]}, slow}}, StoreOptions{Dtype::bf16, {}});
    all[2]->value.set_requires_grad(false);
    setup.train_data->start_epoch(0);
    training_step(setup.loss, *setup.model, *setup.optimizer, *setup.scaler, setup.precision, {}, setup.next_group());
    setup.set_precision(Precision::parse("32-true"));
    ASSERT_EQ(setup.optimizer->groups().size(), 2u);
    EXPECT_EQ(setup.optimizer->groups()[0], fast);
    EXPECT_EQ(setup.optimizer->groups()[1], slow);
    EXPECT_EQ(setup.optimizer->store().parameters(), (std::vector<Parameter*>{all[2], all[3], all[0]}));
    EXPECT_EQ(setup.optimizer->store().missed_steps(), (std::vector<std::int64_t>{1, 0, 0}));
    EXPECT_FALSE(all[2]->value.requires_grad());
    EXPECT_TRUE(all[3]->value.requires_grad());
    EXPECT_EQ(all[0]->value.dtype(), Dtype::f32);
}

}  // namespace
}  // namespace invar
