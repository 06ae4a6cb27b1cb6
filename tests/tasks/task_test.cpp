// What a task promises to everything above it: named tensors, metrics that add up, and no trace of images or labels.
#include "invar/tasks/task.h"

#include <gtest/gtest.h>

#include <cmath>

#include "invar/core/error.h"
#include "invar/data/synthetic.h"
#include "invar/ops/ops.h"
#include "invar/tasks/classification.h"
#include "tests/core/expect_error.h"
#include "tests/tasks/line.h"

namespace invar {
namespace {

Batch two_samples() {
    return Batch({{"image", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3})}, {"box", Tensor::from<float>({7}, {1})}},
                 2);
}

TEST(Batch, FindsItsTensorsByName) {
    const Batch batch = two_samples();
    EXPECT_EQ(batch["image"].numel(), 6);
    EXPECT_TRUE(batch.has("box"));
    EXPECT_FALSE(batch.has("x"));
    EXPECT_ERROR(batch["x"], Error, "the batch has no tensor 'x'; it has image, box");
    EXPECT_ERROR(Batch()["x"], Error, "it has none");
}

TEST(Batch, TakesATensorInTheOldOnesPlace) {
    Batch batch = two_samples();
    batch.set("box", Tensor::from<float>({8}, {1}));
    batch.set("label", Tensor::from<float>({9}, {1}));
    EXPECT_EQ(batch.tensors().size(), 3u);
    EXPECT_EQ(batch["box"].item(), 8);
    EXPECT_EQ(batch["label"].item(), 9);
}

TEST(Batch, CutsOnlyTensorsWithARowForEachSample) {
    const Batch first = two_samples().head(1);
    EXPECT_EQ(first.size, 1);
    EXPECT_EQ(first["image"].to_vector<float>(), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(first["box"].numel(), 1);
    EXPECT_EQ(two_samples().head(9).size, 2) << "there are no more";
}

TEST(Metrics, AddUpOverBatchesOfAnySize) {
    MetricSums sums({Task::mean_loss(), {.name = "accuracy", .print = Metric::Print::percent}});
    sums.add(std::vector<double>{6.0, 3, 1, 3});
    sums.add(std::vector<double>{1.0, 1, 1, 1});
    const std::vector<Measured> values = sums.values();
    EXPECT_EQ(values[0].value, 7.0 / 4) << "a mean over samples, not over batches";
    EXPECT_EQ(values[1].value, 0.5);
    EXPECT_EQ(values[1].metric.str(values[1].value), "50.00%");
    EXPECT_ERROR(sums.add(std::vector<double>{1.0}), Error, "measured by 1 sums, where the task's metrics have 4");
}

TEST(Metrics, OfNothingAreZero) {
    EXPECT_EQ(MetricSums({Task::mean_loss()}).values()[0].value, 0.0);
}

TEST(RegressionTask, ExplainsNothingByTheMeanOverBatchesOfAnySize) {
    const Line line(64);
    Constant mean(line.mean());
    const Regression task = line.task();
    MetricSums sums(task.metrics());
    std::vector<std::int64_t> all(64);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::int64_t(i);
    for (const auto& part : {std::span(all).first(10), std::span(all).subspan(10)})
        sums.add(task.measure(mean, line.data->read(part)));
    EXPECT_EQ(sums.values()[1].metric.name, "r2");
    EXPECT_NEAR(sums.values()[1].value, 0.0, 1e-6);
    EXPECT_NEAR(sums.values()[0].value, line.variance(), 1e-6);
}

TEST(RegressionTask, RefusesAModelOfOtherOutputs) {
    const Line line(8);
    Linear wide(3, 2);
    const std::int64_t one[] = {0};
    EXPECT_ERROR(line.task().loss(wide, line.data->read(one)), Error,
                 "the model's outputs are [1, 2], and y is [1, 1]");
}

TEST(ClassificationTask, KnowsWhatGuessingGives) {
    const std::shared_ptr<const Dataset> set = std::make_shared<SyntheticDataset>(
        SyntheticOptions{.size = 40, .height = 4, .width = 4, .classes = 8}, Split::train);
    const Classification task({set, set, [](const DataInfo& data) {
                                   EXPECT_EQ(data.outputs, 8);
                                   return std::make_unique<Linear>(data.input.numel(), data.outputs);
                               }});
    EXPECT_EQ(task.metrics()[1].chance, 0.125);
    EXPECT_TRUE(task.make_model());
}

TEST(ClassificationTask, CountsLabelsThatAreIgnoredNeitherWay) {
    const Batch batch({{"x", ops::ones({3, 2})}, {"y", Tensor::from<std::int64_t>({0, -100, -100}, {3}, Dtype::i64)}},
                      3);
    const std::shared_ptr<const Dataset> none;
    const Classification task(
        {[&](Split) { return none; }, [](const DataInfo&) { return std::unique_ptr<Module>(); }, DataInfo{{2}, 2}});
    Linear model(2, 2);
    const std::vector<double> sums = task.measure(model, batch);
    EXPECT_EQ(sums[1], 1.0);
    EXPECT_EQ(sums[3], 1.0);
    EXPECT_NEAR(sums[0], task.loss(model, batch).item(), 1e-6) << "the mean of the loss is that of validation";
}

TEST(ClassificationTask, LearnsFromMixedTargetsAndSmoothedLabels) {
    const std::shared_ptr<const Dataset> none;
    const auto loss_of = [&](const Batch& batch, double smoothing) {
        const Classification task(
            {[&](Split) { return none; }, [](const DataInfo&) { return std::unique_ptr<Module>(); }, DataInfo{{2}, 2}},
            {.label_smoothing = smoothing});
        Linear model(2, 2);
        model.load_state_dict({{"weight", Tensor::from<float>({2, 0, 0, 1}, {2, 2})}, {"bias", ops::zeros({2})}});
        return task.loss(model, batch).item();
    };
    const Tensor x = ops::ones({1, 2});
    const auto with_label = [&](std::int64_t label) {
        return Batch({{"x", x}, {"y", Tensor::from<std::int64_t>({label}, {1})}}, 1);
    };
    const double first = loss_of(with_label(0), 0), second = loss_of(with_label(1), 0);
    Batch mixed = with_label(0);
    mixed.set("targets", Tensor::from<float>({0.7f, 0.3f}, {1, 2}));
    EXPECT_NEAR(loss_of(mixed, 0), 0.7 * first + 0.3 * second, 1e-6);
    EXPECT_NEAR(loss_of(with_label(0), 0.2), 0.9 * first + 0.1 * second, 1e-6);
    EXPECT_NEAR(loss_of(mixed, 0.2), 0.66 * first + 0.34 * second, 1e-6);
}

TEST(Metrics, ThatCouldNotBeToldApartOrMeasuredAreRefused) {
    const Metric loss = Task::mean_loss(), fine{.name = "val/h-mean@0.5"};
    MetricSums{{loss, fine}};
    EXPECT_ERROR(MetricSums({}), UsageError, "must be 'loss'");
    EXPECT_ERROR(MetricSums({fine, loss}), UsageError, "must be 'loss'");
    EXPECT_ERROR(MetricSums({loss, loss}), UsageError, "two metrics 'loss'");
    EXPECT_ERROR(MetricSums({loss, {.name = "a\nb"}}), UsageError, "letters, digits");
    EXPECT_ERROR(MetricSums({loss, {.name = "a", .sums = 0}}), UsageError, "at least one sum");
    EXPECT_ERROR(MetricSums({loss, {.name = "a", .sums = 1}}), UsageError, "two for a ratio");
    EXPECT_ERROR(MetricSums({loss, {.name = "a", .value = nullptr}}), UsageError, "a function");
}

// Each number of y varies about its own mean; those means explain nothing.
TEST(RegressionTask, GivesTheMeansOfSeveralNumbersNoCredit) {
    const Tensor y = Tensor::from<float>({101, -99, 99, -101, 102, -98, 98, -102}, {4, 2});
    const Tensor means = Tensor::from<float>({100, -100, 100, -100, 100, -100, 100, -100}, {4, 2});
    const auto r2 = [&](const Tensor& guesses) {
        const std::vector<double> sums = squared_error_sums(guesses, y, 4);
        return explained_variance(2).value(std::span(sums).subspan(2));
    };
    EXPECT_NEAR(r2(means), 0.0, 1e-12);
    EXPECT_EQ(r2(y), 1.0);
}

}  // namespace
}  // namespace invar
