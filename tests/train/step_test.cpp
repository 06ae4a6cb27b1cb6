#include "invar/train/step.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "invar/core/error.h"
#include "invar/data/synthetic.h"
#include "invar/nn/layers.h"
#include "invar/tasks/classification.h"
#include "tests/models/formula.h"
#include "tests/models/image_model.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

ScalerOptions scaler_options(const Precision& precision, double init) {
    ScalerOptions options;
    options.init_scale = init;
    options.spec.enabled = precision.needs_scaler();
    return options;
}

// A model with what it takes to train it.
struct Rig {
    Rig(std::unique_ptr<Module> m, const char* name, OptimizerSpec spec, double scale = 1024)
        : precision(Precision::parse(name)),
          model(std::move(m)),
          optimizer(*model, spec, StoreOptions::for_precision(precision)),
          scaler(scaler_options(precision, scale)) {
        set_threads(1);  // small work: more threads only wait for each other on a busy machine
    }
    double step(const std::vector<Batch>& group, const ClipSpec& clip = {}) {
        return training_step(cross_entropy_loss, *model, optimizer, scaler, precision, clip, group).item();
    }
    Precision precision;
    std::unique_ptr<Module> model;
    Optimizer optimizer;
    GradScaler scaler;
};

std::unique_ptr<Module> formula_model(const ImageModel& options) {
    std::unique_ptr<Module> model = make_image_model(options);
    fill_by_formula(*model);
    return model;
}

ImageModel small_convnet() {
    return {.height = 8, .width = 8, .channels = 1, .dropout = 0};
}

Batch batch_of(std::int64_t size, std::int64_t step, const ImageModel& o) {
    return Batch({{"x", formula_images(size, step, o.height, o.width, o.channels)}, {"y", formula_labels(size, step)}},
                 size);
}

// One batch in parts of the given sizes.
std::vector<Batch> split(const Batch& whole, const std::vector<std::int64_t>& sizes) {
    std::vector<Batch> parts;
    std::int64_t begin = 0;
    for (const std::int64_t size : sizes) {
        parts.push_back(whole.map([&](const Tensor& t) { return ops::slice(t, 0, begin, begin + size); }));
        parts.back().size = size;
        begin += size;
    }
    return parts;
}

// tests/models/golden.py, PyTorch 1.13 in FP32.
constexpr double kLosses[] = {2.34125042, 2.76533055, 2.770648,   2.52147245, 2.39514494, 2.35733795, 2.34167099,
                              2.33166742, 2.33292913, 2.31898046, 2.32985544, 2.351372,   2.30095315, 2.31904674,
                              2.32983899, 2.29420209, 2.3178606,  2.30725527, 2.30742741, 2.29399395};

void expect_losses(const char* precision, double tolerance) {
    const ImageModel options{.dropout = 0};
    OptimizerSpec adam{.kind = OptimizerSpec::Kind::adam};
    Rig rig(formula_model(options), precision, adam);
    for (int step = 0; step < 20; ++step)
        EXPECT_NEAR(rig.step({batch_of(8, step, options)}, {ClipSpec::Kind::norm, 1.0f}), kLosses[step], tolerance)
            << precision << " " << step;
    EXPECT_EQ(rig.optimizer.state().taken, 20);
}

TEST(TrainingStep, FollowsPyTorchsLossesInFp32) {
    expect_losses("32-true", 1e-4);
}
// A loss near 2.3 from logits rounded to the format, and twenty steps of weights that differ by its rounding.
TEST(TrainingStep, FollowsThemInFp16WithinItsRounding) {
    expect_losses("16-mixed", 16 * 0x1p-11);
}
TEST(TrainingStep, FollowsThemInBf16WithinItsRounding) {
    expect_losses("bf16-mixed", 16 * 0x1p-8);
}

double norm_of(const std::vector<float>& values) {
    double squares = 0;
    for (const double v : values) squares += v * v;
    return std::sqrt(squares);
}

// The sums run in another order: some rounding units of FP32. In 16 bits the loss's gradient (1/38 at once, or 1/16
// and then 16/38) may round to the neighbouring number: some units of the format.
TEST(TrainingStep, AccumulatesToTheGradientOfTheLargeBatch) {
    const struct {
        const char* precision;
        double tolerance;
    } cases[] = {{"32-true", 64 * 0x1p-24}, {"16-mixed", 4 * 0x1p-11}, {"bf16-mixed", 4 * 0x1p-8}};
    for (const auto& c : cases)
        for (const ImageModel& options :
             {small_convnet(), ImageModel{.name = "mlp", .height = 5, .width = 4, .channels = 3, .hidden = {48}}})
            for (const std::vector<std::int64_t>& sizes :
                 {std::vector<std::int64_t>{16, 16, 6}, {19, 19}, {16, 16, 5, 1}}) {
                Rig large(formula_model(options), c.precision, sgd_spec(0.0f)),
                    parts(formula_model(options), c.precision, sgd_spec(0.0f));
                const Batch whole = batch_of(38, 0, options);
                const double one = large.step({whole}), sum = parts.step(split(whole, sizes));
                EXPECT_NEAR(one, sum, std::max(1e-6, c.tolerance)) << c.precision;
                const std::vector<float> a = large.optimizer.store().gradients().to_vector<float>();
                std::vector<float> difference = parts.optimizer.store().gradients().to_vector<float>();
                for (std::size_t i = 0; i < a.size(); ++i) difference[i] -= a[i];
                ASSERT_GT(norm_of(a), 0.1);
                EXPECT_LE(norm_of(difference), c.tolerance * norm_of(a))
                    << c.precision << " " << options.name << " " << sizes.size() << " parts";
            }
}

// Spoils one value in one of its calls, as an overflow would: forward, and so backward.
struct Injector : Module {
    Tensor forward(const Tensor& x) override {
        if (calls++ != at) return x;
        std::vector<float> factors(std::size_t(x.numel()), 1.0f);
        factors[factors.size() / 2] = bad;
        return ops::mul(x, Tensor::from(factors, x.shape(), x.dtype()));
    }
    int calls = 0, at = -1;
    float bad = kInf;
};

struct Spoilt : Module {
    static constexpr int kPlaces = 6;
    Spoilt()
        : conv1(add<Conv2d>("conv1", 1, 4, 3)),
          conv2(add<Conv2d>("conv2", 4, 6, 3)),
          fc1(add<Linear>("fc1", 24, 16)),
          fc2(add<Linear>("fc2", 16, 10)) {
        for (int i = 0; i < kPlaces; ++i) inject[i] = &add<Injector>("inject" + std::to_string(i));
    }
    Tensor forward(const Tensor& x) override {
        Tensor y = ops::relu((*inject[1])(conv1((*inject[0])(x))));
        y = (*inject[3])(ops::max_pool2d((*inject[2])(conv2(y)), {.kernel = {2, 2}}));
        y = (*inject[4])(fc1(ops::flatten(y, 1)));
        return (*inject[5])(fc2(ops::relu(y)));
    }
    Conv2d &conv1, &conv2;
    Linear &fc1, &fc2;
    Injector* inject[kPlaces];
};

TEST(Overflow, AtAnyLayerAndAnyMicroBatchLeavesEverythingToTheBit) {
    const ImageModel images = small_convnet();
    for (const char* precision : {"16-mixed", "32-true"})
        for (int place = 0; place < Spoilt::kPlaces; ++place)
            for (int micro_batch = 0; micro_batch < 3; ++micro_batch)
                for (const float bad : {kInf, kNan}) {
                    Rig rig(std::make_unique<Spoilt>(), precision, OptimizerSpec{}, 64);
                    rig.optimizer.set_schedule({.kind = ScheduleSpec::Kind::step, .gamma = 0.5});
                    const std::vector<Batch> group = {batch_of(4, 0, images), batch_of(4, 1, images),
                                                      batch_of(3, 2, images)};
                    rig.step(group);
                    ASSERT_EQ(rig.optimizer.state().taken, 1);
                    Injector& injector = *static_cast<Spoilt&>(*rig.model).inject[place];
                    injector.calls = 0, injector.at = micro_batch, injector.bad = bad;
                    const std::string before = state_bytes(rig.optimizer);
                    const double lr = rig.optimizer.learning_rate();
                    rig.step(group, {ClipSpec::Kind::norm, 1.0f});
                    const std::string where =
                        fmt::format("{} place {} micro-batch {} value {}", precision, place, micro_batch, bad);
                    EXPECT_EQ(state_bytes(rig.optimizer), before) << where;
                    EXPECT_EQ(rig.optimizer.learning_rate(), lr) << where;
                    EXPECT_EQ(rig.optimizer.state().taken, 1) << where;
                    EXPECT_EQ(rig.optimizer.state().skipped, 1) << where;
                    EXPECT_EQ(rig.scaler.get_scale(), rig.scaler.enabled() ? 32 : 1) << where;
                    injector.at = -1;
                    rig.step(group);  // and the next step is a good one
                    EXPECT_EQ(rig.optimizer.state().taken, 2) << where;
                    EXPECT_NE(state_bytes(rig.optimizer), before) << where;
                }
}

// Weights that FP32 holds and FP16 does not: the same step is taken in one and skipped in the other.
TEST(Overflow, OfTheConvNetsOwnWeightsInFp16IsSkippedAtEveryLayer) {
    for (const std::string name : {"conv1", "conv2", "fc1", "fc2"}) {
        const ImageModel options = small_convnet();
        for (const bool half : {true, false}) {
            Rig rig(formula_model(options), half ? "16-mixed" : "32-true", OptimizerSpec{}, 1.0);
            for (const Parameter* parameter : rig.model->parameters())
                if (parameter->name == name + ".bias") parameter->value.data<float>()[1] = 1e6f;
            rig.optimizer.store().refresh_shadow();
            const std::string before = state_bytes(rig.optimizer);
            rig.step({batch_of(4, 0, options)});
            EXPECT_EQ(rig.optimizer.state().skipped, half) << name;
            EXPECT_EQ(state_bytes(rig.optimizer) == before, half) << name;
        }
    }
}

std::int64_t bytes_live(Purpose purpose) {
    return memory_stats({}).live[std::size_t(purpose)];
}

TEST(Memory, AddsUpByPurposeInMixedPrecision) {
    std::int64_t before[kPurposes];
    for (int i = 0; i < kPurposes; ++i) before[i] = bytes_live(Purpose(i));
    Rig rig(make_image_model({}), "16-mixed", OptimizerSpec{});
    const std::int64_t parameters = rig.model->parameter_count();
    const auto expect_per_parameter = [&](Purpose purpose, std::int64_t bytes) {
        const std::int64_t used = bytes_live(purpose) - before[int(purpose)];
        EXPECT_GE(used, bytes * parameters) << name_of(purpose);
        EXPECT_LE(used, bytes * (parameters + 8 * 64) + 8192)
            << name_of(purpose);  // each parameter starts on a line of its own
    };
    expect_per_parameter(Purpose::masters, 4);
    expect_per_parameter(Purpose::weights, 2);
    expect_per_parameter(Purpose::gradients, 4);
    expect_per_parameter(Purpose::optimizer, 8);
}

TEST(Memory, OfActivationsInSixteenBitsIsAtMostThreeFifthsOfFp32s) {
    std::int64_t peak[3];
    int next = 0;
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"}) {
        Rig rig(make_image_model({}), precision, OptimizerSpec{});
        const Batch batch = batch_of(32, 0, {});
        rig.step({batch});
        reset_peak_memory({});
        const std::int64_t before = bytes_live(Purpose::activations);
        rig.step({batch});
        peak[next++] = memory_stats({}).peak_of(Purpose::activations) - before;
    }
    EXPECT_GT(peak[0], 32 * (26 * 26 * 32 + 24 * 24 * 64) * 4);
    EXPECT_LE(double(peak[1]), 0.6 * double(peak[0]));
    EXPECT_LE(double(peak[2]), 0.6 * double(peak[0]));
}

TEST(Evaluate, CountsEverySampleOnceAndLeavesTheModelTraining) {
    const auto set =
        std::make_shared<SyntheticDataset>(SyntheticOptions{.size = 100, .height = 8, .width = 8}, Split::test);
    const Classification task({set, set, [](const DataInfo&) { return std::unique_ptr<Module>(); }});
    Loader loader(set, {.batch_size = 6, .shuffle = false});
    Rig rig(formula_model({.height = 8, .width = 8}), "32-true", OptimizerSpec{});
    const std::string before = state_bytes(rig.optimizer);
    const RngState rng = default_generator().state();
    const Evaluation first = evaluate(task, *rig.model, loader, rig.precision),
                     second = evaluate(task, *rig.model, loader, rig.precision);
    EXPECT_EQ(first.samples, 20);
    EXPECT_EQ(first.loss(), second.loss());
    EXPECT_GT(first.loss(), 0);
    EXPECT_TRUE(rig.model->training());
    EXPECT_EQ(state_bytes(rig.optimizer), before);
    EXPECT_EQ(default_generator().state(), rng);
}

}  // namespace
}  // namespace invar
