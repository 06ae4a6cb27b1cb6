#include "invar/diagnose/failure.h"

#include "invar/core/error.h"
#include "invar/diagnose/find_first_bad.h"
#include "invar/io/file.h"
#include "invar/ops/to.h"
#include "invar/train/checkpoint_writer.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kState = "state.safetensors";
constexpr const char* kBatches = "batches.safetensors";

std::string tensor_name(const std::string& name, std::size_t batch) {
    return fmt::format("{}.{}", name, batch);
}

// What they hold beside their tensors.
nlohmann::json save_batches(const fs::path& folder, std::span<const Batch> group) {
    make_folders(folder);
    fs::remove(folder / kState);
    TensorMap tensors;
    nlohmann::json batches = nlohmann::json::array();
    for (std::size_t i = 0; i < group.size(); ++i) {
        nlohmann::json names = nlohmann::json::array();
        for (const auto& [name, tensor] : group[i].tensors()) {
            tensors.emplace(tensor_name(name, i), tensor);
            names.push_back(name);
        }
        const Batch::Part& part = group[i].part;
        batches.push_back({{"size", group[i].size}, {"tensors", names}});
        if (part.of > 0) batches.back()["part"] = {{"first", part.first}, {"of", part.of}, {"spare", part.spare}};
    }
    save_safetensors(folder / kBatches, tensors);
    return batches;
}

}  // namespace

std::string Failure::config_yaml() const {
    const auto config = state.state.find("config");
    check<IoError>(config != state.state.end() && config->is_string(), "the failure's state holds no configuration");
    return config->get<std::string>();
}

void save_failure(const fs::path& folder, Setup& setup, std::span<const Batch> group, const Progress& progress,
                  RngState rng, double scale, const std::string& config_yaml, int rank) {
    Communicator& ranks = *setup.ranks;
    std::string written, why;
    try {
        if (ranks.rank() == rank) written = save_batches(folder, group).dump();
    } catch (const IoError& error) {
        if (ranks.alone()) throw;
        why = error.what();
    }
    written = ranks.broadcast_text(written, rank);
    check<IoError>(!written.empty(), "rank {} could not keep its batches: {}", rank, ranks.broadcast_text(why, rank));
    const nlohmann::json batches = nlohmann::json::parse(written);
    SnapshotParts state = take_snapshot_parts(setup, progress, config_yaml);
    state.state["rng"] = {{"seed", rng.seed}, {"offset", rng.offset}};
    state.state["failure"] = {{"scale", scale}, {"batches", batches}};
    if (!ranks.alone()) state.state["failure"].update({{"rank", rank}, {"ranks", ranks.size()}});
    CheckpointWriter writer(ranks);
    writer.start(folder / kState, std::move(state));
    writer.finish(true);
}

std::vector<Batch> on_device(std::span<const Batch> group, Device device) {
    std::vector<Batch> there;
    for (const Batch& batch : group)
        there.push_back(batch.map([&](const Tensor& tensor) { return ops::to(tensor, device); }));
    return there;
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
        failure.rank = state.at("failure").value("rank", -1);
        failure.ranks = state.at("failure").value("ranks", 1);
        for (const nlohmann::json& kept : state.at("failure").at("batches")) {
            const std::size_t i = failure.group.size();
            Batch batch({}, kept.at("size").get<std::int64_t>());
            if (const auto part = kept.find("part"); part != kept.end())
                batch.part = {part->at("first"), part->at("of"), part->at("spare")};
            for (const std::string name : kept.at("tensors")) {
                const auto found = tensors.find(tensor_name(name, i));
                check<IoError>(found != tensors.end(), "{}: batch {} is missing or torn", folder.string(), i);
                batch.set(name, found->second);
            }
            failure.group.push_back(std::move(batch));
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
    return find_first_bad(setup, on_device(failure.group, setup.device), failure.rng, failure.scale, loss);
}

}  // namespace invar
