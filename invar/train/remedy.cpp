#include "invar/train/remedy.h"

#include <nlohmann/json.hpp>

#include "invar/core/error.h"

namespace invar {

namespace {

constexpr std::string_view kPrecision = "trainer.precision", kOverrides = "trainer.precision_overrides",
                           kInitScale = "scaler.init_scale", kScaling = "scaler.enabled",
                           kLearningRate = "optimizer.lr", kGradientClip = "trainer.gradient_clip_val";

std::string text_of(const PrecisionOverrides& overrides) {
    std::string text;
    for (const auto& [pattern, precision] : overrides)
        text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", pattern, precision);
    return "{" + text + "}";
}

}  // namespace

std::string Remedy::str() const {
    switch (kind) {
        case Kind::precision:
            return fmt::format("{}={}", kPrecision, precision);
        case Kind::precision_overrides:
            return fmt::format("{}={}", kOverrides, text_of(overrides));
        case Kind::init_scale:
            return fmt::format("{}={:.17g}", kInitScale, value);
        case Kind::scaling:
            return fmt::format("{}=true", kScaling);
        case Kind::learning_rate:
            return fmt::format("{}={:g}", kLearningRate, value);
        case Kind::gradient_clip:
            return fmt::format("{}={:g}", kGradientClip, value);
        case Kind::none:
            break;
    }
    return "";
}

Remedy Remedy::parse(const std::string& text) {
    if (text.empty()) return {};
    const std::string key = text.substr(0, text.find('='));
    const Config config = load_config("", {text}, {});
    if (key == kPrecision) return of_precision(config.trainer.precision);
    if (key == kOverrides) return of_overrides(config.trainer.precision_overrides);
    if (key == kInitScale) return of_init_scale(config.scaler.init_scale);
    if (key == kScaling && config.scaler.enabled) return of_scaling();
    if (key == kLearningRate) return of_learning_rate(config.optimizer.lr);
    if (key == kGradientClip) return of_gradient_clip(config.trainer.gradient_clip_val);
    fail("'{}' is no setting that a recovery makes", text);
}

nlohmann::json to_json(const Recovery& r) {
    return {{"failed_at", r.failed_at}, {"back_to", r.back_to},     {"from", r.from}, {"to", r.to},
            {"reason", r.reason},       {"setting", r.remedy.str()}};
}

Recovery recovery_from_json(const nlohmann::json& json) {
    return {json.at("failed_at"), json.at("back_to"), json.at("from"),
            json.at("to"),        json.at("reason"),  Remedy::parse(json.value("setting", ""))};
}

}  // namespace invar
