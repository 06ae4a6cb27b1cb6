// The recipes configs/experiment/lesson_*.yaml on real data: each goes wrong as its page says, and its repair works.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "invar/tasks/registry.h"
#include "tests/core/expect_error.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

const ConfigSources kShipped{{fs::path(INVAR_SOURCE_DIR) / "configs"}};

class Lesson : public testing::Test {
  protected:
    void SetUp() override {
        try {
            open_data(load_config("fashion_mnist", {}, kShipped).data, Split::test);
        } catch (const Error& error) {
            GTEST_SKIP() << "Fashion-MNIST is not on this machine: " << error.what();
        }
    }
    RunSummary run(const std::string& lesson, std::vector<std::string> overrides = {}) {
        overrides.push_back("output_dir=" + scratch.path().string());
        overrides.push_back("trainer.device=cpu");
        overrides.push_back("trainer.threads=1");
        overrides.push_back("logger.tensorboard=false");
        watcher = Stopper();
        return Trainer(load_config("lesson_" + lesson, overrides, kShipped)).fit(watcher);
    }
    std::vector<nlohmann::json> lines(const RunSummary& run) { return read_jsonl(run.folder / "metrics.jsonl"); }
    ScratchFolder scratch;
    Stopper watcher;
};

TEST_F(Lesson, WithoutLossScalingEveryGradientVanishesAndNothingLearns) {
    const RunSummary wrong = run("no_loss_scaling");
    EXPECT_EQ(wrong.max_grad_norm, 0.0);
    EXPECT_EQ(wrong.skipped, 0) << "nothing overflows: it goes wrong in silence";
    bool named = false;
    for (const nlohmann::json& line : lines(wrong))
        named = named || (line.value("alert", "") == "gradient_small" && line.value("where", "") == "1");
    EXPECT_TRUE(named) << "the monitor says which module's gradients have vanished";
    const RunSummary repaired = run("no_loss_scaling", {"scaler.enabled=true"});
    const RunSummary exact = run("no_loss_scaling", {"trainer.precision=32-true"});
    EXPECT_GT(repaired.max_grad_norm, 0.0);
    EXPECT_GT(repaired.val("accuracy"), 0.7);
    EXPECT_GT(exact.val("accuracy"), 0.7);
    EXPECT_LT(wrong.val("accuracy"), 0.3);
}

TEST_F(Lesson, InputsBeyondFp16FailThereAndTrainInBf16) {
    const RunSummary half = run("fp16_range");
    EXPECT_EQ(half.skipped, half.steps) << "no step counts";
    EXPECT_FALSE(half.all_finite);
    const RunSummary brain = run("fp16_range", {"trainer.precision=bf16-mixed"});
    EXPECT_TRUE(brain.all_finite);
    EXPECT_EQ(brain.skipped, 0);
    EXPECT_GT(brain.val("accuracy"), 0.6);
    EXPECT_GT(brain.val("accuracy"), half.val("accuracy") + 0.3);
    const RunSummary recovered = run("fp16_range", {"trainer.on_instability=recover"});
    ASSERT_EQ(recovered.recoveries.size(), 1u);
    EXPECT_EQ(recovered.recoveries[0].to, "bf16-mixed");
    EXPECT_EQ(recovered.precision, "bf16-mixed");
    EXPECT_EQ(recovered.val("accuracy"), brain.val("accuracy")) << "from the start again: the same run";
}

TEST_F(Lesson, Bf16WithoutMastersLosesUpdates) {
    const auto moved = [&](const RunSummary& run) {
        Config config = load_config("lesson_bf16_without_masters", {"trainer.device=cpu"}, kShipped);
        const std::unique_ptr<Module> initial = make_initial_model(*make_task(config), config);
        const StateDict before = initial->state_dict();
        const StateDict after = model_weights(load_checkpoint(last_checkpoint(run.folder)));
        const std::vector<float> was = before.at("1.weight").to_vector<float>();
        const std::vector<float> is = after.at("1.weight").to_vector<float>();
        std::size_t count = 0;
        // A weight counts as moved where BF16 could show it.
        for (std::size_t i = 0; i < was.size(); ++i) count += std::fabs(is[i] - was[i]) > std::fabs(was[i]) / 128;
        return double(count) / double(was.size());
    };
    const RunSummary wrong = run("bf16_without_masters");
    const RunSummary repaired = run("bf16_without_masters", {"trainer.precision=bf16-mixed"});
    EXPECT_LT(moved(wrong), 0.6 * moved(repaired));
    EXPECT_LT(wrong.val("accuracy"), repaired.val("accuracy") - 0.02);
    EXPECT_GT(wrong.train_loss, 1.05 * repaired.train_loss);
}

TEST_F(Lesson, AnExpLossExplodesInFp32TooAndItsLogarithmDoesNot) {
    EXPECT_ERROR(run("exp_loss"), Error, "training stopped at step");
    EXPECT_ERROR(run("exp_loss", {"trainer.precision=bf16-mixed"}), Error, "training stopped at step");
    const RunSummary repaired = run("exp_loss", {"task.name=classification"});
    EXPECT_TRUE(repaired.all_finite);
    EXPECT_GT(repaired.val("accuracy"), 0.7);
}

TEST_F(Lesson, ClippingBeforeUnscalingShrinksEveryStepToNothing) {
    const RunSummary wrong = run("clip_before_unscale");
    const RunSummary right = run("clip_before_unscale", {"trainer.gradient_clip_val=1.0"});
    EXPECT_GT(right.val("accuracy"), 0.65);
    EXPECT_LT(wrong.val("accuracy"), right.val("accuracy") - 0.3);
    EXPECT_GT(wrong.train_loss, 2.2);
}

// What the recipe says it amounts to, with the explicit calls in the wrong order.
TEST(LessonOfClipping, ClippingScaledGradientsIsClippingAtOneOverTheScale) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "16-mixed";
    config.optimizer.choose("sgd");
    config.optimizer.lr = 100;
    config.scaler.init_scale = 1024;
    config.model.set("dropout", "0");
    invar::Setup wrong(config), amounts_to(config), untouched(config);
    const auto loss_of = [](invar::Setup& setup) {
        setup.train_data->start_epoch(0);
        const Batch batch = *setup.train_data->next();
        return ops::cross_entropy((*setup.model)(batch["x"]), batch["y"]);
    };
    for (invar::Setup* setup : {&wrong, &amounts_to}) {
        setup->optimizer->zero_grad();
        setup->scaler->backward(loss_of(*setup));
    }
    clip_grad_norm(*wrong.optimizer, 1.0);
    wrong.scaler->step(*wrong.optimizer);
    amounts_to.scaler->step(*amounts_to.optimizer, {ClipSpec::Kind::norm, 1.0f / 1024});
    const auto weights = [](invar::Setup& setup) { return setup.optimizer->store().weights().to_vector<float>(); };
    const std::vector<float> a = weights(wrong), b = weights(amounts_to), before = weights(untouched);
    double moved = 0.0, apart = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i)
        moved += std::fabs(double(b[i]) - before[i]), apart += std::fabs(double(a[i]) - b[i]);
    EXPECT_GT(moved, 0.0);
    EXPECT_LT(apart, 1e-3 * moved);
}

}  // namespace
}  // namespace invar
