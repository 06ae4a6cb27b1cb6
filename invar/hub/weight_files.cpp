#include "invar/hub/weight_files.h"

#include <set>

#include "invar/core/error.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMostIndexBytes = std::uint64_t(64) << 20;
constexpr std::size_t kMostShards = 900;  // all are open at once, and a process has some 1024 files

bool is_plain_name(const std::string& name) {
    return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

// Also where it is a link that leads nowhere, which opening it then tells.
bool is_there(const fs::path& file) {
    std::error_code ignored;
    return fs::exists(fs::symlink_status(file, ignored));
}

}  // namespace

std::map<std::string, std::string> parse_index(const JsonObject& index) {
    if (!index.has("weight_map"))
        index.refuse(
            "\"weight_map\" is missing, so it is no index of sharded weights as model.safetensors.index.json is");
    const JsonObject places = index.object("weight_map");
    std::map<std::string, std::string> shards;
    for (const auto& [tensor, place] : places.json().items()) {
        const std::string name = places.text(tensor);
        check<IoError>(is_plain_name(name),
                       "{}: the tensor {} is said to be in {}, which is not the name of a file beside it",
                       index.source(), Quoted{tensor}, Quoted{name});
        shards.emplace(tensor, name);
    }
    check<IoError>(!shards.empty(), "{}: \"weight_map\" is empty", index.source());
    return shards;
}

void WeightFiles::open_shards(const fs::path& index, ForeignDtypes foreign) {
    const std::map<std::string, std::string> shards = parse_index(JsonObject::read(index, kMostIndexBytes));
    std::set<std::string> names;
    for (const auto& [tensor, shard] : shards) names.insert(shard);
    check<IoError>(names.size() <= kMostShards, "{}: names {} files, more than {}", index.string(), names.size(),
                   kMostShards);
    std::set<std::string> met;
    for (const std::string& name : names) {
        const fs::path path = index.parent_path() / name;
        check<IoError>(is_there(path), "{}: the shard {} is missing; it should lie beside the index", index.string(),
                       Quoted{name});
        files_.push_back(std::make_unique<SafetensorsFile>(path, foreign));
        const auto meet = [&](const std::string& tensor) {
            const auto place = shards.find(tensor);
            check<IoError>(place != shards.end() && place->second == name,
                           "{}: holds the tensor {}, which {} says is {}", files_.back()->source(), Quoted{tensor},
                           index.filename().string(),
                           place == shards.end() ? "nowhere" : fmt::format("in {}", Quoted{place->second}));
            met.insert(tensor);
        };
        for (const TensorEntry& entry : files_.back()->entries()) meet(entry.name);
        for (const ForeignEntry& entry : files_.back()->foreign()) meet(entry.name);
    }
    for (const auto& [tensor, shard] : shards)
        check<IoError>(met.contains(tensor), "{}: the tensor {} is said to be in {}, and is not there", index.string(),
                       Quoted{tensor}, Quoted{shard});
}

WeightFiles::WeightFiles(const fs::path& place, ForeignDtypes foreign) {
    std::error_code ignored;
    if (!fs::is_directory(place, ignored)) {
        if (place.extension() == ".json")
            open_shards(place, foreign);
        else
            files_.push_back(std::make_unique<SafetensorsFile>(place, foreign));
    } else if (is_there(place / kWeightsFile)) {
        files_.push_back(std::make_unique<SafetensorsFile>(place / kWeightsFile, foreign));
    } else {
        check<IoError>(is_there(place / kIndexFile),
                       "{}: is a folder without {} or {}; name a file of weights, or a folder of Hugging Face's that "
                       "holds safetensors",
                       place.string(), kWeightsFile, kIndexFile);
        open_shards(place / kIndexFile, foreign);
    }
    for (const auto& file : files_)
        for (const TensorEntry& entry : file->entries()) tensors_.push_back({file.get(), &entry});
}

}  // namespace invar
