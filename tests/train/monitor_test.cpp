#include "invar/train/monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "invar/train/tensor_stats.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

// What a run said, and a weight that it may spoil on the way.
struct Watcher : Stopper {
    using Stopper::Stopper;
    void started(const Setup& setup, const RunFolder&, const Progress&) override {
        model = setup.model.get();
        if (large_bias) model->parameters()[3]->value.data<float>()[0] = 50000;
    }
    void step_launched(const Progress& progress, std::int64_t total) override {
        Stopper::step_launched(progress, total);
        if (progress.step == spoil_at) model->parameters()[2]->value.data<float>()[0] = NAN;
    }
    void alerted(const Alert& alert) override { alerts.push_back(alert); }
    std::vector<Alert> of(const std::string& kind) const {
        std::vector<Alert> some;
        for (const Alert& alert : alerts)
            if (alert.kind == kind) some.push_back(alert);
        return some;
    }
    std::vector<Alert> alerts;
    std::int64_t spoil_at = -1;
    bool large_bias = false;
    Module* model = nullptr;
};

Config watched_config(const fs::path& output) {
    Config config = small_config(output);
    config.model.as<MlpOptions>().hidden = {12, 9};
    config.monitor.gradients_every_n_steps = 1;
    config.monitor.parameters_every_n_steps = 1;
    config.monitor.activations_every_n_steps = 1;
    config.monitor.memory_every_n_steps = 4;
    config.monitor.throughput_every_n_steps = 5;
    return config;
}

TEST(Alerts, AreNewsOnceAndAgainAfterAWhileOfCalm) {
    Alerts alerts(3);
    EXPECT_TRUE(alerts.raise("large", "fc1"));
    EXPECT_FALSE(alerts.raise("large", "fc1"));
    EXPECT_TRUE(alerts.raise("large", "fc2")) << "another module";
    EXPECT_TRUE(alerts.raise("small", "fc1")) << "another kind";
    alerts.clear("large", "fc1"), alerts.clear("large", "fc1");
    EXPECT_FALSE(alerts.raise("large", "fc1")) << "not calm for long enough";
    for (int i = 0; i < 3; ++i) alerts.clear("large", "fc1");
    EXPECT_TRUE(alerts.raise("large", "fc1"));
    for (int i = 0; i < 5; ++i) alerts.clear("large", "fc1");
    EXPECT_FALSE(alerts.raise("large", "fc1")) << "the second time it takes twice the calm";
    for (int i = 0; i < 6; ++i) alerts.clear("large", "fc1");
    EXPECT_FALSE(alerts.raise("large", "fc2")) << "the calm of one module is not another's";
    Alerts resumed(3);
    resumed.restore(alerts.state());
    EXPECT_TRUE(resumed.raise("large", "fc1"));
    EXPECT_FALSE(resumed.raise("large", "fc2"));
}

// They stand in every checkpoint, and two runs that say the same have the same ones.
TEST(Alerts, RememberNothingOfLooksThatFindNothingNew) {
    Alerts alerts(3);
    alerts.raise("large", "fc1");
    alerts.clear("large", "fc2");
    for (int i = 0; i < 3; ++i) alerts.clear("large", "fc1");
    const nlohmann::json calm = alerts.state();
    EXPECT_EQ(calm, (nlohmann::json{{"large fc1", {1, 3, false}}}));
    for (int i = 0; i < 9; ++i) alerts.clear("large", "fc1"), alerts.clear("small", "fc1");
    EXPECT_EQ(alerts.state(), calm);
}

// Memory that others have used before.
TEST(TensorStats, HaveFoundNothingWhereNothingWasMeasured) {
    for (int round = 0; round < 3; ++round) {
        TensorStats stats(Device::cpu(), 3);
        for (std::size_t i = 0; i < stats.room(); ++i) {
            EXPECT_EQ(stats[i].first_nonfinite, -1) << i;
            EXPECT_EQ(stats[i].bad_rank, -1) << i;
            EXPECT_EQ(stats[i].nonfinite, 0) << i;
            stats.measure(i, Tensor::from<float>({NAN, 1}, {2}));
            EXPECT_EQ(stats[i].nonfinite, 1) << i;
        }
    }
}

TEST(Monitor, NormsByModuleAddUpToTheNormOfAllWhateverTheScale) {
    const ScratchFolder scratch;
    for (const char* precision : {"32-true", "16-mixed", "bf16-true"}) {
        Config config = watched_config(scratch.path());
        config.trainer.precision = precision;
        config.scaler.init_scale = 1024;
        Watcher watcher;
        const RunSummary run = train(config, watcher);
        const auto lines = lines_with(run.folder, "grad_norms");
        ASSERT_EQ(lines.size(), 20u) << precision;
        for (std::size_t i = 0; i < lines.size(); ++i) {
            double squares = 0.0;
            for (const char* module : {"1", "4", "7"}) {
                const double norm = number_of(lines[i].at("grad_norms").at(module));
                EXPECT_GT(norm, 0.0);
                squares += norm * norm;
            }
            EXPECT_NEAR(std::sqrt(squares), watcher.steps[i].grad_norm, 1e-4 * std::sqrt(squares)) << precision;
        }
    }
}

TEST(Monitor, EachWatchKeepsItsInterval) {
    const ScratchFolder scratch;
    Config config = watched_config(scratch.path());
    config.monitor.gradients_every_n_steps = 3;
    config.monitor.activations_every_n_steps = 10;
    Watcher watcher;
    const fs::path run = train(config, watcher).folder;
    EXPECT_EQ(lines_with(run, "grad_norms").size(), 6u);
    EXPECT_EQ(lines_with(run, "activations").size(), 2u);
    EXPECT_EQ(lines_with(run, "live_bytes").size(), 5u);
    EXPECT_EQ(lines_with(run, "step_ms").size(), 4u);
    EXPECT_TRUE(watcher.alerts.empty()) << watcher.alerts.front().message;
    config.monitor.enabled = false;
    const fs::path blind = train(config, watcher).folder;
    for (const char* key : {"grad_norms", "activations", "live_bytes", "step_ms"})
        EXPECT_TRUE(lines_with(blind, key).empty()) << key;
}

TEST(Monitor, AlertsGoOnceToConsoleMetricsAndEvents) {
    const ScratchFolder scratch;
    Config config = watched_config(scratch.path());
    config.logger.tensorboard = true;
    config.monitor.grad_norm_high = 1e-3;
    Watcher watcher;
    const RunSummary run = train(config, watcher);
    const auto told = watcher.of("gradient_large");
    ASSERT_EQ(told.size(), 4u);  // the whole model and three modules, once each
    EXPECT_EQ(told[0].step, 1);
    EXPECT_EQ(lines_with(run.folder, "alert").size(), 4u);
    EXPECT_EQ(run.alerts, 4);
    std::string events;
    for (const auto& [name, bytes] : all_files(run.folder))
        if (name.starts_with("events")) events += bytes;
    std::size_t times = 0;
    for (std::size_t at = 0; (at = events.find("alerts/gradient_large/4", at)) != std::string::npos; ++at) ++times;
    EXPECT_EQ(times, 1u);
    EXPECT_NE(events.find("grad_norms/4"), std::string::npos);
    EXPECT_NE(events.find("activations/4"), std::string::npos);
}

TEST(Monitor, WarnsOfGradientsThatVanish) {
    const ScratchFolder scratch;
    Config config = watched_config(scratch.path());
    config.monitor.grad_norm_low = 1e3;
    Watcher watcher;
    const fs::path run = train(config, watcher).folder;
    const auto lines = lines_with(run, "small_grad_norms");
    ASSERT_EQ(lines.size(), 20u);
    for (const char* parameter : {"1.weight", "1.bias", "4.weight", "4.bias", "7.weight", "7.bias"})
        EXPECT_GT(number_of(lines[0].at("small_grad_norms").at(parameter)), 0.0) << parameter;
    const auto told = watcher.of("gradient_small");
    ASSERT_EQ(told.size(), 4u);
    for (const Alert& alert : told) EXPECT_NE(alert.message.find("below 1000"), std::string::npos) << alert.message;
}

TEST(Monitor, HasNothingToSayOfAModuleThatIsFrozen) {
    const ScratchFolder scratch;
    Trainer trainer(watched_config(scratch.path()));
    const std::vector<Parameter*> all = trainer.setup().model->parameters();
    for (Parameter* parameter : {all[0], all[1]}) parameter->value.set_requires_grad(false);
    Watcher watcher;
    const RunSummary summary = trainer.fit(watcher);
    const std::string frozen = module_of(all[0]->name);
    EXPECT_TRUE(watcher.of("gradient_small").empty());
    const std::vector<nlohmann::json> lines = lines_with(summary.folder, "grad_norms");
    ASSERT_FALSE(lines.empty());
    EXPECT_FALSE(lines[0].at("grad_norms").contains(frozen)) << frozen;
    EXPECT_EQ(lines[0].at("grad_norms").size(), 2u);
    EXPECT_TRUE(lines_with(summary.folder, "small_grad_norms").empty());
}

TEST(Monitor, NamesTheParameterAndTheGradientsThatAreNotFinite) {
    const ScratchFolder scratch;
    Watcher watcher;
    watcher.spoil_at = 6;
    train(watched_config(scratch.path()), watcher);
    const auto parameters = watcher.of("parameter_nonfinite");
    ASSERT_EQ(parameters.size(), 1u);
    EXPECT_EQ(parameters[0].where, "4.weight");
    EXPECT_EQ(parameters[0].step, 7);
    EXPECT_EQ(parameters[0].value, 1);
    const auto skipped = watcher.of("skipped_step");
    ASSERT_EQ(skipped.size(), 1u) << "one alert for fourteen skipped steps";
    EXPECT_NE(skipped[0].message.find("NaN or Inf in 1.weight, 1.bias, 4.weight, 4.bias and 2 more"), std::string::npos)
        << skipped[0].message;
    EXPECT_EQ(watcher.of("activation_nonfinite").front().where, "4");
}

TEST(Monitor, WarnsOfActivationsCloseToTheEndOfFp16AndOnlyThere) {
    const ScratchFolder scratch;
    for (const char* precision : {"16-mixed", "bf16-mixed"}) {
        Config config = watched_config(scratch.path());
        config.trainer.precision = precision;
        config.trainer.max_steps = 3;
        config.optimizer.lr = 0;
        Watcher watcher;
        watcher.large_bias = true;
        train(config, watcher);
        const auto told = watcher.of("activation_large");
        ASSERT_EQ(told.size(), std::string(precision) == "16-mixed" ? 1u : 0u) << precision;
        for (const Alert& alert : told) EXPECT_EQ(alert.where, "4");
    }
}

TEST(Monitor, DoesNotWarnOfLargeActivationsInModulesKeptInFp32) {
    const ScratchFolder scratch;
    Config config = watched_config(scratch.path());
    config.trainer.precision = "16-mixed";
    config.trainer.precision_overrides = {{"4", "32-true"}};
    config.trainer.max_steps = 3;
    config.optimizer.lr = 0;
    Watcher watcher;
    watcher.large_bias = true;
    train(config, watcher);
    EXPECT_TRUE(watcher.of("activation_large").empty());
}

TEST(Monitor, ChangesNoBitOfTheRun) {
    const ScratchFolder scratch;
    for (const char* precision : {"32-true", "16-mixed"}) {
        Config config = watched_config(scratch.path());
        config.trainer.precision = precision;
        Stopper nobody;
        const Checkpoint seen = load_checkpoint(last_checkpoint(train(config, nobody).folder));
        config.monitor.enabled = false;
        const Checkpoint unseen = load_checkpoint(last_checkpoint(train(config, nobody).folder));
        EXPECT_EQ(seen.state.at("rng"), unseen.state.at("rng"));
        for (const auto& [name, tensor] : seen.tensors)
            EXPECT_EQ(unseen.tensors.at(name).to_vector<float>(), tensor.to_vector<float>()) << name;
    }
}

TEST(Monitor, AResumedRunRepeatsNoAlert) {
    const ScratchFolder scratch;
    Config config = watched_config(scratch.path());
    config.monitor.grad_norm_high = 1e-3;
    Watcher first(5), second;
    const fs::path run = train(config, first).folder;
    EXPECT_EQ(first.of("gradient_large").size(), 4u);
    train(config, second, run);
    EXPECT_TRUE(second.alerts.empty()) << second.alerts.front().message;
    EXPECT_EQ(lines_with(run, "alert").size(), 4u);
    EXPECT_EQ(lines_with(run, "grad_norms").size(), 20u);
}

}  // namespace
}  // namespace invar
