#include "invar/train/low_precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "invar/train/setup.h"

namespace invar {

bool is_low(const Precision& precision) {
    return precision.kind == Precision::Kind::tf32 || precision.compute_dtype() != Dtype::f32;
}

std::vector<std::pair<std::string, Precision>> precision_by_module(Module& model, const Precision& run) {
    std::map<std::string, Module*> modules;
    for (const auto& [path, module] : model.modules()) modules[path] = module;
    const auto precision_of = [&](std::string path) {
        while (true) {
            if (const auto& own = modules.at(path)->precision()) return *own;
            if (path.empty()) return run;
            path = module_of(path);  // the one around it
        }
    };
    std::vector<std::pair<std::string, Precision>> all;
    for (const Parameter* parameter : model.parameters()) {
        const std::string path = module_of(parameter->name);
        if (all.empty() || all.back().first != path) all.emplace_back(path, precision_of(path));
    }
    return all;
}

bool computes_low(Module& model, const Precision& run) {
    return std::ranges::any_of(precision_by_module(model, run), [](const auto& each) { return is_low(each.second); });
}

std::string changed_by_level(const TrainerConfig& trainer, const std::string& precision) {
    const std::string name = Precision::parse(precision).name(), trained = trainer.at_level(precision).name();
    if (name == trained) return "";
    return fmt::format("with trainer.amp_level={} it would train as {}", trainer.amp_level, trained);
}

bool computes_low(const Task& task, const Config& config) {
    const TrainerConfig& trainer = config.trainer;
    std::vector<Precision> precisions = {trainer.resolved_precision()};
    for (const PrecisionChange& change : trainer.precision_schedule)
        precisions.push_back(trainer.at_level(change.precision));
    if (trainer.precision_overrides.empty()) return std::ranges::any_of(precisions, is_low);
    const std::unique_ptr<Module> model = task.make_model();
    override_precision(*model, trainer.precision_overrides);
    return std::ranges::any_of(precisions, [&](const Precision& each) { return computes_low(*model, each); });
}

}  // namespace invar
