#include "invar/safety/failure.h"

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/ops/to.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kState = "state.safetensors";
constexpr const char* kBatches = "batches.safetensors";

}  // namespace

std::string Failure::config_yaml() const {
    const auto config = state.state.find("config");
    check<IoError>(config != state.state.end() && config->is_string(), "the failure's state holds no configuration");
    return config->get<std::string>();
}

void save_failure(const fs::path& folder, Setup& setup, std::span<const Batch> group, const Progress& progress,
                  RngState rng, double scale, const std::string& config_yaml) {
    make_folders(folder);
    fs::remove(folder / kState);
    TensorMap tensors;
    for (std::size_t i = 0; i < group.size(); ++i) {
        tensors.emplace(fmt::format("x.{}", i), group[i].x);
        tensors.emplace(fmt::format("y.{}", i), group[i].y);
    }
    save_safetensors(folder / kBatches, tensors);
    Checkpoint state = take_snapshot(setup, progress, config_yaml);
    state.state["rng"] = {{"seed", rng.seed}, {"offset", rng.offset}};
    state.state["failure"] = {{"scale", scale}, {"batches", group.size()}};
    save_checkpoint(folder / kState, state);
}

bool has_failure(const fs::path& run) {
    std::error_code ignored;
    return fs::is_regular_file(failure_folder(run) / kState, ignored);
}

Failure load_failure(const fs::path& folder) {
    Failure failure;
    failure.state = load_checkpoint(folder / kState);
    const TensorMap tensors = load_safetensors(folder / kBatches).tensors;
    try {
        const nlohmann::json& state = failure.state.state;
        failure.scale = state.at("failure").at("scale").get<double>();
        failure.rng = {state.at("rng").at("seed"), state.at("rng").at("offset")};
        failure.progress.step = state.at("progress").at("step");
        failure.progress.epoch = state.at("progress").at("epoch");
        failure.progress.batch = state.at("progress").at("batch");
        const std::size_t count = state.at("failure").at("batches");
        for (std::size_t i = 0; i < count; ++i) {
            const auto x = tensors.find(fmt::format("x.{}", i)), y = tensors.find(fmt::format("y.{}", i));
            check<IoError>(x != tensors.end() && y != tensors.end() && x->second.rank() > 0 &&
                               y->second.numel() == x->second.size(0),
                           "{}: batch {} is missing or torn", folder.string(), i);
            failure.group.push_back({x->second, y->second, x->second.size(0)});
        }
    } catch (const nlohmann::json::exception&) {
        fail<IoError>("{}: the state does not say which step failed; it was written by something else",
                      folder.string());
    }
    check<IoError>(!failure.group.empty(), "{}: holds no batch", folder.string());
    return failure;
}

Finding replay_failure(Setup& setup, const Failure& failure, const LossFunction& loss) {
    restore_snapshot(setup, failure.state);
    std::vector<Batch> group;
    for (const Batch& batch : failure.group)
        group.push_back({ops::to(batch.x, setup.device), ops::to(batch.y, setup.device), batch.size});
    return find_first_bad(setup, group, failure.rng, failure.scale, loss);
}

}  // namespace invar
