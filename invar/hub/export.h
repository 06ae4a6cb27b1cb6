// A model written as a folder that Hugging Face's library loads: config.json, safetensors, and a tokenizer.json.
#pragma once

#include <filesystem>
#include <string>

#include "invar/config/part.h"
#include "invar/nn/module.h"

namespace invar {

struct ExportOptions {
    Dtype dtype = Dtype::f32;  // or f16, bf16
    std::uint64_t max_shard_bytes = 5'000'000'000;
    std::string tokenizer{};  // as data.tokenizer names it: a tokenizer.json that goes with it, or bytes; "" for none
    bool force = false;       // replaces a folder that holds an exported model, and no other
};

struct ExportedFolder {
    std::size_t files = 0, tensors = 0;
    std::uint64_t bytes = 0;  // of the weights
};

// `length` is the number of places for tokens, which the weights of llama do not tell. The folder is written beside its
// place and put there when all of it is on the disk. Throws UsageError where the model has no counterpart, where there
// is a folder already, and where a weight is too large for f16.
ExportedFolder export_model(const std::filesystem::path& folder, const Part& model, std::int64_t length,
                            const StateDict& weights, const ExportOptions& options);

// "5GB", "300MB", "1KB", "2GiB", "1000": bytes, as Hugging Face's library reads it. Throws UsageError.
std::uint64_t parse_bytes(const std::string& text);

}  // namespace invar
