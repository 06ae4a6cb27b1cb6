#include "invar/config/config.h"

#include <algorithm>
#include <cmath>

#include "invar/config/keys.h"
#include "invar/core/error.h"

namespace invar {
namespace {

std::string where(const Origins& origins, const std::string& key) {
    const auto found = origins.find(key);
    return found == origins.end() ? "default" : found->second;
}

void check_scaler(const ScalerConfig& scaler, const Origins& origins) {
    check<UsageError>(scaler.max_scale == 0 || scaler.min_scale <= scaler.max_scale,
                      "scaler.min_scale = {} ({}): is above scaler.max_scale = {}", scaler.min_scale,
                      where(origins, "scaler.min_scale"), scaler.max_scale);
    check<UsageError>(
        scaler.init_scale >= scaler.min_scale && (scaler.max_scale == 0 || scaler.init_scale <= scaler.max_scale),
        "scaler.init_scale = {} ({}): is not between scaler.min_scale = {} and scaler.max_scale = {}",
        scaler.init_scale, where(origins, "scaler.init_scale"), scaler.min_scale, scaler.max_scale);
}

// Without FP32 masters there is nothing that could be carried over exactly.
void check_schedule(const TrainerConfig& trainer, const Origins& origins) {
    for (const PrecisionChange& change : trainer.precision_schedule)
        check<UsageError>(!change.precision.starts_with("16-true") && !change.precision.starts_with("bf16-true"),
                          "trainer.precision_schedule.{} = {} ({}): keeps no FP32 weights, so that a run cannot change "
                          "to it or from it without losing digits; use 16-mixed or bf16-mixed",
                          change.key(), change.precision, where(origins, "trainer.precision_schedule"));
    const std::string precision = Precision::parse(trainer.precision).name();
    check<UsageError>(trainer.precision_schedule.empty() || !precision.ends_with("16-true"),
                      "trainer.precision = {} ({}): keeps no FP32 weights, so that trainer.precision_schedule has "
                      "nothing to carry over; use 16-mixed or bf16-mixed",
                      precision, where(origins, "trainer.precision"));
}

}  // namespace

std::int64_t BatchCount::among(std::int64_t batches) const {
    if (!is_share) return std::min(count, batches);
    if (share <= 0.0 || batches <= 0) return 0;
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(share * static_cast<double>(batches)), 1, batches);
}

double TrainerConfig::clip_limit() const {
    if (clip_gradients == "false") return 0.0;
    return clip_gradients == "true" && gradient_clip_val == 0 ? 1.0 : gradient_clip_val;
}

Precision TrainerConfig::resolved_precision() const {
    const auto first = [](const PrecisionChange& change) { return change.at == 0; };
    const auto found = std::find_if(precision_schedule.rbegin(), precision_schedule.rend(), first);
    return at_level(found == precision_schedule.rend() ? precision : found->precision);
}

Precision TrainerConfig::at_level(const std::string& name) const {
    const Precision plain = Precision::parse(name);
    return amp_level == "auto" ? plain : plain.with_level(Precision::parse_level(amp_level));
}

Config in_precision(Config config, const std::string& precision) {
    TrainerConfig& trainer = config.trainer;
    trainer.precision = precision;
    trainer.precision_schedule.clear();
    if (Precision::parse(precision) == Precision::parse("32-true"))
        trainer.amp_level = "auto", trainer.precision_overrides.clear();
    return config;
}

void check_together(const Config& config, const Origins& origins) {
    check_scaler(config.scaler, origins);
    check_schedule(config.trainer, origins);
    try {
        config.trainer.resolved_precision();
        for (const PrecisionChange& change : config.trainer.precision_schedule)
            config.trainer.at_level(change.precision);
    } catch (const UsageError& error) {
        fail<UsageError>("trainer.amp_level = {} ({}): {}", config.trainer.amp_level,
                         where(origins, "trainer.amp_level"), error.what());
    }
}

Config parse_config(std::string_view yaml, const std::string& origin) {
    Config config;
    Origins origins;
    std::vector<UnknownKey> unknown;
    const std::vector<Setting> settings = flatten(parse_yaml(yaml, origin), "", "", origin, unknown);
    refuse_unknown(unknown, settings);
    apply(settings, config, origins);
    check_together(config, origins);
    return config;
}

std::string to_yaml(const Config& config) {
    std::string yaml, section;
    for (const Field& field : config_fields()) {
        if (!field.applies(config)) continue;
        if (field.section != section) yaml += field.section + ":\n";
        section = field.section;
        yaml += fmt::format("{}{}: {}\n", section.empty() ? "" : "  ", field.leaf(), field.print(config));
    }
    return yaml;
}

std::vector<KeyInfo> config_keys() {
    std::vector<KeyInfo> keys;
    for (const Field& field : config_fields()) {
        Config defaults;
        if (!field.part.empty()) part_in(defaults, field.section)->choose(field.part);
        const Key& key = field.details;
        keys.push_back({field.key, field.part, key.type, field.print(defaults), key.allowed, key.help, key.aliases});
    }
    return keys;
}

}  // namespace invar
