#include "invar/hub/folder.h"

#include <map>

#include "invar/core/error.h"
#include "invar/hub/config_json.h"
#include "invar/hub/weight_files.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMostConfigBytes = std::uint64_t(16) << 20;

// Of the two largest kinds of tensors: the embedding, and what a block multiplies with.
double parameters_told(const std::vector<FolderKey>& keys) {
    std::map<std::string, double> of;
    for (const FolderKey& key : keys)
        if (key.kind != FolderKey::Kind::start && key.value.find_first_not_of("0123456789") == std::string::npos)
            of[key.key] = std::stod(key.value);
    const bool gpt = !of.contains("model.hidden");
    const double width = of["model.width"], between = gpt ? 8 * width : 3 * of["model.hidden"];
    const double heads = gpt ? 4 * width : 2 * (of["model.heads"] + of["model.kv_heads"]) * of["model.head_width"];
    return of["model.vocabulary"] * width + (gpt ? of["model.length"] * width : 0) +
           of["model.layers"] * width * (between + heads);
}

// What does not fit is told name by name when the model is there. A model that is larger by far is not made for that.
void check_sizes(const std::vector<FolderKey>& keys, const WeightFiles& weights, const std::string& source) {
    double held = 0;
    for (const WeightFiles::Place& place : weights.tensors()) held += double(place.entry->shape.numel());
    const double told = parameters_told(keys);
    check<IoError>(told <= 2 * held + 1e6,
                   "{}: tells of a model of {:.3g} parameters, and the files beside it hold {:.3g}", source, told,
                   held);
}

}  // namespace

bool is_hub_folder(const fs::path& folder) {
    std::error_code ignored;
    return fs::is_directory(folder, ignored) && fs::exists(fs::symlink_status(folder / "config.json", ignored));
}

std::vector<FolderKey> keys_of_folder(const fs::path& folder) {
    check<IoError>(is_hub_folder(folder),
                   "{}: is a folder without config.json; name a file of weights, or a folder of Hugging Face's",
                   folder.string());
    const JsonObject config = JsonObject::read(folder / "config.json", kMostConfigBytes);
    std::vector<FolderKey> keys = keys_of_config_json(config);
    check_sizes(keys, WeightFiles(folder), config.source());
    keys.push_back({"task.name", "language", FolderKey::Kind::start});
    std::error_code ignored;
    if (const fs::path tokenizer = folder / "tokenizer.json"; fs::exists(tokenizer, ignored))
        keys.push_back({"data.tokenizer", tokenizer.string(), FolderKey::Kind::start});
    return keys;
}

}  // namespace invar
