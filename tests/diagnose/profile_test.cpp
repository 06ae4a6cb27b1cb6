// A profile counts what a step does, under the names that people know, and leaves the step as it is; never how long it
// took.
#include "invar/diagnose/profile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "invar/core/error.h"
#include "invar/train/bench.h"
#include "invar/train/step.h"
#include "tests/core/expect_error.h"
#include "tests/diagnose/clusters.h"
#include "tests/plan/configs.h"

namespace invar {
namespace {

constexpr double kBatch = 16, kIn = 36, kHidden = 8, kOut = 10;

Config mlp(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {
        "data=synthetic", "data.size=64",     "data.height=6",      "data.width=6",      "data.batch_size=16",
        "model=mlp",      "model.hidden=[8]", "data.num_workers=0", "trainer.threads=1", "trainer.device=cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return config_of("", words);
}

Profile profile_of(const Config& config, int steps = 1) {
    ProfileOptions options;
    options.base = config;
    options.steps = steps, options.warmup = 0;
    return run_profile(options);
}

ProfileRow row_of(const Profile& profile, StepPart part, const std::string& op, const std::string& module) {
    for (const ProfileRow& row : profile.rows)
        if (row.part == part && row.op == op && row.module == module) return row;
    ADD_FAILURE() << "no " << name_of(part) << " of " << op << " in '" << module << "'";
    return {};
}

double flops_of(const Profile& profile) {
    double flops = 0;
    for (const ProfileRow& row : profile.rows) flops += row.flops;
    return flops;
}

TEST(Profile, CountsTheArithmeticOfAnMlpAsByHand) {
    const Profile profile = profile_of(mlp(), 2);
    const double first = 2 * kBatch * kIn * kHidden, second = 2 * kBatch * kHidden * kOut;
    EXPECT_EQ(row_of(profile, StepPart::forward, "linear", "1").flops, first);
    EXPECT_EQ(row_of(profile, StepPart::forward, "linear", "3").flops, second);
    EXPECT_EQ(row_of(profile, StepPart::backward, "linear", "1").flops, first) << "nobody wants the images' gradient";
    EXPECT_EQ(row_of(profile, StepPart::backward, "linear", "3").flops, 2 * second);
    EXPECT_EQ(flops_of(profile), 2 * first + 3 * second);
    EXPECT_EQ(profile.samples, 16);
}

TEST(Profile, CountsWhatIsReadAndWrittenByShapeAndDtype) {
    const auto bytes = [](const char* precision, StepPart part, const char* module) {
        return row_of(profile_of(mlp({fmt::format("trainer.precision={}", precision)})), part, "linear", module).bytes;
    };
    const double x = kBatch * kHidden, w = kOut * kHidden, b = kOut, y = kBatch * kOut;
    EXPECT_EQ(bytes("32-true", StepPart::forward, "3"), 4 * (x + w + b + y));
    EXPECT_EQ(bytes("16-mixed", StepPart::forward, "3"), 2 * (x + w + b + y));
    // The gradient of y and what forward saved are read, the gradients of x, w and b written; weights' in FP32.
    EXPECT_EQ(bytes("32-true", StepPart::backward, "3"), 4 * (y + x + w + x + w + b));
    EXPECT_EQ(bytes("16-mixed", StepPart::backward, "3"), 2 * (y + x + w + x) + 4 * (w + b));
}

TEST(Profile, KnowsThatViewsMoveNothing) {
    const Profile profile = profile_of(mlp());
    EXPECT_EQ(row_of(profile, StepPart::forward, "reshape", "0").bytes, 0);
    EXPECT_EQ(row_of(profile, StepPart::forward, "reshape", "0").floor, 0);
}

// A norm, which widens what it reads, views, and a layer whose precision no configuration knows of.
class Varied : public Module {
  public:
    Varied() : in_(add<Linear>("in", 6, 8)), norm_(add<LayerNorm>("norm", 8)), out_(add<Linear>("out", 8, 4)) {
        out_.set_precision(Precision::parse("bf16-mixed"));
    }
    Tensor forward(const Tensor& x) override {
        const Tensor y = norm_(in_(x)), matrix = ops::reshape(y, {x.size(0), 2, 4});
        return out_(ops::reshape(matrix, {x.size(0), 8}));
    }

  private:
    Linear& in_;
    LayerNorm& norm_;
    Linear& out_;
};

struct VariedTask : Clusters {
    std::unique_ptr<Module> make_model() const override { return std::make_unique<Varied>(); }
};

// The operations of one step; no rates are measured for them.
TimedOp recorded(const char* precision, StepPart part, const std::string& op, const std::string& module) {
    Setup setup(std::make_shared<VariedTask>(), mlp({fmt::format("trainer.precision={}", precision)}));
    setup.model->train();
    setup.train_data->start_epoch(0);
    const auto step = step_function(setup);
    OpRecorder recorder(setup.device);
    const WatchScope watch(&recorder);
    recorder.begin_step();
    step(setup.next_group());
    for (const TimedOp& each : recorder.take_ops())
        if (each.part == part && each.op == op && each.module == module) return each;
    ADD_FAILURE() << "no " << name_of(part) << " of " << op << " in '" << module << "'";
    return {};
}

TEST(Profile, KnowsThatGradientsOfViewsMoveNothing) {
    EXPECT_EQ(recorded("32-true", StepPart::backward, "reshape", "").bytes, 0);
    EXPECT_GT(recorded("32-true", StepPart::backward, "layer_norm", "norm").bytes, 0);
}

TEST(Profile, TellsTheDtypeOfANormThatWidensWhatItReads) {
    for (const StepPart part : {StepPart::forward, StepPart::backward}) {
        EXPECT_EQ(recorded("16-mixed", part, "linear", "in").dtype, Dtype::f16) << name_of(part);
        EXPECT_EQ(recorded("16-mixed", part, "layer_norm", "norm").dtype, Dtype::f32) << name_of(part);
    }
}

TEST(Profile, HasNoFloorOfArithmeticWhereNoRateWasMeasured) {
    ProfileOptions options;
    options.base = mlp({"trainer.precision=32-true"});
    options.task = std::make_shared<VariedTask>();
    options.steps = 1, options.warmup = 0;
    const Profile profile = run_profile(options);
    const ProfileRow product = row_of(profile, StepPart::forward, "linear", "out");
    EXPECT_EQ(product.dtype, "bf16");
    EXPECT_EQ(product.flops, 2 * kBatch * 8 * 4);
    EXPECT_EQ(profile.rates.bf16, 0);
    EXPECT_EQ(product.compute, 0);
    EXPECT_EQ(product.floor, product.memory);
}

TEST(Profile, NamesGroupsOfASingleRow) {
    ProfileRow row;
    row.part = StepPart::backward, row.module = "fc", row.op = "linear", row.dtype = "f16";
    row.calls = 2, row.seconds = 3;
    const ProfileRow all = grouped({row}, ProfileBy::all).at(0);
    EXPECT_EQ(all.part, StepPart::backward);
    EXPECT_EQ(all.module + "/" + all.op + "/" + all.dtype, "fc/linear/f16");
    EXPECT_EQ(grouped({row}, ProfileBy::op).at(0).op, "linear");
    EXPECT_EQ(grouped({row}, ProfileBy::module).at(0).module, "fc");
    EXPECT_EQ(grouped({row}, ProfileBy::dtype).at(0).dtype, "f16");
    const std::vector<ProfileRow> two = grouped({row, row}, ProfileBy::module);
    ASSERT_EQ(two.size(), 1u);
    EXPECT_EQ(two[0].calls, 4);
    EXPECT_EQ(two[0].op, "") << "it is not grouped by that";
}

TEST(Profile, TellsItsProgressUntilAllIsDone) {
    ProfileOptions options;
    options.base = mlp();
    options.steps = 2, options.warmup = 1;
    std::vector<double> told;
    run_profile(options, [&](double share) { told.push_back(share); });
    EXPECT_EQ(told, (std::vector<double>{0.2, 0.4, 0.6, 0.8, 1.0})) << "each step once watched and once not";
}

TEST(Profile, HasThePartsOfAStepBesideItsOperations) {
    const Profile profile = profile_of(mlp({"optimizer=adamw", "trainer.precision=16-mixed"}));
    const double elements = row_of(profile, StepPart::update, "grad_stats", "(update)").bytes / 4;
    EXPECT_GE(elements, kIn * kHidden + kHidden + kHidden * kOut + kOut) << "the flat array, with what pads it";
    // Gradient, weight and two moments of 4 bytes are read, all but the gradient written, and a shadow of 2.
    EXPECT_EQ(row_of(profile, StepPart::update, "optimizer_step", "(update)").bytes, (7 * 4 + 2) * elements);
    EXPECT_EQ(row_of(profile, StepPart::loading, "load_batch", "(loading)").dtype, "-");
}

TEST(Profile, TellsTheDtypeThatAnOperationReallyComputesIn) {
    const Profile mixed = profile_of(mlp({"trainer.precision=16-mixed"}));
    for (const StepPart part : {StepPart::forward, StepPart::backward}) {
        EXPECT_EQ(row_of(mixed, part, "linear", "1").dtype, "f16");
        EXPECT_EQ(row_of(mixed, part, "cross_entropy", "loss").dtype, "f32");
    }
    EXPECT_EQ(row_of(profile_of(mlp()), StepPart::forward, "linear", "1").dtype, "f32");
    const Profile pinned =
        profile_of(mlp({"trainer.precision=16-mixed", "trainer.precision_overrides={\"3\": 32-true}"}));
    EXPECT_EQ(row_of(pinned, StepPart::forward, "linear", "1").dtype, "f16");
    EXPECT_EQ(row_of(pinned, StepPart::forward, "linear", "3").dtype, "f32");
}

TEST(Profile, HoldsEachOperationAgainstTheLongerOfItsTwoFloors) {
    const Profile profile = profile_of(mlp());
    const ProfileRow linear = row_of(profile, StepPart::forward, "linear", "1");
    EXPECT_DOUBLE_EQ(linear.compute, linear.flops / profile.rates.fp32);
    EXPECT_DOUBLE_EQ(linear.memory, linear.bytes / profile.rates.copy);
    EXPECT_EQ(linear.floor, std::max(linear.compute, linear.memory));
    EXPECT_EQ(linear.by_compute(), linear.compute > linear.memory);
}

void expect_whole(const Profile& profile) {
    EXPECT_GT(profile.step, 0);
    double own = 0;
    const TimedOp* outer = nullptr;
    for (const TimedOp& op : profile.trace) {
        own += op.own;
        EXPECT_GE(op.start, 0);
        EXPECT_LE(op.own, op.seconds);
        EXPECT_LE(op.start + op.seconds, profile.traced + 1e-9);
        // One thread: an operation begins behind the one before it, or lies inside it.
        if (outer != nullptr && op.start < outer->start + outer->seconds)
            EXPECT_LE(op.start + op.seconds, outer->start + outer->seconds + 1e-9) << op.op << " in " << outer->op;
        else
            outer = &op;
    }
    EXPECT_LE(own, profile.traced + 1e-9);
    double sum = profile.between;
    for (const ProfileRow& row : profile.rows) sum += row.seconds;
    EXPECT_NEAR(sum, profile.total(), 1e-9 * sum);
    for (const ProfileBy by : {ProfileBy::all, ProfileBy::op, ProfileBy::module, ProfileBy::dtype}) {
        double seconds = 0, flops = 0;
        for (const ProfileRow& row : grouped(profile.rows, by)) seconds += row.seconds, flops += row.flops;
        EXPECT_NEAR(seconds, profile.operations(), 1e-12 + 1e-9 * seconds);
        EXPECT_EQ(flops, flops_of(profile));
    }
}

struct Case {
    std::string experiment;
    std::vector<std::string> overrides;
    std::string module, op;  // that it must have
};
void PrintTo(const Case& c, std::ostream* out) {
    *out << c.experiment;
    for (const std::string& word : c.overrides) *out << " " << word;
}

class ProfiledModel : public testing::TestWithParam<Case> {};

TEST_P(ProfiledModel, HasTheArithmeticOfBenchAndTheNamesOfItsModules) {
    std::vector<std::string> words = GetParam().overrides;
    for (const char* more : {"trainer.threads=1", "trainer.device=cpu", "data.num_workers=0"}) words.emplace_back(more);
    const Config config = with_made_up_data(config_of(GetParam().experiment, words));
    const Profile profile = profile_of(config);
    expect_whole(profile);
    (void)row_of(profile, StepPart::forward, GetParam().op, GetParam().module);
    (void)row_of(profile, StepPart::backward, GetParam().op, GetParam().module);
    BenchOptions bench;
    bench.base = config;
    bench.precisions = {config.trainer.resolved_precision().name()};
    bench.steps = 1, bench.warmup = 0;
    EXPECT_EQ(flops_of(profile), run_bench(bench).at(0).flops_per_step);
}

INSTANTIATE_TEST_SUITE_P(
    BuiltIn, ProfiledModel,
    testing::Values(
        Case{"mnist_convnet", {"data.batch_size=8"}, "conv1", "conv2d"},
        Case{"mnist_convnet",
             {"model=lenet", "data.batch_size=8", "trainer.accumulate_grad_batches=2", "trainer.ema_decay=0.9"},
             "conv1",
             "conv2d"},
        Case{"gpt", {"data=chains", "data.batch_size=2", "model.layers=2"}, "h.1.attn", "self_attention"},
        Case{"dbnet_small", {"data.batch_size=2", "data.scenes=4", "data.val_scenes=2"}, "backbone.conv1", "conv2d"}));

// A sum and its norm are one kernel, which two operations stand for: it is timed by itself, and they move nothing.
TEST(Profile, CountsASumAndItsNormOnce) {
    constexpr double kTokens = 2 * 64, kWidth = 48;
    const Profile profile = profile_of(
        config_of("gpt", {"data=chains", "data.batch_size=2", "data.length=64", "model.layers=2", "model.width=48",
                          "trainer.threads=1", "trainer.device=cpu", "trainer.precision=bf16-mixed"}));
    double fused = 0, calls = 0;
    for (const ProfileRow& row : profile.rows) {
        if (row.op == "add_layer_norm") fused += row.bytes, calls += row.calls;
        if (row.op == "residual_sum") {
            EXPECT_EQ(row.bytes, 0) << name_of(row.part);
        }
        if (row.op == "layer_norm" && row.part == StepPart::forward && row.module != "h.0.ln_1") {
            EXPECT_EQ(row.bytes, 0);
        }
    }
    EXPECT_EQ(calls, 4);
    // The stream is read and written in FP32, the branch read and the norm written in BF16.
    EXPECT_EQ(fused, calls * kTokens * kWidth * (4 + 2 + 4 + 2));
}

// Of a table the rows that are asked for: each is read, and its gradient read and written where it is added to.
TEST(Profile, CountsTheRowsOfATableThatAreAskedFor) {
    constexpr double kTokens = 2 * 64, kWidth = 48, kIndex = 8, kRows = kTokens * kWidth * 4;
    const Profile profile = profile_of(config_of(
        "gpt", {"data=chains", "data.batch_size=2", "data.length=64", "data.vocabulary=4096", "model.layers=1",
                "model.width=48", "trainer.threads=1", "trainer.device=cpu", "trainer.precision=32-true"}));
    EXPECT_EQ(row_of(profile, StepPart::forward, "embedding", "wte").bytes, 2 * kRows + kTokens * kIndex);
    EXPECT_EQ(row_of(profile, StepPart::backward, "embedding", "wte").bytes, 3 * kRows + kTokens * kIndex);
}

TEST(Profile, CountsWhatIsRecomputedAsWhatItIs) {
    const std::vector<std::string> words = {"data=chains", "data.batch_size=2", "model.layers=2", "trainer.threads=1",
                                            "trainer.device=cpu"};
    std::vector<std::string> again = words;
    again.emplace_back("trainer.recompute=block");
    const Profile plain = profile_of(config_of("gpt", words)), recomputed = profile_of(config_of("gpt", again));
    expect_whole(recomputed);
    EXPECT_GT(flops_of(recomputed), flops_of(plain));
    bool found = false;
    for (const ProfileRow& row : recomputed.rows) {
        if (row.op != "checkpoint") continue;
        found = true;
        EXPECT_EQ(row.flops, 0) << "its operations have it";
        EXPECT_EQ(row.bytes, 0);
    }
    EXPECT_TRUE(found);
}

// Watched as the profiler watches, or not at all.
std::vector<float> trained(const Config& config, bool watched) {
    Setup setup(config);
    setup.model->train();
    setup.train_data->start_epoch(0);
    const auto step = step_function(setup);
    OpRecorder recorder(setup.device);
    for (int i = 0; i < 3; ++i) {
        const WatchScope watch(watched ? &recorder : nullptr);
        recorder.begin_step();
        step(setup.next_group());
    }
    return setup.optimizer->store().weights().to_vector<float>();
}

TEST(Profile, LeavesTheStepAsItIsToTheBit) {
    const Config residual = with_made_up_data(config_of(
        "cifar10_resnet18", {"data.batch_size=2", "trainer.threads=1", "trainer.device=cpu", "data.num_workers=0"}));
    EXPECT_EQ(trained(residual, true), trained(residual, false));
    for (const char* level : {"none", "light", "block"}) {
        const Config gpt = config_of(
            "gpt", {"data=chains", "data.batch_size=2", "model.layers=2", "trainer.threads=1", "trainer.device=cpu",
                    "trainer.precision=16-mixed", "scaler.init_scale=128", fmt::format("trainer.recompute={}", level)});
        EXPECT_EQ(trained(gpt, true), trained(gpt, false)) << level;
    }
}

TEST(Profile, GoesOnIntoTheNextEpochWithBatchesOfOneSize) {
    EXPECT_EQ(profile_of(mlp({"data.size=40"}), 4).samples, 16);
}

TEST(Profile, RefusesWhatCannotBeMeasured) {
    ProfileOptions options;
    options.base = mlp();
    options.steps = 0;
    EXPECT_ERROR(run_profile(options), UsageError, "--steps 0");
    options.steps = 1, options.warmup = -1;
    EXPECT_ERROR(run_profile(options), UsageError, "--warmup -1");
    EXPECT_ERROR(parse_profile_by("colour"), UsageError, "--by colour: there are all, op, module and dtype");
}

}  // namespace
}  // namespace invar
