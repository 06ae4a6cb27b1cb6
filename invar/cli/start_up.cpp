#include "invar/cli/start_up.h"

#include <fmt/format.h>

#include <cctype>

#include "invar/cli/console.h"
#include "invar/kernels/kernels.h"

namespace invar {

namespace {

std::string upper(std::string_view text) {
    std::string result(text);
    for (char& c : result) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return result;
}

std::string format_of(const Precision& precision) {
    switch (precision.kind) {
        case Precision::Kind::fp32:
            return "FP32";
        case Precision::Kind::tf32:
            return "TF32";
        case Precision::Kind::fp16_mixed:
        case Precision::Kind::fp16_true:
            return "FP16";
        case Precision::Kind::bf16_mixed:
        case Precision::Kind::bf16_true:
            return "BF16";
        case Precision::Kind::fp8_mixed:
            return "FP8";
    }
    return upper(precision.name());
}

std::string title(const Precision& precision) {
    const std::string format = format_of(precision);
    if (!precision.mixed())
        return format == "FP32" || format == "TF32"
                   ? fmt::format("{} (no mixed precision)", format)
                   : fmt::format("{} throughout (level {})", format, name_of(precision.level));
    if (!precision.autocasts())
        return fmt::format("{} mixed precision switched off (level O0): nothing is cast", format);
    return fmt::format("{} mixed precision (level {})", format, name_of(precision.level));
}

std::string what_is_cast(const Precision& precision) {
    const std::string format = format_of(precision);
    if (precision.level == Level::O0) return "every operation in FP32";
    if (precision.level == Level::O1)
        return fmt::format(
            "matrix products and convolutions in {}, summed in FP32; losses, norms and exponentials in FP32", format);
    if (precision.level == Level::O2)
        return fmt::format("everything in {} but losses, norms and the like; sums in FP32", format);
    return fmt::format("every operation in {}, sums in FP32", format);
}

std::string about_weights(const Precision& precision) {
    const std::string format = format_of(precision);
    if (precision.has_masters())
        return fmt::format("FP32 master weights; the {} copy is written by the optimizer", format);
    if (precision.kind == Precision::Kind::fp16_true || precision.kind == Precision::Kind::bf16_true)
        return fmt::format("weights in {} alone, no FP32 masters: updates smaller than their rounding are lost",
                           format);
    return "weights in FP32";
}

std::string about_scaler(const Precision& precision, const GradScaler& scaler) {
    if (scaler.enabled()) {
        const ScalerSpec& spec = scaler.spec();
        if (!spec.dynamic) return fmt::format("loss scale {:g}, fixed", scaler.get_scale());
        return fmt::format("loss scale {:g}, times {:g} after {} steps without overflow, times {:g} on overflow",
                           scaler.get_scale(), spec.growth_factor, spec.growth_interval, spec.backoff_factor);
    }
    if (precision.needs_scaler()) return "no loss scale (scaler.enabled=false): small FP16 gradients become zero";
    if (precision.kind == Precision::Kind::bf16_mixed || precision.kind == Precision::Kind::bf16_true)
        return "no loss scale: BF16 has the range of FP32";
    if (precision.kind == Precision::Kind::fp16_true)
        return "no loss scale: 16-true trains without one; 16-mixed has it";
    return "no loss scale needed";
}

}  // namespace

std::string amp_lines(const Setup& setup) {
    const Precision& p = setup.precision;
    const std::string tag = paint(Colour::cyan, "[AMP]");
    std::string text = fmt::format("{} Using {}\n", tag, title(p));
    if (p.kind != Precision::Kind::fp32) {
        text += fmt::format("      - {}\n", what_is_cast(p));
        text += fmt::format("      - {}\n", about_weights(p));
        text += fmt::format("      - {}\n", about_scaler(p, *setup.scaler));
    }
    const std::string device =
        setup.device.is_cpu() ? fmt::format("{} thread{}, {}", threads(), threads() == 1 ? "" : "s", cpu_description())
                              : kernels_for(setup.device).description();
    text += fmt::format("      - device {}{}{}", setup.device.str(), device.empty() ? "" : ": ", device);
    return setup.why_on_cpu.empty() ? text : text + fmt::format("\n      - no GPU is used: {}", setup.why_on_cpu);
}

std::string run_lines(Setup& setup, const Config& config) {
    const Loader& data = *setup.train_data;
    std::string text =
        fmt::format("{} with {} parameters on {}: {} samples to train on, {} to validate on\n", config.model.name,
                    human_count(setup.model->parameter_count()), data.dataset().name(),
                    human_count(data.samples_per_epoch()), human_count(setup.test_data->samples_per_epoch()));
    text += fmt::format("batches of {}", data.options().batch_size);
    if (setup.accumulate > 1) text += fmt::format(", {} to a step", setup.accumulate);
    return text + fmt::format("; {} steps, {} an epoch", setup.total_steps, setup.steps_per_epoch);
}

}  // namespace invar
