// What the tests of training share: a small run on synthetic data in a folder of its own, and files as bytes.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "invar/data/image_set.h"
#include "invar/data/registry.h"
#include "invar/data/synthetic.h"
#include "invar/io/jsonl.h"
#include "invar/models/models.h"
#include "invar/optim/specs.h"
#include "invar/tasks/classification.h"
#include "invar/train/trainer.h"

namespace invar {

class ScratchFolder {
  public:
    ScratchFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "invar_train_XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    ~ScratchFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

// Ten batches of 16 an epoch, the last one of 6; two epochs.
inline Config small_config(const std::filesystem::path& output) {
    Config config;
    config.output_dir = output.string();
    config.seed = 5;
    config.trainer.max_epochs = 2;
    config.trainer.log_every_n_steps = 1;
    config.trainer.threads = 1;
    config.trainer.device = "cpu";
    config.model.choose("mlp", MlpOptions{.hidden = {12}, .dropout = 0.25});
    config.data.choose("synthetic",
                       SyntheticOptions{.size = 150, .height = 6, .width = 5, .channels = 2, .classes = 4});
    config.data.batch_size = 16;
    config.data.num_workers = 1;
    config.logger.tensorboard = false;
    return config;
}

inline std::string file_bytes(const std::filesystem::path& path) {
    std::ostringstream bytes;
    bytes << std::ifstream(path, std::ios::binary).rdbuf();
    return bytes.str();
}

// Every file below a folder by its relative path.
inline std::map<std::string, std::string> all_files(const std::filesystem::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.is_regular_file())
            files[std::filesystem::relative(entry.path(), folder).string()] = file_bytes(entry.path());
    return files;
}

inline std::filesystem::path last_checkpoint(const std::filesystem::path& run) {
    std::filesystem::path last;
    for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints"))
        last = std::max(last, entry.path());
    return last;
}

// Stops the run after a step; takes down what it was told.
struct Stopper : Observer {
    explicit Stopper(std::int64_t stop_after = -1) : stop_after_(stop_after) {}
    void step_launched(const Progress& progress, std::int64_t) override {
        if (progress.step == stop_after_) Trainer::request_stop();
    }
    void step_logged(const StepMetrics& m) override { steps.push_back(m); }
    void noted(const std::string& note) override { notes.push_back(note); }
    std::vector<StepMetrics> steps;
    std::vector<std::string> notes;

  private:
    std::int64_t stop_after_;
};

inline RunSummary train(const Config& config, Observer& observer, std::optional<std::filesystem::path> resume = {}) {
    return Trainer(config, std::move(resume)).fit(observer);
}
inline RunSummary train(const Config& config, std::optional<std::filesystem::path> resume = {}) {
    Stopper observer;
    return train(config, observer, std::move(resume));
}

// The lines of a run's metrics that have this key.
inline std::vector<nlohmann::json> lines_with(const std::filesystem::path& run, const char* key) {
    std::vector<nlohmann::json> some;
    for (const nlohmann::json& line : read_jsonl(run / "metrics.jsonl"))
        if (line.contains(key)) some.push_back(line);
    return some;
}

// What the lines of a run's metrics say of training, without what depends on the clock and the allocator, nor `also`.
inline std::vector<std::string> lines_of(const std::filesystem::path& run, const std::string& also = {}) {
    std::vector<std::string> lines;
    for (nlohmann::json line : read_jsonl(run / "metrics.jsonl")) {
        for (const std::string key : {"samples_per_s", "tokens_per_s", "mfu", "peak_bytes", "live_bytes", "step_ms",
                                      "host_bytes", "gpu_utilization"})
            line.erase(key);
        line.erase(also);
        lines.push_back(line.dump());
    }
    return lines;
}

// What a run's summary says, without clocks and memory.
inline nlohmann::json summary_of(const std::filesystem::path& run) {
    nlohmann::json summary = nlohmann::json::parse(file_bytes(run / "summary.json"));
    for (const char* key : {"train_seconds", "samples_per_s", "tokens_per_s", "mfu", "waited_share", "peak_bytes"})
        summary.erase(key);
    return summary;
}

// A whole run of this configuration, moved aside: what a run under the same name, which is in its checkpoints too, is
// compared with.
inline std::filesystem::path undisturbed(const Config& config) {
    const std::filesystem::path run = train(config).folder, aside = run.parent_path() / "undisturbed";
    std::filesystem::rename(run, aside);
    return aside;
}

// Leaves a run as kill -9 would: at this step nothing more is written.
struct Killer : Observer {
    explicit Killer(std::int64_t at) : at_(at) {}
    void step_launched(const Progress& progress, std::int64_t) override {
        if (progress.step == at_) throw std::runtime_error("killed");
    }
    std::int64_t at_;
};

inline void train_until(const Config& config, std::int64_t step, std::optional<std::filesystem::path> resume = {}) {
    Killer killer(step);
    EXPECT_THROW(train(config, killer, std::move(resume)), std::runtime_error);
}

}  // namespace invar
