#include "invar/config/config.h"

#include <algorithm>
#include <cmath>

#include "invar/config/table.h"
#include "invar/core/error.h"

namespace invar {
namespace {

// What the files of the named data sets hold.
struct DataFacts {
    std::string_view name;
    std::int64_t size, height, width, channels, classes;
};
constexpr DataFacts kDataFacts[] = {
    {"fashion_mnist", 60000, 28, 28, 1, 10}, {"mnist", 60000, 28, 28, 1, 10},     {"cifar10", 50000, 32, 32, 3, 10},
    {"cifar100", 50000, 32, 32, 3, 100},     {"synthetic", 10000, 28, 28, 1, 10},
};

std::string where(const Origins& origins, const std::string& key) {
    const auto found = origins.find(key);
    return found == origins.end() ? "default" : found->second;
}

void settle_data(DataConfig& data, const Origins& origins) {
    const auto facts = std::find_if(std::begin(kDataFacts), std::end(kDataFacts),
                                    [&](const DataFacts& known) { return known.name == data.name; });
    if (facts == std::end(kDataFacts)) return;
    const auto fill = [&](const std::string& key, std::int64_t& member, std::int64_t fact) {
        if (!origins.contains(key)) member = fact;
        check<UsageError>(
            data.name == "synthetic" || member == fact,
            "{} = {} ({}): {} has {}, and only synthetic can be given another; leave it out, or use data={}", key,
            member, where(origins, key), data.name, fact, data.name);
    };
    fill("data.size", data.size, facts->size);
    fill("data.height", data.height, facts->height);
    fill("data.width", data.width, facts->width);
    fill("data.channels", data.channels, facts->channels);
    fill("data.classes", data.classes, facts->classes);
}

void settle_model(ModelConfig& model, const DataConfig& data, const Origins& origins) {
    if (!origins.contains("model.classes")) model.classes = data.classes;
    check<UsageError>(model.classes >= data.classes,
                      "model.classes = {} ({}): the data has {} classes; use at least that", model.classes,
                      where(origins, "model.classes"), data.classes);
    if (model.name == "mlp" && model.hidden.empty()) model.hidden = {512};
    check<UsageError>(model.name == "mlp" || model.hidden.empty(),
                      "model.hidden ({}): belongs to the mlp, and the model is {}; use model.hidden=[] or model=mlp",
                      where(origins, "model.hidden"), model.name);
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

void check_optimizer(const OptimizerConfig& optimizer, const SchedulerConfig& scheduler, const Origins& origins) {
    check<UsageError>(!optimizer.nesterov || (optimizer.name == "sgd" && optimizer.momentum > 0),
                      "optimizer.nesterov = true ({}): needs optimizer.name=sgd and optimizer.momentum above 0",
                      where(origins, "optimizer.nesterov"));
    check<UsageError>(optimizer.momentum == 0 || optimizer.name == "sgd",
                      "optimizer.momentum = {} ({}): belongs to sgd; {} has optimizer.betas", optimizer.momentum,
                      where(origins, "optimizer.momentum"), optimizer.name);
    check<UsageError>(scheduler.min_lr <= optimizer.lr, "scheduler.min_lr = {} ({}): is above optimizer.lr = {}",
                      scheduler.min_lr, where(origins, "scheduler.min_lr"), optimizer.lr);
}

}  // namespace

std::int64_t BatchCount::among(std::int64_t batches) const {
    if (!is_share) return std::min(count, batches);
    if (share <= 0.0 || batches <= 0) return 0;
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(share * static_cast<double>(batches)), 1, batches);
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

void settle(Config& config, const Origins& origins) {
    settle_data(config.data, origins);
    settle_model(config.model, config.data, origins);
    check_scaler(config.scaler, origins);
    check_optimizer(config.optimizer, config.scheduler, origins);
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
    apply(flatten(parse_yaml(yaml, origin), "", "", origin), config, origins);
    settle(config, origins);
    return config;
}

std::string to_yaml(const Config& config) {
    std::string yaml, section;
    for (const Field& field : config_fields()) {
        if (field.section != section) yaml += field.section + ":\n";
        section = field.section;
        yaml += fmt::format("{}{}: {}\n", section.empty() ? "" : "  ", field.leaf, field.print(config));
    }
    return yaml;
}

std::vector<KeyInfo> config_keys() {
    const Config defaults;
    std::vector<KeyInfo> keys;
    for (const Field& field : config_fields())
        keys.push_back({field.key, field.type, field.print(defaults), field.allowed, field.help, field.aliases});
    return keys;
}

}  // namespace invar
