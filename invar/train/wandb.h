// WandbFile: what Weights & Biases is to show of a run, as JSON lines in the run's folder that
// scripts/wandb_upload.py uploads; nothing here talks to a network. The first line has the project, the run's name and
// its configuration, every other one a step and its scalars, by TensorBoard's tags.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "invar/config/config.h"
#include "invar/io/jsonl.h"

namespace invar {

class WandbFile {
  public:
    static constexpr const char* kName = "wandb.jsonl";
    // Empty but for its first line; a resumed run rewinds to where it goes on.
    WandbFile(const std::filesystem::path& folder, const Config& config);

    // Drops what was logged after this step, and the validation at it unless that counts: it is about to be repeated.
    void rewind(const std::filesystem::path& folder, std::int64_t step, bool validated);
    void scalar(std::string_view tag, std::int64_t step, double value);
    void flush();  // what is said of a step from here on begins a new line
    void sync();
    const std::string& problem() const { return file_->problem(); }
    AppendFile& file() { return file_->file(); }

  private:
    std::string first_line_;
    std::optional<JsonlFile> file_;
    std::optional<JsonLine> pending_;
    std::int64_t step_ = 0;
};

}  // namespace invar
