// Training on the GPU: the optimizer and the scaler against the CPU's, whole runs against each other, resuming.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <tuple>

#include "invar/data/image_set.h"
#include "invar/data/synthetic.h"
#include "invar/io/checkpoint.h"
#include "invar/ops/ops.h"
#include "invar/train/snapshot.h"
#include "invar/train/step.h"
#include "tests/gpu/fixture.h"
#include "tests/io/scratch.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {
namespace {

using TrainedRun = invar::Setup;  // inside a test, Setup is a member of its fixture

constexpr std::int64_t kCount = 1003;

struct Weights : Module {
    Weights() : w(add_parameter("w", Tensor::from(random_values(kCount, -1, 1, 5), {kCount}, Dtype::f32))) {}
    Tensor forward(const Tensor& x) override { return ops::mul(x, w.value); }
    Parameter& w;
};

void set_gradient(Optimizer& optimizer, const std::vector<double>& values) {
    const Tensor& value = optimizer.store().parameters()[0]->value;
    const Tensor grad = value.grad() ? value.grad() : value.grad_to_overwrite();
    const Tensor host = Tensor::from(values, {kCount}, Dtype::f32);
    optimizer.kernels().upload(grad.raw(), host.raw(), host.bytes());
}

std::string state_bytes(Optimizer& optimizer) {
    std::string bytes = bytes_of(optimizer.store().weights());
    if (optimizer.store().shadow()) bytes += bytes_of(optimizer.store().shadow());
    for (const auto& [name, moment] : optimizer.state_dict()) bytes += name + bytes_of(moment);
    return bytes;
}

OptimizerSpec spec_of(OptimizerSpec::Kind kind, double momentum = 0, bool nesterov = false) {
    OptimizerSpec spec;
    spec.kind = kind;
    spec.lr = 0.01;
    spec.weight_decay = 0.1;
    spec.momentum = momentum;
    spec.nesterov = nesterov;
    return spec;
}

TEST_F(Gpu, OptimizersStepAsOnTheCpu) {
    using Kind = OptimizerSpec::Kind;
    for (const OptimizerSpec& spec : {spec_of(Kind::sgd), spec_of(Kind::sgd, 0.9), spec_of(Kind::sgd, 0.9, true),
                                      spec_of(Kind::adam), spec_of(Kind::adamw)})
        for (const StoreOptions& options :
             {StoreOptions{}, StoreOptions{Dtype::f32, Dtype::f16}, StoreOptions{Dtype::f32, Dtype::bf16}})
            for (const ClipSpec& clip :
                 {ClipSpec{}, ClipSpec{ClipSpec::Kind::norm, 1.0f}, ClipSpec{ClipSpec::Kind::value, 0.3f}}) {
                Weights here, there;
                there.to(Device::cuda());
                Optimizer cpu(here, spec, options), gpu(there, spec, options);
                for (int step = 0; step < 5; ++step) {
                    const std::vector<double> gradient = random_values(kCount, -1, 1, 100 + std::uint64_t(step));
                    set_gradient(cpu, gradient), set_gradient(gpu, gradient);
                    cpu.step(clip), gpu.step(clip);
                }
                EXPECT_EQ(gpu.state().taken, 5);
                EXPECT_NEAR(gpu.state().grad_norm, cpu.state().grad_norm, 1e-5 * cpu.state().grad_norm);
                const std::vector<double> expected = here.w.value.to_vector<double>(),
                                          got = there.w.value.to_vector<double>();
                // Five updates of at most a few roundings each.
                for (std::size_t i = 0; i < got.size(); ++i)
                    ASSERT_NEAR(got[i], expected[i], 5e-6) << "kind " << int(spec.kind) << ", weight " << i;
                if (!options.shadow) continue;
                const Tensor rounded = ops::cast(there.w.value.detach(), *options.shadow);
                EXPECT_EQ(bytes_of(there.w.value.shadow()), bytes_of(rounded)) << "the shadow is the rounded master";
            }
}

// More buffers than one launch takes, of sizes that no pack divides.
struct ManyBuffers : Weights {
    ManyBuffers() {
        for (std::int64_t i = 0; i < 150; ++i)
            buffers_.push_back(&add_buffer("b" + std::to_string(i), ops::full({1 + i * 37}, double(i + 1))));
    }
    std::vector<Tensor*> buffers_;
};

TEST_F(Gpu, AveragesWeightsAsOnTheCpu) {
    for (const Dtype weights : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
        ManyBuffers here, there;
        there.to(Device::cuda());
        const OptimizerSpec spec = spec_of(OptimizerSpec::Kind::sgd);
        Optimizer cpu(here, spec, {weights, std::nullopt}), gpu(there, spec, {weights, std::nullopt});
        WeightAverage average(here, cpu, {.decay = 0.9}), same(there, gpu, {.decay = 0.9});
        for (int step = 0; step < 6; ++step) {
            std::vector<double> gradient = random_values(kCount, -1, 1, 100 + std::uint64_t(step));
            if (step == 3) gradient[5] = std::numeric_limits<double>::infinity();
            set_gradient(cpu, gradient), set_gradient(gpu, gradient);
            for (std::size_t i = 0; i < here.buffers_.size(); ++i)
                for (ManyBuffers* model : {&here, &there})
                    kernels_for(model->buffers_[i]->device())
                        .fill(model->buffers_[i]->view(), double(step * 10) + double(i));
            cpu.step(), gpu.step();
            average.update(cpu), same.update(gpu);
        }
        EXPECT_EQ(gpu.state().skipped, 1);
        const StateDict expected = average.state_dict(cpu), got = same.state_dict(gpu);
        EXPECT_EQ(got.size(), 151u);
        // Weights of 16 bits may differ by a rounding of theirs, of which the average has its share.
        const double bound = weights == Dtype::f32 ? 5e-6 : 2e-3;
        for (const auto& [name, tensor] : expected) {
            const std::vector<double> a = tensor.to_vector<double>(), b = got.at(name).to_vector<double>();
            for (std::size_t i = 0; i < a.size(); ++i)
                ASSERT_NEAR(b[i], a[i], bound * (1 + std::fabs(a[i]))) << name_of(weights) << " " << name << " " << i;
        }
    }
}

TEST_F(Gpu, ACurveOfAnyoneMovesTheRateAsOnTheCpu) {
    const ScheduleSpec schedule{.kind = ScheduleSpec::Kind::curve, .warmup_steps = 1, .total_steps = 5};
    const std::vector<double> curve = {1.0, 0.125, 0.75, 0.0};
    Weights here, there;
    there.to(Device::cuda());
    Optimizer cpu(here, spec_of(OptimizerSpec::Kind::sgd)), gpu(there, spec_of(OptimizerSpec::Kind::sgd));
    cpu.set_schedule(schedule, curve), gpu.set_schedule(schedule, curve);
    for (int step = 0; step < 7; ++step) {
        const std::vector<double> gradient = random_values(kCount, -1, 1, 100 + std::uint64_t(step));
        set_gradient(cpu, gradient), set_gradient(gpu, gradient);
        cpu.step(), gpu.step();
        EXPECT_EQ(gpu.state().lr_factor, cpu.state().lr_factor) << step;
        EXPECT_EQ(gpu.state().lr_factor, step == 0 ? 0.5 : curve[std::size_t(std::min(step - 1, 3))]) << step;
    }
}

// More parameters than one launch takes entries for, some of them now and then without a gradient.
struct ManyWeights : Module {
    ManyWeights() {
        for (int i = 0; i < 70; ++i)
            weights.push_back(&add_parameter(
                "w" + std::to_string(i),
                Tensor::from(random_values(3 + i * 7, -1, 1, std::uint64_t(i)), {3 + i * 7}, Dtype::f32)));
    }
    Tensor forward(const Tensor& x) override { return x; }
    std::vector<Parameter*> weights;
};

TEST_F(Gpu, ParametersWithoutAGradientStandStillAsOnTheCpu) {
    using Kind = OptimizerSpec::Kind;
    for (const OptimizerSpec& spec : {spec_of(Kind::sgd, 0.9), spec_of(Kind::adam), spec_of(Kind::adamw)}) {
        ManyWeights here, there;
        there.to(Device::cuda());
        Optimizer cpu(here, spec, {Dtype::f32, Dtype::bf16}), gpu(there, spec, {Dtype::f32, Dtype::bf16});
        for (int step = 0; step < 6; ++step) {
            cpu.zero_grad(), gpu.zero_grad();
            for (std::size_t i = 0; i < here.weights.size(); ++i) {
                if ((int(i) + step) % 3 == 0 && i % 2 == 0) continue;
                const Shape shape = here.weights[i]->value.shape();
                const Tensor gradient = Tensor::from(
                    random_values(shape.numel(), -1, 1, 1000 + i * 7 + std::uint64_t(step)), shape, Dtype::f32);
                here.weights[i]->value.set_grad(gradient);
                there.weights[i]->value.set_grad(ops::to(gradient, Device::cuda()));
            }
            const std::string before = bytes_of(there.weights[0]->value) + bytes_of(there.weights[0]->value.shadow());
            cpu.step(), gpu.step();
            const std::string now = bytes_of(there.weights[0]->value) + bytes_of(there.weights[0]->value.shadow());
            EXPECT_EQ(now == before, step % 3 == 0) << "step " << step;
            EXPECT_NEAR(gpu.state().grad_norm, cpu.state().grad_norm, 1e-5 * cpu.state().grad_norm);
        }
        EXPECT_EQ(gpu.store().missed_steps(), cpu.store().missed_steps());
        EXPECT_EQ(gpu.store().missed_steps()[0], 2);
        const std::vector<double> expected = cpu.store().weights().to_vector<double>(),
                                  got = gpu.store().weights().to_vector<double>();
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 5e-6) << "weight " << i;
    }
}

TEST_F(Gpu, ABadLossAloneSkipsTheStepAndHalvesTheScale) {
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
        for (const bool explicit_calls : {true, false}) {
            Weights model;
            model.to(Device::cuda());
            Optimizer optimizer(model, spec_of(OptimizerSpec::Kind::adamw), {Dtype::f32, Dtype::f16});
            GradScaler scaler({.init_scale = 1024}, Device::cuda());
            const auto step = [&](double constant) {
                optimizer.zero_grad();
                const Tensor loss = ops::sum(model.w.value) + constant;
                if (explicit_calls) {
                    backward(scaler.scale(loss));
                    scaler.step(optimizer);
                    scaler.update();
                } else {
                    scaler.backward(loss);
                    scaler.step_and_update(optimizer);
                }
            };
            const std::string before = state_bytes(optimizer);
            step(bad);
            EXPECT_EQ(state_bytes(optimizer), before);
            EXPECT_EQ(optimizer.state().skipped, 1);
            EXPECT_EQ(optimizer.state().nonfinite, 0);
            EXPECT_TRUE(optimizer.state().bad_loss);
            EXPECT_EQ(scaler.get_scale(), 512);
            step(0);
            EXPECT_EQ(optimizer.state().taken, 1);
            EXPECT_NE(state_bytes(optimizer), before);
        }
}

TEST_F(Gpu, AnOverflowSkipsTheStepAndHalvesTheScale) {
    for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        Weights model;
        model.to(Device::cuda());
        Optimizer optimizer(model, spec_of(OptimizerSpec::Kind::adamw), {Dtype::f32, Dtype::f16});
        GradScaler scaler({.init_scale = 1024}, Device::cuda());
        const auto step = [&](const std::vector<double>& gradient) {
            scaler.scale(ops::sum(model.w.value));
            set_gradient(optimizer, gradient);
            scaler.step(optimizer, {ClipSpec::Kind::norm, 1.0f});
            scaler.update();
        };
        step(std::vector<double>(kCount, 0.5));
        const std::string before = state_bytes(optimizer);
        std::vector<double> overflown(kCount, 0.5);
        overflown[kCount - 1] = bad;
        step(overflown);
        EXPECT_EQ(state_bytes(optimizer), before) << "a skipped step changes nothing";
        EXPECT_EQ(optimizer.state().skipped, 1);
        EXPECT_EQ(scaler.get_scale(), 512);
        step(std::vector<double>(kCount, 0.5));
        EXPECT_NE(state_bytes(optimizer), before);
        EXPECT_EQ(optimizer.state().taken, 2);
        EXPECT_EQ(optimizer.state().skipped_in_a_row, 0);
        EXPECT_EQ(scaler.get_scale(), 512);
    }
}

Config config_for(const std::string& device, const std::string& precision) {
    Config config = parse_config(
        "data: {name: synthetic, size: 640, batch_size: 32, num_workers: 0}\nmodel: {name: convnet}\n"
        "optimizer: {name: adamw, lr: 0.001}\nseed: 3\n",
        "test");
    config.trainer.device = device;
    config.trainer.precision = precision;
    config.trainer.gradient_clip_val = 1.0;
    return config;
}

std::vector<double> train(TrainedRun& setup, int steps) {
    std::vector<double> losses;
    setup.model->train();
    if (setup.train_data->epoch() < 0) setup.train_data->start_epoch(0);
    for (int i = 0; i < steps; ++i) {
        const std::vector<Batch> group{*setup.train_data->next()};
        losses.push_back(
            training_step(setup.loss, *setup.model, *setup.optimizer, *setup.scaler, setup.precision, setup.clip, group)
                .item());
    }
    return losses;
}

// The scale starts far too high: FP16 itself overflows in backward, until the scale has come down to what it holds.
TEST_F(Gpu, AScaleThatOverflowsComesDownAsOnTheCpu) {
    const auto fall = [](const char* device) {
        Config config = config_for(device, "16-mixed");
        config.scaler.init_scale = 0x1p32;
        TrainedRun setup(config);
        std::vector<double> scales;
        for (int i = 0; i < 20; ++i) {
            train(setup, 1);
            scales.push_back(setup.scaler->get_scale());
        }
        EXPECT_GT(setup.optimizer->state().skipped, 4) << device;
        EXPECT_GT(setup.optimizer->state().taken, 0) << device;
        EXPECT_EQ(setup.optimizer->state().skipped_in_a_row, 0) << device;
        EXPECT_TRUE(kernels_for(setup.device).all_finite(setup.optimizer->store().weights().view())) << device;
        return scales;
    };
    EXPECT_EQ(fall("cuda"), fall("cpu"));
}

TEST_F(Gpu, TheExplicitCallsWorkToo) {
    Weights model;
    model.to(Device::cuda());
    Optimizer optimizer(model, spec_of(OptimizerSpec::Kind::sgd));
    GradScaler scaler({.init_scale = 256}, Device::cuda());
    optimizer.zero_grad();
    backward(scaler.scale(ops::sum(model.w.value * 3.0)));
    scaler.unscale(optimizer);
    EXPECT_NEAR(clip_grad_norm(optimizer, 1.0), 3 * std::sqrt(double(kCount)), 1e-3);
    const std::vector<double> gradient = model.w.value.grad().to_vector<double>();
    EXPECT_NEAR(gradient[0], 1 / std::sqrt(double(kCount)), 1e-6);
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(optimizer.state().taken, 1);
}

// Dropout included: both devices draw the same numbers.
TEST_F(Gpu, LosesAsTheCpuDoes) {
    for (const auto& [precision, tolerance] : {std::pair{"32-true", 1e-3}, {"16-mixed", 2e-2}, {"bf16-mixed", 5e-2}}) {
        TrainedRun cpu(config_for("cpu", precision));
        const std::vector<double> expected = train(cpu, 20);
        TrainedRun gpu(config_for("cuda", precision));
        const std::vector<double> losses = train(gpu, 20);
        for (std::size_t i = 0; i < losses.size(); ++i)
            EXPECT_NEAR(losses[i], expected[i], tolerance * expected[i]) << precision << ", step " << i;
        EXPECT_LT(losses.back(), losses.front()) << precision;
        const Evaluation here = evaluate(*cpu.task, *cpu.model, *cpu.test_data, cpu.precision),
                         there = evaluate(*gpu.task, *gpu.model, *gpu.test_data, gpu.precision);
        EXPECT_EQ(here.samples, there.samples);
        EXPECT_NEAR(here.loss(), there.loss(), 4 * tolerance * here.loss()) << precision;
    }
}

// From the same weights through the same batches; the paths part by roundings, and the results must not.
TEST_F(Gpu, AnEpochEndsWhereTheCpuEndsIt) {
    const bool real = std::filesystem::exists("/usr/share/datasets/fashion-mnist");
    const auto run = [&](const char* device, const char* precision) {
        Config config = config_for(device, precision);
        config.data.as<SyntheticOptions>().size = 6400;
        config.data.batch_size = 64;
        if (real) {
            config.data.choose("fashion_mnist", ImageOptions{.root = "/usr/share/datasets/fashion-mnist"});
            config.data.batch_size = 128;
        }
        TrainedRun setup(config);
        const std::vector<double> losses = train(setup, int(setup.steps_per_epoch));
        const Evaluation end = evaluate(*setup.task, *setup.model, *setup.test_data, setup.precision);
        double mean = 0;
        for (const double loss : losses) mean += loss / double(losses.size());
        return std::tuple(mean, end.loss(), end.at("accuracy"));
    };
    RecordProperty("data", real ? "fashion_mnist" : "synthetic: Fashion-MNIST is not installed");
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"}) {
        const auto [mean, loss, accuracy] = run("cuda", precision);
        const auto [cpu_mean, cpu_loss, cpu_accuracy] = run("cpu", precision);
        EXPECT_NEAR(mean, cpu_mean, 0.02 * cpu_mean) << precision;
        EXPECT_NEAR(loss, cpu_loss, 0.05 * cpu_loss + 0.01) << precision;
        EXPECT_NEAR(accuracy, cpu_accuracy, 0.015) << precision;
    }
}

TEST_F(Gpu, GivesTheSameBytesTwice) {
    std::string first;
    for (int run = 0; run < 2; ++run) {
        TrainedRun setup(config_for("cuda", "16-mixed"));
        train(setup, 10);
        const std::string bytes = state_bytes(*setup.optimizer);
        if (run == 0)
            first = bytes;
        else
            EXPECT_TRUE(bytes == first);
    }
}

TEST_F(Gpu, ResumesToTheByte) {
    const Scratch folder;
    TrainedRun whole(config_for("cuda", "16-mixed"));
    train(whole, 5);
    save_checkpoint(folder / "half.safetensors", take_snapshot(whole, {5, 0, 5}, ""));
    const std::vector<double> expected = train(whole, 5);

    TrainedRun resumed(config_for("cuda", "16-mixed"));
    const Progress progress = restore_snapshot(resumed, load_checkpoint(folder / "half.safetensors"));
    resumed.train_data->start_epoch(progress.epoch, progress.batch);
    EXPECT_EQ(train(resumed, 5), expected);
    EXPECT_TRUE(state_bytes(*resumed.optimizer) == state_bytes(*whole.optimizer));
    EXPECT_EQ(resumed.scaler->get_scale(), whole.scaler->get_scale());
}

// A checkpoint knows nothing of devices.
TEST_F(Gpu, TakesUpARunThatBeganOnTheCpu) {
    TrainedRun cpu(config_for("cpu", "32-true"));
    train(cpu, 3);
    const Checkpoint checkpoint = take_snapshot(cpu, {3, 0, 3}, "");
    TrainedRun gpu(config_for("cuda", "32-true"));
    restore_snapshot(gpu, checkpoint);
    EXPECT_EQ(bytes_of(gpu.optimizer->store().weights()), bytes_of(cpu.optimizer->store().weights()));
    EXPECT_EQ(gpu.optimizer->state().taken, 3);
}

TEST_F(Gpu, SharesMemoryByPurpose) {
    TrainedRun setup(config_for("cuda", "16-mixed"));
    train(setup, 1);
    const MemoryStats stats = memory_stats(Device::cuda());
    for (const Purpose purpose :
         {Purpose::weights, Purpose::masters, Purpose::gradients, Purpose::optimizer, Purpose::activations})
        EXPECT_GT(stats.peak_of(purpose), 0) << name_of(purpose);
    EXPECT_GE(kernels_for(Device::cuda()).memory_used(), stats.live_total);
}

// Not on the GPU: how a machine without one is told.
TEST(NoGpu, IsSaidInOneLine) {
    if (why_no_cuda().empty()) GTEST_SKIP() << "there is a GPU";
    EXPECT_TRUE(resolve_device("auto").is_cpu());
    const std::string text = message_of<UsageError>([] { resolve_device("cuda"); });
    EXPECT_TRUE(has(text, "device 'cuda' is not available: ") && has(text, "use --device cpu")) << text;
    EXPECT_TRUE(has(message_of<UsageError>([] { kernels_for(Device::cuda()); }), "is not available"));
}

}  // namespace
}  // namespace invar::testing
