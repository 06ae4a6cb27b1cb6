// Checkpoints: one safetensors file a step, checksummed, that any safetensors reader can open for its weights.
// The header's metadata holds the format's name and the state as JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "invar/io/safetensors.h"

namespace invar {

struct Checkpoint {
    TensorMap tensors;     // "model.conv1.weight", "optimizer.exp_avg.conv1.weight", ...
    nlohmann::json state;  // scaler, schedule, RNG, data position, configuration; infinities and NaN survive
};

// Whether a safetensors file says that it is one, of this version or another.
bool is_checkpoint(const Metadata& metadata);

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);
// What the header of one says beside its tensors.
Metadata checkpoint_metadata(const nlohmann::json& state);
// Throws IoError if as much as one bit of the file is not what was saved.
Checkpoint load_checkpoint(const std::filesystem::path& path);
Checkpoint parse_checkpoint(std::string_view bytes, std::string_view source);
// The checks of load_checkpoint without keeping the tensors.
void verify_checkpoint(const std::filesystem::path& path);

// CRC-32C of what a tensor of the host holds, and of all that a checkpoint does: whether two of them are the same.
std::uint32_t checksum_of(const Tensor& tensor, std::uint32_t so_far = 0);
std::uint32_t checksum_of(const Checkpoint& checkpoint);

struct LatestCheckpoint {
    std::filesystem::path path;  // empty when there is none
    std::int64_t step = -1;
    std::vector<std::string> passed_over;  // one line for each newer file that cannot be used: which, and why
    explicit operator bool() const { return step >= 0; }
    // Throws a UsageError with those lines where there are files and none can be used: to go on as if there were none
    // would lose what somebody may still mend.
    void check_usable(const std::filesystem::path& run) const;
};

// The checkpoints of a run: step_00000123.safetensors and its elders, `keep` of them and those that are to be kept
// besides.
class CheckpointFolder {
  public:
    using StepSet = std::set<std::int64_t>;
    CheckpointFolder(std::filesystem::path folder, int keep);

    // Writes the new file first and deletes old ones only then; files of later steps are left alone, and so are those
    // of the steps in `kept`.
    std::filesystem::path save(std::int64_t step, const Checkpoint& checkpoint, const StepSet& kept = {}) const;
    // Deletes the elders of this step that are over the limit, as a save does, and as one that was killed may not have.
    void prune(std::int64_t step, const StepSet& kept = {}) const;
    // The newest that is whole, of no later step than this.
    LatestCheckpoint latest(std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
    // Renames those of later steps, so that a run that goes on from this one does not meet them; their new names.
    std::vector<std::filesystem::path> put_aside_after(std::int64_t step) const;

    static std::string name_of(std::int64_t step);  // of the file
    std::filesystem::path path_of(std::int64_t step) const { return folder_ / name_of(step); }
    std::vector<std::int64_t> steps() const;  // ascending, whole or not

  private:
    std::filesystem::path folder_;
    int keep_;
};

}  // namespace invar
