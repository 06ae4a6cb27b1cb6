// Weights on disk as everyone keeps them: one safetensors file, or a folder of Hugging Face's with model.safetensors,
// or with shards and the index that says which tensor is in which. All headers are checked before a tensor is read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "invar/hub/json_object.h"
#include "invar/io/safetensors.h"

namespace invar {

class WeightFiles {
  public:
    // A file, an index whose shards lie beside it, or a folder that holds some. Throws IoError for what is missing or
    // is not what the index says.
    explicit WeightFiles(const std::filesystem::path& file_or_folder, ForeignDtypes foreign = ForeignDtypes::refuse);

    struct Place {
        const SafetensorsFile* file;
        const TensorEntry* entry;
        Tensor read() const { return file->tensor(entry->name); }
    };
    const std::vector<Place>& tensors() const { return tensors_; }
    const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }

  private:
    void open_shards(const std::filesystem::path& index, ForeignDtypes foreign);
    std::vector<std::unique_ptr<SafetensorsFile>> files_;
    std::vector<Place> tensors_;
};

// The name of the shard of every tensor, from the text of an index. Names are those of files beside it: one that leads
// out of the folder is refused.
std::map<std::string, std::string> parse_index(const JsonObject& index);

inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

}  // namespace invar
