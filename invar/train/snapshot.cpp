#include "invar/train/snapshot.h"

#include <algorithm>
#include <set>

#include "invar/core/error.h"
#include "invar/optim/store_pieces.h"

namespace invar {

namespace {

constexpr std::string_view kModel = "model.", kOptimizer = "optimizer.", kAverage = "ema.";

StateDict with_prefix_removed(const TensorMap& tensors, std::string_view prefix) {
    StateDict part;
    for (const auto& [name, tensor] : tensors)
        if (name.starts_with(prefix)) part.emplace(name.substr(prefix.size()), tensor);
    return part;
}

nlohmann::json step_to_json(const StepState& s) {
    return {{"taken", s.taken}, {"skipped", s.skipped}, {"skipped_in_a_row", s.skipped_in_a_row}};
}

nlohmann::json state_of(Setup& setup, const Progress& progress, const std::string& config_yaml) {
    const RngState rng = default_generator().state();
    nlohmann::json state = {
        {"progress", {{"step", progress.step}, {"epoch", progress.epoch}, {"batch", progress.batch}}},
        {"optimizer", step_to_json(setup.optimizer->state())},
        {"scaler", setup.scaler->state_dict()},
        {"rng", {{"seed", rng.seed}, {"offset", rng.offset}}},
        {"precision", setup.precision.name()},
        {"config", config_yaml}};
    if (const DataDescription data = setup.train_data->dataset().description(); !data.empty()) state["data"] = data;
    if (setup.average) state["ema"] = {{"since", setup.average->spec().since}};
    return state;
}

}  // namespace

bool has_average(const Checkpoint& checkpoint) {
    const auto first = checkpoint.tensors.lower_bound(std::string(kAverage));
    return first != checkpoint.tensors.end() && first->first.starts_with(kAverage);
}

std::map<std::string, std::string> model_weight_names(const std::vector<std::string>& in_checkpoint) {
    std::map<std::string, std::string> names;
    std::set<std::string> taken;
    for (const std::string_view prefix : {kAverage, kModel})
        for (const std::string& name : in_checkpoint)
            if (name.starts_with(prefix) && taken.insert(name.substr(prefix.size())).second)
                names.emplace(name, name.substr(prefix.size()));
    return names;
}

StateDict model_weights(const Checkpoint& checkpoint) {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : checkpoint.tensors) all.push_back(name);
    StateDict weights;
    for (const auto& [name, own] : model_weight_names(all)) weights.emplace(own, checkpoint.tensors.at(name));
    return weights;
}

Checkpoint take_snapshot(Setup& setup, const Progress& progress, const std::string& config_yaml) {
    Checkpoint checkpoint;
    for (const auto& [name, tensor] : setup.model->state_dict())
        checkpoint.tensors.emplace(std::string(kModel) + name, tensor);
    for (const auto& [name, tensor] : setup.optimizer->state_dict())
        checkpoint.tensors.emplace(std::string(kOptimizer) + name, tensor);
    if (setup.average)
        for (const auto& [name, tensor] : setup.average->state_dict(*setup.optimizer))
            checkpoint.tensors.emplace(std::string(kAverage) + name, tensor);
    checkpoint.state = state_of(setup, progress, config_yaml);
    return checkpoint;
}

SnapshotParts take_snapshot_parts(Setup& setup, const Progress& progress, const std::string& config_yaml) {
    SnapshotParts snapshot;
    const bool leads = setup.ranks->leads();
    const ParameterStore& store = setup.optimizer->store();
    const auto add = [&](const Tensor& held, const auto& name_of) {
        for (std::size_t i = 0; leads && i < store.parameters().size(); ++i) {
            const Parameter& parameter = *store.parameters()[i];
            snapshot.entries.push_back(
                {name_of(i), held.dtype(), file_shape_of(parameter.value, parameter.layout), 0, 0, {}});
        }
        for (StorePiece& piece : copy_pieces(store, held)) {
            const FileLayout& layout = store.parameters()[piece.parameter]->layout;
            snapshot.parts.push_back(
                {name_of(piece.parameter), std::move(piece.values), piece.from, layout.view, layout.permutation});
        }
    };
    const auto named = [&](std::string_view prefix) {
        return [&, prefix](std::size_t i) { return std::string(prefix) + store.parameters()[i]->name; };
    };
    add(store.own_weights(), named(kModel));
    for (int which = 0; which < store.moments(); ++which)
        add(store.held_moment(which),
            [&](std::size_t i) { return std::string(kOptimizer) + setup.optimizer->moment_name(which, i); });
    if (setup.average) add(setup.average->weights(), named(kAverage));
    if (!leads) return snapshot;
    const auto add_whole = [&](std::string_view prefix, const StateDict& tensors) {
        for (const auto& [name, tensor] : tensors) {
            snapshot.entries.push_back({std::string(prefix) + name, tensor.dtype(), tensor.shape(), 0, 0, {}});
            snapshot.parts.push_back({std::string(prefix) + name, tensor});
        }
    };
    StateDict others;
    for (const auto& [name, buffer] : setup.model->buffers()) others.emplace(name, to_file(*buffer, {}));
    for (const Parameter* parameter : setup.model->parameters())
        if (std::ranges::find(store.parameters(), parameter) == store.parameters().end())
            others.emplace(parameter->name, parameter->to_file());
    add_whole(kModel, others);
    add_whole(kOptimizer, setup.optimizer->missed_dict());
    if (setup.average) add_whole(kAverage, setup.average->buffer_dict());
    snapshot.state = state_of(setup, progress, config_yaml);
    return snapshot;
}

// What only one of them says cannot be compared: rows kept to validate on, say, where these are in a file of their own.
void check_same_data(const Checkpoint& checkpoint, const Dataset& now, const std::string& file) {
    const auto then = checkpoint.state.find("data");
    if (then == checkpoint.state.end() || !then->is_object()) return;
    for (const auto& [name, is] : now.description()) {
        const auto was = then->find(name);
        if (was == then->end() || *was == is) continue;
        fail<UsageError>("{}: it was trained on other data than {}: {} was {}, and is {}", file, now.name(), name,
                         was->is_string() ? was->get<std::string>() : was->dump(), is);
    }
}

namespace {

// What no run can have counted: such a file was changed by something else, whatever its checksums say.
void check_counts(const Progress& progress, const StepState& steps) {
    constexpr std::int64_t kMost = std::int64_t(1) << 53;
    for (const std::int64_t count : {progress.step, progress.epoch, progress.batch, std::int64_t(steps.taken),
                                     std::int64_t(steps.skipped), std::int64_t(steps.skipped_in_a_row)})
        check(count >= 0 && count <= kMost, "it holds a count of {}", count);
    check(steps.skipped_in_a_row <= steps.skipped, "it has skipped {} steps, and {} of them in a row", steps.skipped,
          steps.skipped_in_a_row);
}

}  // namespace

Progress restore_snapshot(Setup& setup, const Checkpoint& checkpoint) {
    try {
        const nlohmann::json& state = checkpoint.state;
        Progress progress;
        progress.step = state.at("progress").at("step");
        progress.epoch = state.at("progress").at("epoch");
        progress.batch = state.at("progress").at("batch");
        StepState steps;
        steps.taken = state.at("optimizer").at("taken");
        steps.skipped = state.at("optimizer").at("skipped");
        steps.skipped_in_a_row = state.at("optimizer").at("skipped_in_a_row");
        const RngState rng{state.at("rng").at("seed"), state.at("rng").at("offset")};
        const auto scaler = state.at("scaler").get<std::map<std::string, double>>();
        check_counts(progress, steps);

        if (!scaler.empty()) GradScaler().load_state_dict(scaler);  // throws before anything has changed
        setup.optimizer->check_state_dict(with_prefix_removed(checkpoint.tensors, kOptimizer));
        const bool averaged = setup.average && has_average(checkpoint);
        const StateDict average = averaged ? with_prefix_removed(checkpoint.tensors, kAverage) : StateDict{};
        const std::int64_t averaged_since = averaged ? state.at("ema").at("since").get<std::int64_t>() : steps.taken;
        if (averaged) setup.average->check_state_dict(*setup.optimizer, average);
        setup.model->load_state_dict(with_prefix_removed(checkpoint.tensors, kModel));
        setup.optimizer->load_state_dict(with_prefix_removed(checkpoint.tensors, kOptimizer));
        setup.optimizer->set_state(steps);
        if (averaged) setup.average->load_state_dict(*setup.optimizer, average, averaged_since);
        if (setup.average && !averaged) setup.average->restart(*setup.optimizer, averaged_since);
        if (!scaler.empty())
            setup.scaler->load_state_dict(scaler);  // empty: the run so far had none, this one starts afresh
        default_generator().set_state(rng);
        return progress;
    } catch (const nlohmann::json::exception&) {
        fail("the checkpoint's state lacks what a run needs to go on; it was written by something else");
    }
}

}  // namespace invar
