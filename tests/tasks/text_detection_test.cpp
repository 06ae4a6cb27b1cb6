// Text detection as a task: what a map is judged by, and that DBNet learns it.
#include "invar/tasks/text_detection.h"

#include <gtest/gtest.h>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/data/registry.h"
#include "invar/models/dbnet.h"
#include "invar/ops/ops.h"
#include "invar/optim/optimizer.h"
#include "tests/core/expect_error.h"
#include "tests/tasks/rectangles.h"

namespace invar {
namespace {

// For registered_test.cpp, too.
const RegisterData<RectangleOptions> kRectangles{"rectangles",
                                                 "Bright rectangles in noise.",
                                                 [](const RectangleOptions& o, Split split, std::uint64_t seed) {
                                                     return std::make_shared<Rectangles>(o, split, seed);
                                                 },
                                                 {key("size", &RectangleOptions::size, within(1, 1000), "Images.")}};

Batch some_images(std::int64_t count) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < count; ++i) indices.push_back(i);
    return Rectangles({}, Split::train, 1).read(indices);
}

TextDetection task_for(const DbNetOptions& options = {.layers = 18, .width = 8, .inner = 16}) {
    const auto data = std::make_shared<Rectangles>(RectangleOptions{}, Split::train, 1);
    return TextDetection(TaskParts(data, data, [options](const DataInfo& info) { return make_dbnet(options, info); }));
}

// Gives a map that was made beforehand.
class Oracle : public Module {
  public:
    explicit Oracle(Tensor probabilities) : logits_(20.0 * probabilities - 10.0) {}
    Tensors forward(const Tensors&) override { return {logits_, ops::zeros_like(logits_)}; }

  private:
    Tensor logits_;
};

std::vector<Measured> judged(const Tensor& probabilities, const Batch& batch) {
    const TextDetection task = task_for();
    Oracle oracle(probabilities);
    MetricSums sums(task.metrics());
    sums.add(task.measure(oracle, batch));
    return sums.values();
}

TEST(TextDetection, FindsEveryTextInPerfectMaps) {
    const Batch batch = some_images(8);
    const std::vector<Measured> values = judged(batch["shrink"], batch);
    ASSERT_EQ(values.size(), 4u);
    EXPECT_EQ(values[0].metric.name, "loss");
    EXPECT_EQ(values[1].metric.name, "hmean");
    EXPECT_EQ(values[2].metric.name, "precision");
    EXPECT_EQ(values[3].metric.name, "recall");
    for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(values[i].value, 1) << values[i].metric.name;
}

TEST(TextDetection, FindsNothingInEmptyMaps) {
    const Batch batch = some_images(2);
    for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(judged(ops::zeros_like(batch["shrink"]), batch)[i].value, 0);
}

// The first of two texts is there in each of four images; beside it, in one image, a box where no text is.
TEST(TextDetection, CountsWhatIsMissedAndWhatIsMadeUp) {
    const Batch batch = some_images(4);
    const Tensor map = ops::contiguous(batch["shrink"] * 1.0);
    ops::copy_(map[{Slice{}, Slice{33, {}}, Slice{0, 33}}], Tensor::scalar(0));
    ops::copy_(map[{2, Slice{40, 60}, Slice{40, 60}}], Tensor::scalar(1));
    const std::vector<Measured> values = judged(map, batch);
    EXPECT_DOUBLE_EQ(values[1].value, 2 * 4.0 / (8 + 5));
    EXPECT_DOUBLE_EQ(values[2].value, 4.0 / 5);
    EXPECT_DOUBLE_EQ(values[3].value, 4.0 / 8);
}

// What nobody can read counts neither way: found in the maps or not, the figures are the same.
TEST(TextDetection, PassesOverTextsThatNobodyCaresFor) {
    const Batch batch = some_images(4);
    const Tensor map = ops::contiguous(batch["shrink"] * 1.0);
    for (std::int64_t i = 0; i < 4; ++i) {
        const detect::Bounds box = detect::bounds_of(texts_of(batch)[std::size_t(i)][2].polygon);
        ops::copy_(map[{i, Slice{std::int64_t(box.top) + 3, std::int64_t(box.bottom) - 3},
                        Slice{std::int64_t(box.left) + 3, std::int64_t(box.right) - 3}}],
                   Tensor::scalar(1));
    }
    EXPECT_EQ(judged(map, batch)[1].value, 1);
}

TEST(TextDetection, MeasuresTheLossOfEachImageByItself) {
    set_threads(1);  // small work: more threads only wait for each other on a busy machine
    const TextDetection task = task_for();
    const std::unique_ptr<Module> model = task.make_model();
    model->eval();
    const NoGrad no_grad;
    const Batch batch = some_images(3);
    double alone = 0;
    for (std::int64_t i = 0; i < 3; ++i) {
        Batch one = batch.map([i](const Tensor& x) { return ops::slice(x, 0, i, i + 1); });
        one.size = 1;
        alone += task.loss(*model, one).item();
        EXPECT_EQ(task.measure(*model, one)[1], 1);
    }
    EXPECT_NEAR(task.measure(*model, batch)[0], alone, 1e-4);
}

TEST(TextDetection, IsLearnedByDbNet) {
    set_threads(1);  // small work: more threads only wait for each other on a busy machine
    default_generator().set_state({3, 0});
    const TextDetection task = task_for({.layers = 18, .width = 8, .inner = 64});
    const std::unique_ptr<Module> model = task.make_model();
    Optimizer optimizer(*model, OptimizerSpec{.kind = OptimizerSpec::Kind::adamw, .lr = 6e-3});
    const Batch batch = some_images(8);
    double first = 0, last = 0;
    for (int step = 0; step < 120; ++step) {
        optimizer.zero_grad();
        const Tensor loss = task.loss(*model, batch);
        backward(loss);
        optimizer.step();
        last = loss.item();
        if (step == 0) first = last;
    }
    EXPECT_LT(last, 0.1 * first);
    model->eval();
    const NoGrad no_grad;
    MetricSums sums(task.metrics());
    sums.add(task.measure(*model, batch));
    EXPECT_GT(sums.values()[1].value, 0.8) << "hmean";
}

TEST(TextDetection, SaysThatItsLossIsNoMeanOverSamples) {
    const TextDetection task = task_for();
    const auto model = task.make_model();
    model->eval();
    const Batch batch = some_images(2);
    const auto one = [&](std::int64_t i) {
        return task.loss(*model, batch.map([i](const Tensor& x) { return ops::slice(x, 0, i, i + 1); })).item();
    };
    EXPECT_GT(std::fabs((one(0) + one(1)) / 2 - task.loss(*model, batch).item()), 1e-4);
    EXPECT_NE(task.why_loss_is_no_mean(), "");
}

TEST(TextDetection, RefusesAModelWithoutMaps) {
    const TextDetection task = task_for();
    Linear model(3, 1);
    EXPECT_ERROR(task.loss(model, some_images(1)), UsageError, "such as dbnet; this one has 1 results");
    const std::unique_ptr<Module> dbnet = task.make_model();
    EXPECT_ERROR(task.loss(*dbnet, Batch({{"x", some_images(1)["x"]}}, 1)), Error, "shrink");
}

}  // namespace
}  // namespace invar
