#include "invar/safety/validate.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/kernels/devices.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kBaseline = "32-true";

double metric_of(const RunSummary& run, const std::string& metric) {
    return metric == "val_loss" ? run.val_loss : run.val_accuracy;
}

// All mistakes that can be seen before the first run are found before the first run.
void check_options(ValidateOptions& options) {
    check<UsageError>(options.metric == "val_accuracy" || options.metric == "val_loss",
                      "--metric {}: not known; use val_accuracy or val_loss", options.metric);
    check<UsageError>(options.seeds >= 1, "--seeds {}: must be at least 1", options.seeds);
    check<UsageError>(options.pass > 0 && options.pass <= options.marginal,
                      "the limits {} (PASS) and {} (MARGINAL) must be above 0 and in this order", options.pass,
                      options.marginal);
    const std::int64_t validated = options.base.trainer.limit_val_batches.among(1);
    check<UsageError>(validated > 0, "trainer.limit_val_batches leaves nothing to validate on; leave it out");
    const Device device = resolve_device(options.base.trainer.device);
    std::vector<std::string> names;
    for (const std::string& candidate : options.candidates) {
        TrainerConfig trainer = options.base.trainer;
        trainer.precision = candidate;
        trainer.resolved_precision().require(device);
        const std::string name = Precision::parse(candidate).name();
        check<UsageError>(name != kBaseline, "--candidates {}: FP32 is the baseline itself; name another precision",
                          candidate);
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    check<UsageError>(!names.empty(), "--candidates is empty; name at least one precision, as in 16-mixed,bf16-mixed");
    options.candidates = std::move(names);
}

fs::path make_validation_folder(const Config& base) {
    make_folders(base.output_dir);
    const fs::path wanted = fs::path(base.output_dir) / base.exp_name;
    fs::path path = wanted;
    std::error_code error;
    // create_directory tells a new folder from an old one, so two validations at once do not share one.
    for (int i = 2; !fs::create_directory(path, error); ++i) {
        check<IoError>(!error || fs::exists(path), "cannot make the folder {}: {}", path.string(), error.message());
        path = wanted.string() + "_" + std::to_string(i);
    }
    return path;
}

Config config_for(const Validation& validation, const std::string& precision, int seed) {
    Config config = validation.options.base;
    const bool baseline = precision == kBaseline;
    config.trainer.precision = precision;
    if (baseline) config.trainer.amp_level = "auto", config.trainer.precision_overrides.clear();
    config.seed += seed;
    config.output_dir = validation.folder.string();
    config.exp_name = baseline ? "fp32" : precision;
    if (validation.options.seeds > 1) config.exp_name += fmt::format("_seed{}", config.seed);
    return config;
}

void run_once(Validation& validation, Arm& arm, int seed, Observer& observer) {
    try {
        Trainer trainer(config_for(validation, arm.precision, seed));
        arm.runs.push_back(trainer.run(observer));
        validation.threads = threads();
    } catch (const UsageError&) {
        throw;
    } catch (const IoError&) {
        throw;
    } catch (const Error& error) {
        arm.failure = error.what();
        return;
    }
    const RunSummary& run = arm.runs.back();
    check(run.status == "finished", "validation stopped in {} at step {}; what there is lies in {}", arm.precision,
          run.steps, validation.folder.string());
    if (!run.all_finite) arm.failure = fmt::format("seed {}: NaN or Inf in the losses or weights", seed);
    if (!std::isfinite(metric_of(run, validation.options.metric)))
        arm.failure = fmt::format("seed {}: {} is not finite", seed, validation.options.metric);
}

}  // namespace

std::string_view name_of(Verdict verdict) {
    constexpr std::string_view kNames[] = {"PASS", "MARGINAL", "FAIL"};
    return kNames[static_cast<int>(verdict)];
}

Verdict judge(double difference, double pass, double marginal) {
    const double size = std::fabs(difference);
    return size < pass ? Verdict::pass : size < marginal ? Verdict::marginal : Verdict::fail;
}

void sum_up(Arm& arm, const std::string& metric) {
    if (arm.runs.empty()) return;
    const double n = double(arm.runs.size());
    const auto mean = [&](auto value) {
        double sum = 0.0;
        for (const RunSummary& run : arm.runs) sum += value(run);
        return sum / n;
    };
    arm.metric = mean([&](const RunSummary& run) { return metric_of(run, metric); });
    arm.val_accuracy = mean([](const RunSummary& run) { return run.val_accuracy; });
    arm.val_loss = mean([](const RunSummary& run) { return run.val_loss; });
    arm.train_loss = mean([](const RunSummary& run) { return run.train_loss; });
    arm.train_seconds = mean([](const RunSummary& run) { return run.train_seconds; });
    arm.samples_per_s = mean([](const RunSummary& run) { return run.samples_per_s; });
    arm.final_scale = arm.runs.back().final_scale;
    arm.max_grad_norm = 0.0, arm.skipped = 0, arm.steps = 0, arm.all_finite = true, arm.memory = {};
    for (const RunSummary& run : arm.runs) {
        arm.max_grad_norm = std::max(arm.max_grad_norm, run.max_grad_norm);
        arm.skipped += run.skipped;
        arm.steps += run.steps;
        arm.all_finite = arm.all_finite && run.all_finite;
        if (run.memory.peak_total >= arm.memory.peak_total) arm.memory = run.memory;
    }
}

void compare(Arm& arm, const Arm& baseline, const ValidateOptions& options) {
    const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0.0; };
    arm.speed_up = ratio(arm.samples_per_s, baseline.samples_per_s);
    arm.grad_norm_ratio = ratio(arm.max_grad_norm, baseline.max_grad_norm);
    arm.difference = baseline.metric == 0 ? 0.0 : (arm.metric - baseline.metric) / std::fabs(baseline.metric);
    if (arm.failed()) {
        arm.verdict = Verdict::fail;
        arm.reason = arm.failure;
        return;
    }
    arm.verdict = judge(arm.difference, options.pass, options.marginal);
    const char* rule = arm.verdict == Verdict::pass       ? "is below {:g}%"
                       : arm.verdict == Verdict::marginal ? "is not below {:g}%"
                                                          : "is not below {1:g}%";
    arm.reason =
        fmt::format("{} differs by {:.2f}% from FP32, which ", options.metric, 100 * std::fabs(arm.difference)) +
        fmt::format(fmt::runtime(rule), 100 * options.pass, 100 * options.marginal);
}

void conclude(Validation& validation) {
    const Arm& baseline = validation.baseline;
    if (baseline.failed()) {
        validation.verdict = Verdict::fail;
        validation.reason = "the FP32 baseline gives nothing to compare with: " + baseline.failure;
        return;
    }
    validation.verdict = Verdict::pass;
    validation.reason.clear();
    for (const Arm& arm : validation.candidates) validation.verdict = std::max(validation.verdict, arm.verdict);
    for (const Arm& arm : validation.candidates) {
        if (arm.verdict != validation.verdict) continue;
        validation.reason += (validation.reason.empty() ? "" : "; ") + arm.precision + ": " + arm.reason;
    }
}

Validation validate(const ValidateOptions& options, Observer& observer) {
    Validation validation;
    validation.options = options;
    check_options(validation.options);
    validation.folder = make_validation_folder(options.base);
    validation.baseline.precision = kBaseline;
    for (const std::string& name : validation.options.candidates) validation.candidates.emplace_back().precision = name;

    // Seed by seed, so that a machine that slows down or warms up in the meantime does so for all precisions alike.
    Arm& baseline = validation.baseline;
    for (int seed = 0; seed < options.seeds && !baseline.failed(); ++seed) {
        run_once(validation, baseline, seed, observer);
        if (!baseline.failed() && metric_of(baseline.runs.back(), options.metric) == 0)
            baseline.failure = fmt::format("its {} is 0; train longer, or compare another --metric", options.metric);
        for (Arm& arm : validation.candidates)
            if (!baseline.failed() && !arm.failed()) run_once(validation, arm, seed, observer);
    }

    sum_up(baseline, options.metric);
    for (Arm& arm : validation.candidates) {
        sum_up(arm, options.metric);
        if (baseline.failed() && !arm.failed()) arm.failure = "not compared: the FP32 baseline failed";
        compare(arm, baseline, options);
    }
    conclude(validation);
    return validation;
}

}  // namespace invar
