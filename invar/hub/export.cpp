#include "invar/hub/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/hub/config_json.h"
#include "invar/hub/new_folder.h"
#include "invar/hub/weight_files.h"
#include "invar/io/file.h"
#include "invar/io/safetensors.h"
#include "invar/ops/ops.h"
#include "invar/text/raw_tokenizer.h"
#include "invar/text/tokenizer.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

const char* torch_name(Dtype dtype) {
    return dtype == Dtype::f32 ? "float32" : dtype == Dtype::f16 ? "float16" : "bfloat16";
}

bool all_finite(const Tensor& tensor) {
    for (const float value : tensor.to_vector<float>())
        if (!std::isfinite(value)) return false;
    return true;
}

Tensor in_dtype(const std::string& name, const Tensor& weight, Dtype dtype) {
    Tensor result = weight.dtype() == dtype ? weight : ops::cast(weight, dtype);
    check<UsageError>(dtype != Dtype::f16 || all_finite(result) || !all_finite(weight),
                      "{} holds a value that f16 has no room for; use --dtype bf16 or f32", name);
    return result;
}

// In the order of the names, as many into a file as there is room for, as Hugging Face's library does it.
std::vector<std::vector<std::string>> split(const std::map<std::string, Tensor>& weights,
                                            const ExportOptions& options) {
    std::vector<std::vector<std::string>> shards;
    std::uint64_t bytes = 0;
    for (const auto& [name, weight] : weights) {
        const std::uint64_t more = std::uint64_t(weight.numel()) * size_of(options.dtype);
        if (shards.empty() || bytes + more > options.max_shard_bytes) shards.emplace_back(), bytes = 0;
        shards.back().push_back(name);
        bytes += more;
    }
    return shards;
}

// The text of the file; "" where a token is a byte, which no file tells.
std::string tokenizer_json(const fs::path& name) {
    std::error_code ignored;
    if (name.empty() || name == "bytes") return "";
    return read_file(fs::is_directory(name, ignored) ? name / kTokenizerFile : name, text::kMostTokenizerBytes);
}

bool is_exported_name(const std::string& name) {
    const bool shard = name.starts_with("model") && (name.ends_with(".safetensors") || name == kIndexFile);
    return shard || name == kConfigFile || name == kTokenizerFile || name == kTokenizerConfigFile;
}

// Without it that library goes by the model's type, and puts Llama 2's way of cutting words in place of the file's own.
std::string tokenizer_config(const text::Tokenizer& tokenizer, std::int64_t length) {
    nlohmann::ordered_json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                  {"model_max_length", length},
                                  {"clean_up_tokenization_spaces", false}};
    if (const auto end = tokenizer.end_of_text())
        config["eos_token"] = tokenizer.decode(std::vector<text::TokenId>{*end});
    return config.dump(2) + "\n";
}

ExportedFolder write_weights(const fs::path& folder, const std::map<std::string, Tensor>& weights,
                             const ExportOptions& options) {
    const std::vector<std::vector<std::string>> shards = split(weights, options);
    ExportedFolder written{shards.size(), weights.size(), 0};
    nlohmann::ordered_json places = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < shards.size(); ++i) {
        const std::string file =
            shards.size() == 1 ? kWeightsFile : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
        TensorMap tensors;
        for (const std::string& name : shards[i]) {
            tensors.emplace(name, in_dtype(name, weights.at(name), options.dtype));
            written.bytes += tensors.at(name).bytes();
            places[name] = file;
        }
        save_safetensors(folder / file, tensors, {{"format", "pt"}});
    }
    if (shards.size() == 1) return written;
    const nlohmann::ordered_json index{{"metadata", {{"total_size", written.bytes}}}, {"weight_map", places}};
    write_file_atomically(folder / kIndexFile, index.dump(2) + "\n");
    return written;
}

}  // namespace

ExportedFolder export_model(const fs::path& folder, const Part& model, std::int64_t length, const StateDict& weights,
                            const ExportOptions& options) {
    check_exportable(model);
    const bool gpt = model.name() == "gpt";
    std::map<std::string, Tensor> named;
    for (const auto& [name, weight] : weights) named.emplace(gpt ? "transformer." + name : name, weight);
    const auto embedding = named.find(gpt ? "transformer.wte.weight" : "model.embed_tokens.weight");
    check<UsageError>(embedding != named.end() && embedding->second.rank() == 2,
                      "these are not the weights of a model {}", model.name());
    ExportedModel exported{model, embedding->second.size(0), length, torch_name(options.dtype), {}};
    const std::string tokenizer = tokenizer_json(options.tokenizer);
    std::string tokenizer_keys;
    if (!options.tokenizer.empty()) {
        const text::Tokenizer read = text::tokenizer_by_name(options.tokenizer);
        if (const auto end = read.end_of_text()) exported.end_of_text = std::int64_t(*end);
        if (!tokenizer.empty()) tokenizer_keys = tokenizer_config(read, length);
    }
    const std::string config = to_config_json(exported).dump(2) + "\n";

    NewFolder fresh(folder, options.force ? is_exported_name : nullptr);
    ExportedFolder written = write_weights(fresh.path(), named, options);
    if (!tokenizer.empty()) {
        write_file_atomically(fresh.path() / kTokenizerFile, tokenizer);
        write_file_atomically(fresh.path() / kTokenizerConfigFile, tokenizer_keys);
    }
    write_file_atomically(fresh.path() / kConfigFile, config);  // last: nothing loads a folder without it
    fresh.commit();
    return written;
}

std::uint64_t parse_bytes(const std::string& text) {
    constexpr std::pair<const char*, double> kUnits[] = {
        {"KIB", 1024.0}, {"MIB", 1048576.0}, {"GIB", 1073741824.0}, {"TIB", 1024.0 * 1073741824.0},
        {"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12}};
    std::string number = text;
    for (char& letter : number) letter = char(std::toupper(static_cast<unsigned char>(letter)));
    double unit = 1;
    for (const auto& [name, bytes] : kUnits)
        if (number.ends_with(name)) {
            number.resize(number.size() - std::string(name).size());
            unit = bytes;
            break;
        }
    const bool plain = !number.empty() && number.find_first_not_of("0123456789.") == std::string::npos &&
                       std::count(number.begin(), number.end(), '.') <= 1 && number != ".";
    const double bytes = plain && number.size() < 20 ? std::stod(number) * unit : 0;
    check<UsageError>(bytes >= 1 && bytes < 1e18,
                      "'{}' is no size of a file; it is a number with KB, MB or GB, as in 5GB", text.substr(0, 80));
    return std::uint64_t(bytes);
}

}  // namespace invar
