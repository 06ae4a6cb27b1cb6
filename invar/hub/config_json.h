// The config.json of a Hugging Face model as the keys of one of ours, and back. Whatever it asks for that our model
// lacks is refused by its name.
#pragma once

#include "invar/config/config.h"
#include "invar/hub/json_object.h"

namespace invar {

// model.name and the keys that the weights are of, all of them fixed or at_most; model.dropout as a start.
std::vector<FolderKey> keys_of_config_json(const JsonObject& config);

// What the weights of a run are exported with.
struct ExportedModel {
    const Part& model;                        // gpt or llama
    std::int64_t vocabulary = 0, length = 0;  // as they are, where the options leave them to the data
    std::string dtype = "float32";            // PyTorch's name
    std::optional<std::int64_t> end_of_text;  // of the tokenizer
};
// Throws UsageError, with the models that can be exported, for any other.
nlohmann::ordered_json to_config_json(const ExportedModel& exported);
void check_exportable(const Part& model);

}  // namespace invar
