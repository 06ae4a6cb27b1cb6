// The single checks of a task at their edges: what they read, what they compare, and what their words rest on.
#include "invar/diagnose/check_parts.h"

#include <gtest/gtest.h>

#include "invar/diagnose/check_double.h"
#include "tests/core/expect_error.h"
#include "tests/diagnose/clusters.h"
#include "tests/diagnose/faults.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

constexpr double kAMinute = 60.0;

Config quiet_config() {
    Config config = small_config("unused");
    config.data.batch_size = 16;
    config.data.num_workers = 0;
    return config;
}

bool says(const Checked& check, std::string_view part) {
    return check.text.find(part) != check.text.npos;
}

// One number a sample.
class GivenData final : public Dataset {
  public:
    explicit GivenData(std::vector<float> values) : values_(std::move(values)) {}
    std::string name() const override { return "given"; }
    std::int64_t size() const override { return std::int64_t(values_.size()); }
    DataInfo info() const override { return {{1}, 1}; }
    Batch read(std::span<const std::int64_t> indices) const override {
        const std::int64_t n = std::int64_t(indices.size());
        Batch batch({{"x", Tensor::empty({n, 1})}}, n);
        float* x = batch["x"].data<float>();
        for (const std::int64_t index : indices) *x++ = values_[std::size_t(index)];
        return batch;
    }

  private:
    std::vector<float> values_;
};

// A sound task on other data.
class OnData : public Clusters {
  public:
    explicit OnData(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test = nullptr)
        : train_(std::move(train)), test_(test ? std::move(test) : train_) {}
    std::shared_ptr<const Dataset> data(Split split) const override { return split == Split::train ? train_ : test_; }

  private:
    std::shared_ptr<const Dataset> train_, test_;
};

DataCheck check_values(std::vector<float> values) {
    return check_data(OnData(std::make_shared<GivenData>(std::move(values))), Split::train, 100, kAMinute);
}

TEST(CheckData, TellsTheRangeOfTheNumbersThatAreFinite) {
    for (const std::vector<float>& values : {std::vector<float>{7}, {NAN, 7}}) {
        const TensorSummary one = check_values(values).tensors.at(0);
        EXPECT_EQ(one.min, 7);
        EXPECT_EQ(one.max, 7);
        EXPECT_EQ(one.mean, 7);
    }
    const TensorSummary none = check_values({NAN, INFINITY}).tensors.at(0);
    EXPECT_TRUE(std::isnan(none.min)) << none.min;
    EXPECT_TRUE(std::isnan(none.max)) << none.max;
    EXPECT_EQ(none.not_finite, 2);
}

TEST(CheckData, RefusesDataWithoutSamples) {
    EXPECT_ERROR(check_values({}), Error, "given has no samples");
}

TEST(CheckShapes, DoesNotCallALabelUnseenBeforeAllSamplesAreRead) {
    // Of every 16th sample for training the label is 0, of every sixth for testing 0 or 2.
    const Clusters task;
    std::vector<DataCheck> data;
    for (const Split split : {Split::train, Split::test}) data.push_back(check_data(task, split, 4, kAMinute));
    const ShapeCheck some = check_shapes(task, quiet_config(), data);
    EXPECT_EQ(some.mark, Mark::pass) << some.text;
    data[0].read = data[0].samples;
    const ShapeCheck all = check_shapes(task, quiet_config(), data);
    EXPECT_EQ(all.mark, Mark::warn);
    EXPECT_TRUE(says(all, "y of sample 6 of test is 2, which train does not have")) << all.text;
}

// Points that are all of class 0, but for one.
class OneClassData final : public Dataset {
  public:
    explicit OneClassData(std::int64_t other) : plain_(Split::train, {}), other_(other) {}
    std::string name() const override { return "one class"; }
    std::int64_t size() const override { return plain_.size(); }
    DataInfo info() const override { return {plain_.info().input, 1}; }
    Batch read(std::span<const std::int64_t> indices) const override {
        Batch batch = plain_.read(indices);
        for (std::size_t i = 0; i < indices.size(); ++i)
            batch["y"].data<std::int64_t>()[i] = indices[i] == other_ ? 1 : 0;
        return batch;
    }

  private:
    ClusterData plain_;
    std::int64_t other_;
};

TEST(CheckShapes, HoldsLabelsAgainstALossOfASingleClass) {
    struct OneClass : OnData {
        OneClass() : OnData(std::make_shared<OneClassData>(-1), std::make_shared<OneClassData>(5)) {}
        std::unique_ptr<Module> make_model() const override { return std::make_unique<Linear>(6, 1); }
    } task;
    std::vector<DataCheck> data;
    for (const Split split : {Split::train, Split::test}) data.push_back(check_data(task, split, 100, kAMinute));
    const ShapeCheck check = check_shapes(task, quiet_config(), data);
    EXPECT_EQ(check.classes, 1);
    EXPECT_EQ(check.mark, Mark::fail);
    EXPECT_TRUE(says(check, "y of sample 5 of test is 1, which is none of the 1 classes 0 to 0")) << check.text;
}

TEST(DoubleModel, GivesTheLossThatTheTaskGives) {
    const Clusters task({.constant_loss = true});
    DoubleModel model(task, quiet_config());
    const std::vector<std::int64_t> samples = {0, 1, 2};
    const Batch batch = model.read(Split::train, samples);
    EXPECT_EQ(model.loss({&batch, 1}), 2.5);
    EXPECT_EQ(model.loss(std::vector<Batch>{batch, batch}), 2.5) << "the mean over both";
}

TEST(DoubleModel, TrainsThoughItsMakerLeftItInEvaluation) {
    struct LeftInEvaluation : Clusters {
        std::unique_ptr<Module> make_model() const override {
            std::unique_ptr<Module> model = Clusters::make_model();
            model->eval();
            return model;
        }
    } task;
    EXPECT_TRUE(DoubleModel(task, quiet_config()).module().training());
}

// Two layers side by side, with gradients that are so many times what they should be.
class WrongTwice : public Module {
  public:
    WrongTwice(double first, double second)
        : first_factor_(first),
          second_factor_(second),
          first_(add<Linear>("first", 6, 4, false)),
          second_(add<Linear>("second", 6, 4, false)) {}
    Tensor forward(const Tensor& x) override {
        return steep(first_(x), first_factor_) + steep(second_(x), second_factor_);
    }

  private:
    double first_factor_, second_factor_;
    Linear &first_, &second_;
};

struct WrongGradients : Clusters {
    WrongGradients(double first, double second) : first(first), second(second) {}
    std::unique_ptr<Module> make_model() const override { return std::make_unique<WrongTwice>(first, second); }
    double first, second;
};

TEST(CheckGradient, NamesTheParameterThatIsWrongMost) {
    for (const auto& [first, second] : {std::pair{4.0, 1.01}, {1.01, 4.0}}) {
        const GradientCheck check = check_gradient(WrongGradients(first, second), quiet_config(), kAMinute);
        EXPECT_EQ(check.mark, Mark::fail);
        EXPECT_EQ(check.parameter, first > second ? "first.weight" : "second.weight") << check.text;
        EXPECT_NEAR(check.backward / check.slope, 4.0, 1e-3) << check.text;
    }
}

TEST(CheckGradient, TellsTheDifferenceAsAShareOfTheGradient) {
    Config config = quiet_config();
    config.trainer.freeze = {"second"};
    const GradientCheck twice = check_gradient(WrongGradients(2, 1), config, kAMinute);
    EXPECT_EQ(twice.mark, Mark::fail);
    EXPECT_NEAR(twice.difference, 0.5, 1e-4) << "twice the slope is half of it too much";
}

TEST(CheckGradient, TriesOneDirectionHoweverLittleTimeThereIs) {
    const GradientCheck check = check_gradient(Clusters(), quiet_config(), 0);
    EXPECT_EQ(check.mark, Mark::pass) << check.text;
    EXPECT_EQ(check.directions, 1);
    EXPECT_TRUE(says(check, "agree along 1 random direction to")) << check.text;
}

TEST(CheckSplit, SeesAParameterThatOnlyLargeBatchesUse) {
    struct Choosy : Clusters {
        Choosy() : Clusters({.unused = true}) {}
        Tensor loss(Module& model, const Batch& batch) const override {
            const Tensor loss = Clusters::loss(model, batch);
            const Tensor& spare = model.get_submodule("spare").parameters().front()->value;
            return batch.size < 8 ? loss : loss + ops::mean(spare * spare);
        }
    };
    const SplitCheck check = check_split(Choosy(), quiet_config());
    EXPECT_EQ(check.mark, Mark::fail);
    EXPECT_TRUE(says(check, "batches of 4 and 4 samples do not add up to the gradient of one of 8: they differ by"))
        << check.text;
}

TEST(CheckSplit, TellsAnotherFactorFromThatOfASum) {
    struct Quadratic : Clusters {
        Tensor loss(Module& model, const Batch& batch) const override {
            return Clusters::loss(model, batch) * double(batch.size * batch.size);
        }
    };
    const SplitCheck check = check_split(Quadratic(), quiet_config());
    EXPECT_EQ(check.mark, Mark::fail);
    EXPECT_NEAR(check.factor, 0.25, 1e-9);
    EXPECT_TRUE(says(check, "they give 0.25 of it; the loss must be the mean over a batch's samples")) << check.text;
}

// Two weights whose gradients are (1, 0) of eight samples, (1/4, across) of four and (7/8, 0) of one.
struct GivenGradients : Clusters {
    explicit GivenGradients(double across) : across(across) {}
    struct Model : Module {
        Model() : weights(add_parameter("weights", Tensor::from<float>({1, 1}, {2}))) {}
        Tensor forward(const Tensor& x) override { return x; }
        Parameter& weights;
    };
    std::unique_ptr<Module> make_model() const override { return std::make_unique<Model>(); }
    Tensor loss(Module& model, const Batch& batch) const override {
        const std::vector<double> gradient = batch.size == 8   ? std::vector<double>{1, 0}
                                             : batch.size == 4 ? std::vector<double>{0.25, across}
                                                               : std::vector<double>{0.875, 0};
        return ops::sum(model.parameters().front()->value * Tensor::from(gradient, {2}));
    }
    double across;
};

TEST(CheckSplit, CallsItOneFactorAsFarAsRoundingMayChangeTheRest) {
    // 2^20 roundings of 2^-52 each, of magnitudes that add up to 8 * 7/8 + 1.
    const SplitCheck rounded = check_split(GivenGradients(0x1p-29), quiet_config());
    EXPECT_EQ(rounded.factor, 0.25);
    EXPECT_TRUE(says(rounded, "they give 0.25 of it; ")) << rounded.text;
    const SplitCheck other = check_split(GivenGradients(0x1.001p-29), quiet_config());
    EXPECT_TRUE(says(other, "they differ by 75%; ")) << other.text;
}

TEST(CheckLearning, IsDoneWhenTheLossHasFallenByNineTenths) {
    // Its gradient is that of a loss that can be learned, and its value is given: 10, and from the second step on 1.
    struct Falling : Clusters {
        Tensor loss(Module& model, const Batch& batch) const override {
            const Tensor loss = Clusters::loss(model, batch);
            return loss - loss.detach() + (calls++ == 0 ? 10.0 : 1.0);
        }
        mutable int calls = 0;
    } task;
    const LearningCheck check = check_learning(task, quiet_config(), kAMinute);
    EXPECT_EQ(check.mark, Mark::pass);
    EXPECT_EQ(check.text, "8 samples are learned by heart: the loss fell from 10 to 1 in 6 steps of Adam")
        << "the mean over five steps is 1 with the sixth";
}

}  // namespace
}  // namespace invar
