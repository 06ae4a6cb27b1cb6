// The folder a run writes: config.yaml, metrics.jsonl, TensorBoard events, checkpoints/, summary.json.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "invar/core/memory.h"
#include "invar/io/checkpoint.h"
#include "invar/io/events.h"
#include "invar/io/jsonl.h"
#include "invar/train/config.h"

namespace invar {

// What a logged step has to say.
struct StepMetrics {
    std::int64_t step = 0;  // 1 is the first
    std::int64_t total_steps = 0;
    std::int64_t epoch = 0;
    double loss = 0.0;
    double lr = 0.0;
    double grad_norm = 0.0;
    double scale = 1.0;
    std::int64_t growth_tracker = 0;
    bool skipped_now = false;
    std::int64_t skipped = 0;  // so far
    double samples_per_s = 0.0;
    MemoryStats memory;
};

struct ValidationMetrics {
    std::int64_t step = 0;
    std::int64_t epoch = 0;
    double loss = 0.0;
    double accuracy = 0.0;
};

class RunFolder {
  public:
    // A new run: output_dir/exp_name, or exp_name_2, _3, ... where that is taken.
    static RunFolder create(const Config& config);
    // An old one, to go on with; the configuration may have been changed by overrides.
    static RunFolder reopen(const std::filesystem::path& folder, const Config& config, std::int64_t step);

    const std::filesystem::path& path() const { return path_; }
    const CheckpointFolder& checkpoints() const { return checkpoints_; }
    void log(const StepMetrics& metrics);
    void log(const ValidationMetrics& metrics);
    void write_summary(const JsonLine& summary) const;
    void flush();

    static std::filesystem::path config_of(const std::filesystem::path& folder) { return folder / "config.yaml"; }
    static std::filesystem::path checkpoints_of(const std::filesystem::path& folder) { return folder / "checkpoints"; }

  private:
    RunFolder(std::filesystem::path path, const Config& config, std::optional<std::int64_t> resumed_at);
    std::filesystem::path path_;
    FolderLock lock_;
    CheckpointFolder checkpoints_;
    JsonlFile metrics_;
    std::unique_ptr<EventFile> events_;
};

JsonLine memory_line(const std::array<std::int64_t, kPurposes>& bytes, std::int64_t total);

}  // namespace invar
