// Each check on a sound task, and on one with the fault that it is there for.
#include "invar/diagnose/check.h"

#include <gtest/gtest.h>

#include "tests/diagnose/clusters.h"
#include "tests/tasks/line.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

Config quiet_config() {
    Config config = small_config("unused");
    config.data.batch_size = 16;
    config.data.num_workers = 0;
    return config;
}

TaskCheck checked(const ClusterFaults& faults, const Config& config = quiet_config()) {
    return check_task(std::make_shared<Clusters>(faults), config);
}

std::string all_texts(const TaskCheck& check) {
    std::string text;
    for (const auto& [name, each] : check.all())
        text += fmt::format("{} {}: {}\n", name_of(each->mark), name, each->text);
    return text;
}

bool says(const Checked& check, std::string_view part) {
    return check.text.find(part) != check.text.npos;
}

TEST(CheckTask, FindsNothingWrongWithASoundTask) {
    const TaskCheck check = checked({});
    EXPECT_EQ(check.mark(), Mark::pass) << all_texts(check);
    EXPECT_EQ(check.all().size(), 10u);
    EXPECT_EQ(check.data[0].samples, 64);
    EXPECT_EQ(check.data[0].read, 64);
    EXPECT_EQ(check.data[0].tensors[1].labels.size(), 4u);
    EXPECT_EQ(check.data[0].tensors[1].labels.at(3).samples, 16);
    EXPECT_EQ(check.shapes.output, (Shape{8, 4}));
    EXPECT_EQ(check.shapes.classes, 4);
    EXPECT_EQ(check.gradient.directions, 4);
    EXPECT_LT(check.gradient.difference, 1e-5);
    EXPECT_LT(check.split.difference, 1e-9);
    EXPECT_GT(check.memory.memory.peak_of(Purpose::weights) + check.memory.memory.peak_of(Purpose::masters), 0);
    EXPECT_EQ(check.memory.samples, 16);
}

TEST(CheckTask, TakesTasksWithoutLabelsAndModelsWithBatchNorm) {
    const Line line(40);
    const auto task = std::make_shared<Regression>(TaskParts(line.data, line.data, [](const DataInfo& info) {
        auto model = std::make_unique<Sequential>();
        model->then(std::make_unique<Linear>(info.input[0], 8)).then(std::make_unique<BatchNorm>(8));
        model->then(std::make_unique<Relu>()).then(std::make_unique<Linear>(8, info.outputs));
        return model;
    }));
    const TaskCheck check = check_task(task, quiet_config());
    EXPECT_EQ(check.mark(), Mark::pass) << all_texts(check);
    EXPECT_TRUE(check.data[0].tensors[1].labels.empty());
    EXPECT_EQ(check.shapes.classes, 0);
}

TEST(CheckTask, NamesTheSampleThatIsNotFinite) {
    const TaskCheck check = checked({.nan_at = 5});
    EXPECT_EQ(check.data[0].mark, Mark::fail);
    EXPECT_EQ(check.data[0].tensors[0].not_finite, 1);
    EXPECT_EQ(check.data[0].tensors[0].first_not_finite, 5);
    EXPECT_TRUE(says(check.data[0], "the first in sample 5")) << check.data[0].text;
    EXPECT_EQ(check.data[1].mark, Mark::pass);
    EXPECT_EQ(check.mark(), Mark::fail);
}

TEST(CheckTask, FailsALossThatIsNotFiniteAndSkipsWhatRestsOnIt) {
    const TaskCheck check = checked({.nan_at = 0});
    EXPECT_TRUE(says(check.shapes, "the loss of 8 samples is nan")) << check.shapes.text;
    EXPECT_TRUE(says(check.gradient, "not checked")) << check.gradient.text;
}

TEST(CheckTask, NamesALabelThatIsNoClass) {
    const TaskCheck check = checked({.wrong_label_at = 5});
    EXPECT_EQ(check.shapes.mark, Mark::fail);
    EXPECT_TRUE(says(check.shapes, "y of sample 5 of train is 4, which is none of the 4 classes 0 to 3"))
        << check.shapes.text;
}

TEST(CheckTask, SeesSplitsOfDifferentShapes) {
    const TaskCheck check = checked({.test_width = 5});
    EXPECT_EQ(check.shapes.mark, Mark::fail);
    EXPECT_TRUE(says(check.shapes, "a sample's x is [6] in train and [5] in test")) << check.shapes.text;
}

TEST(CheckTask, NamesTheParameterWhoseGradientIsWrong) {
    const TaskCheck check = checked({.wrong_backward = true});
    EXPECT_EQ(check.gradient.mark, Mark::fail) << check.gradient.text;
    EXPECT_TRUE(check.gradient.parameter.starts_with("in.")) << check.gradient.text;
    EXPECT_NEAR(check.gradient.backward / check.gradient.slope, 1.5, 1e-3) << check.gradient.text;
}

TEST(CheckTask, SeesAGraphThatIsCut) {
    const TaskCheck check = checked({.detached = true});
    EXPECT_EQ(check.gradient.mark, Mark::fail) << check.gradient.text;
    EXPECT_TRUE(says(check.gradient, "no gradient reaches in.")) << check.gradient.text;
}

TEST(CheckTask, WarnsOfParametersThatNothingDependsOn) {
    const TaskCheck check = checked({.unused = true});
    EXPECT_EQ(check.gradient.mark, Mark::warn) << check.gradient.text;
    EXPECT_TRUE(says(check.gradient, "does not depend on 2 of 6 parameters, such as spare.weight"))
        << check.gradient.text;
}

TEST(CheckTask, WarnsOfALossThatIsConstant) {
    const TaskCheck check = checked({.zero_loss = true});
    EXPECT_EQ(check.gradient.mark, Mark::warn) << check.gradient.text;
    EXPECT_TRUE(says(check.gradient, "the gradient is zero in every parameter")) << check.gradient.text;
    EXPECT_EQ(check.learning.mark, Mark::warn) << check.learning.text;
    EXPECT_TRUE(says(check.learning, "is 0 before anything is learned")) << check.learning.text;
}

TEST(CheckTask, TellsALossWithoutGradientFromOneThatIsNotLearned) {
    const TaskCheck constant = checked({.constant_loss = true});
    EXPECT_EQ(constant.learning.mark, Mark::fail);
    EXPECT_TRUE(says(constant.learning, "is 2.5, and its gradient 0 in every parameter")) << constant.learning.text;
    EXPECT_EQ(constant.gradient.mark, Mark::warn) << constant.gradient.text;

    const TaskCheck loose = checked({.loose_loss = true});
    EXPECT_EQ(loose.learning.mark, Mark::fail);
    EXPECT_TRUE(says(loose.learning, "the loss of 8 samples, 2.5, does not depend on any weight that learns"))
        << loose.learning.text;
    EXPECT_EQ(loose.gradient.text, "the loss does not depend on any parameter");

    const TaskCheck idle = checked({.idle_gradient = true});
    EXPECT_EQ(idle.learning.mark, Mark::fail);
    EXPECT_TRUE(says(idle.learning, "cannot be learned by heart, though there is a gradient")) << idle.learning.text;
}

TEST(CheckTask, SaysInOneLineWhatAnExceptionSaysInSeveral) {
    const TaskCheck check = checked({.throws_lines = true});
    EXPECT_EQ(check.shapes.text, "one line\\nand another");
}

TEST(CheckTask, SaysWhereF64IsNotToBeHad) {
    const TaskCheck check = checked({.needs_f32 = true});
    EXPECT_EQ(check.gradient.mark, Mark::warn);
    EXPECT_TRUE(says(check.gradient, "not checked: the model does not run in f64")) << check.gradient.text;
    EXPECT_EQ(check.mark(), Mark::warn) << all_texts(check);
}

TEST(CheckTask, TellsTheFactorOfALossThatIsASum) {
    const TaskCheck check = checked({.sum_loss = true});
    EXPECT_EQ(check.split.mark, Mark::fail);
    EXPECT_NEAR(check.split.factor, 0.5, 1e-9);
    EXPECT_TRUE(says(check.split, "they give 0.5 of it, so the loss is a sum over samples")) << check.split.text;
    EXPECT_EQ(check.gradient.mark, Mark::pass) << check.gradient.text;
}

TEST(CheckTask, SeesALossThatIsNoMeanOverSamples) {
    const TaskCheck check = checked({.per_batch = true});
    EXPECT_EQ(check.split.mark, Mark::fail);
    EXPECT_TRUE(says(check.split, "they differ by")) << check.split.text;
}

TEST(CheckTask, DoesNotSplitBatchesOfALossThatSaysItIsNoMean) {
    struct Chooses : Clusters {
        using Clusters::Clusters;
        std::string why_loss_is_no_mean() const override { return "it chooses among the whole batch"; }
    };
    const TaskCheck check = check_task(std::make_shared<Chooses>(ClusterFaults{.per_batch = true}), quiet_config());
    EXPECT_EQ(check.split.mark, Mark::warn);
    EXPECT_TRUE(says(check.split, "not checked: it chooses among the whole batch")) << check.split.text;
}

TEST(CheckTask, WarnsOfDataThatTheTaskWarnsOf) {
    struct Low : Clusters {
        using Clusters::Clusters;
        std::vector<Remark> remarks_on_data(const Stopped&) const override {
            return {{"a ceiling of 50% is what the labels allow"}, {"most texts are too small", true}};
        }
    };
    const TaskCheck found = check_task(std::make_shared<Low>(ClusterFaults{}), quiet_config());
    EXPECT_EQ(found.find("test").mark, Mark::warn);
    EXPECT_TRUE(says(found.find("test"), "; most texts are too small")) << found.find("test").text;
    EXPECT_FALSE(says(found.find("test"), "ceiling"));
    EXPECT_EQ(found.find("train").mark, Mark::pass);
}

TEST(CheckTask, SeesAModelThatCannotLearn) {
    const TaskCheck check = checked({.frozen = true});
    EXPECT_EQ(check.learning.mark, Mark::fail) << check.learning.text;
    EXPECT_EQ(check.gradient.mark, Mark::fail);
    EXPECT_TRUE(says(check.gradient, "no parameter learns")) << check.gradient.text;
}

TEST(CheckTask, SaysWhereRandomnessHasNoSeed) {
    const auto differs = [](const ClusterFaults& faults) {
        const TaskCheck check = checked(faults);
        EXPECT_EQ(check.seed.mark, Mark::fail) << all_texts(check);
        return check.seed.differs;
    };
    EXPECT_EQ(differs({.random_weights = true}), "the initial weights (in.weight)");
    EXPECT_EQ(differs({.random_data = true}), "the first batch (x)");
    EXPECT_TRUE(differs({.random_loss = true}).starts_with("the loss of step 1"));
}

TEST(CheckTask, SeesStateThatCheckpointsDoNotHold) {
    const TaskCheck check = checked({.hidden_counter = true});
    EXPECT_EQ(check.seed.mark, Mark::pass) << check.seed.text;
    EXPECT_EQ(check.resume.mark, Mark::fail) << check.resume.text;
    EXPECT_TRUE(check.resume.differs.starts_with("model.") || check.resume.differs.starts_with("optimizer."))
        << check.resume.text;
}

TEST(CheckTask, ReadsNoMoreSamplesThanItMayAndSaysSo) {
    CheckOptions options;
    options.samples = 10;
    const TaskCheck check = check_task(std::make_shared<Clusters>(), quiet_config(), options);
    EXPECT_EQ(check.data[0].read, 10);
    EXPECT_TRUE(says(check.data[0], "64 samples (10 of them read)")) << check.data[0].text;
}

TEST(CheckTask, LeavesTheCallersRandomNumbersAlone) {
    const RngState before{123, 45};
    default_generator().set_state(before);
    checked({});
    EXPECT_EQ(default_generator().state(), before);
}

}  // namespace
}  // namespace invar
