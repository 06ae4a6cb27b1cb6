#include "invar/train/announcement.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "invar/amp/autocast.h"
#include "invar/nn/module_title.h"
#include "invar/train/low_precision.h"
#include "invar/train/scale_text.h"

namespace invar {

namespace {

// "f16" as people write it.
std::string format_name(Dtype dtype) {
    if (dtype == Dtype::bf16) return "BF16";
    return dtype == Dtype::f16 ? "FP16" : "FP32";
}

// What an op of this class computes in, under this policy, where its inputs are of these dtypes.
Dtype computes_in(const CastPolicy& policy, CastClass cast, std::initializer_list<Dtype> inputs) {
    Tensors tensors;
    for (const Dtype dtype : inputs) tensors.push_back(Tensor::empty({}, dtype));
    return cast_target(policy, cast, tensors).value_or(*inputs.begin());
}

// What products run in under this precision, as people write it.
std::string products_of(const Precision& precision) {
    if (precision.kind == Precision::Kind::tf32) return "TF32";
    return format_name(computes_in(Autocast::policy_of(precision), CastClass::low, {Dtype::f32}));
}

// Modules that do not run as the run does: "1 (Linear), 2 (Linear) in FP32; 5 (Linear) in BF16", "" where there are
// none.
std::string about_modules(Module& model, const std::vector<std::pair<std::string, Precision>>& modules,
                          const Precision& run) {
    std::vector<std::pair<std::string, std::vector<std::string>>> by_format;
    for (const auto& [path, precision] : modules) {
        if (precision == run) continue;
        const std::string format = products_of(precision);
        auto found = std::ranges::find(by_format, format, [](const auto& each) { return each.first; });
        if (found == by_format.end()) found = by_format.insert(found, {format, {}});
        found->second.push_back(module_title(path, model.get_submodule(path)));
    }
    std::vector<std::string> parts;
    for (const auto& [format, paths] : by_format)
        parts.push_back(fmt::format("{} in {}", fmt::join(paths, ", "), format));
    return fmt::format("{}", fmt::join(parts, "; "));
}

std::string title(const Precision& precision, Dtype products) {
    if (precision.kind == Precision::Kind::tf32) return "TF32 (no mixed precision)";
    if (products == Dtype::f32) return "FP32 (no mixed precision)";
    return fmt::format("{} {} (level {})", format_name(products),
                       precision.mixed() ? "mixed precision" : "with weights of 16 bits", name_of(precision.level));
}

std::string about_operations(const Precision& precision, const CastPolicy& policy, Dtype products) {
    if (precision.kind == Precision::Kind::tf32)
        return "matrix products and convolutions in TF32, summed in FP32; everything else in FP32";
    if (products == Dtype::f32) return "every operation in FP32";
    const std::string sensitive = format_name(computes_in(policy, CastClass::fp32, {products}));
    const Dtype arithmetic = computes_in(policy, CastClass::widest, {products, Dtype::f32});
    if (arithmetic == products)
        return fmt::format("everything in {} but losses, norms and exponentials, which are in {}; sums in FP32",
                           format_name(products), sensitive);
    return fmt::format("matrix products and convolutions in {}, summed in FP32; losses, norms and exponentials in {}",
                       format_name(products), sensitive);
}

std::string about_weights(const ParameterStore& store) {
    const Dtype weights = store.dtype();
    if (store.shadow())
        return fmt::format("{} master weights; the {} copy is written by the optimizer", format_name(weights),
                           format_name(store.shadow().dtype()));
    if (weights == Dtype::f32) return "weights in FP32";
    return fmt::format("weights in {} alone, no FP32 masters: updates smaller than their rounding are lost",
                       format_name(weights));
}

std::string about_scaler(const Precision& precision, const GradScaler& scaler) {
    if (scaler.enabled()) {
        const ScalerSpec& spec = scaler.spec();
        if (!spec.dynamic) return fmt::format("loss scale {}, fixed", scale_text(scaler.get_scale()));
        return fmt::format("loss scale {}, times {:g} after {} steps without overflow, times {:g} on overflow",
                           scale_text(scaler.get_scale()), spec.growth_factor, spec.growth_interval,
                           spec.backoff_factor);
    }
    if (precision.needs_scaler()) return "no loss scale (scaler.enabled=false): small FP16 gradients become zero";
    if (precision.kind == Precision::Kind::bf16_mixed || precision.kind == Precision::Kind::bf16_true)
        return "no loss scale: BF16 has the range of FP32";
    if (precision.kind == Precision::Kind::fp16_true)
        return "no loss scale: 16-true trains without one; 16-mixed has it";
    return "no loss scale needed";
}

// What the schedule makes of it: "trainer.precision_schedule: 16-mixed from step 5 on"; "" where it changes nothing.
std::string about_changes(const Setup& setup) {
    std::vector<std::string> parts;
    for (const Setup::Change& change : setup.changes)
        parts.push_back(fmt::format("{} from step {} on", change.precision.name(), change.step + 1));
    return parts.empty() ? "" : fmt::format("trainer.precision_schedule: {}", fmt::join(parts, ", "));
}

}  // namespace

std::vector<std::string> announce_precision(const Setup& setup) {
    const Precision& precision = setup.precision;
    const CastPolicy policy = Autocast::policy_of(precision);
    const Dtype products = computes_in(policy, CastClass::low, {Dtype::f32});
    const auto modules = precision_by_module(*setup.model, precision);
    const std::string others = about_modules(*setup.model, modules, precision);
    const bool low = computes_low(*setup.model, precision);
    std::vector<std::string> lines = {title(precision, products)};
    const std::string later = about_changes(setup);
    if (!later.empty()) lines.front() += ", to begin with";
    if (precision.kind == Precision::Kind::fp32) {
        if (!others.empty())
            lines = {"FP32, with single modules of other precisions",
                     "modules with a precision of their own: " + others};
        if (!later.empty()) lines.push_back(later);
        if (others.empty()) return lines;
        const auto half = [](const auto& each) { return each.second.compute_dtype() == Dtype::f16; };
        if (std::ranges::any_of(modules, half))
            lines.push_back("no loss scale: 32-true has none, and small FP16 gradients become zero");
        return lines;
    }
    if (is_low(precision) && !low)
        lines.push_back("every module with weights in FP32 by trainer.precision_overrides: no product is in " +
                        products_of(precision));
    else
        lines.push_back(about_operations(precision, policy, products));
    if (!others.empty() && low) lines.push_back("but for modules with a precision of their own: " + others);
    if (!later.empty()) lines.push_back(later);
    lines.push_back(about_weights(setup.optimizer->store()));
    lines.push_back(about_scaler(precision, *setup.scaler));
    return lines;
}

std::string announce_average(const Setup& setup) {
    if (!setup.average || setup.test_data->samples_per_epoch() == 0) return "";
    const AverageSpec& spec = setup.average->spec();
    return fmt::format(
        "validations measure the averaged weights (trainer.ema_decay={:g}{}), not those that are trained", spec.decay,
        spec.warmup ? ", trainer.ema_warmup=true" : "");
}

}  // namespace invar
