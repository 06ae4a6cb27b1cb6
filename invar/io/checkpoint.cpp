#include "invar/io/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "invar/core/error.h"
#include "invar/io/checksum.h"
#include "invar/io/file.h"
#include "invar/io/state_text.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFormat = "invar-checkpoint-2";
// Had the optimizer's moments in the layout of memory.
constexpr std::string_view kOldFormat = "invar-checkpoint-1";

// What stands in the header, before anything else is read.
nlohmann::json state_of(const SafetensorsFile& file) {
    const Metadata& metadata = file.metadata();
    const auto format = metadata.find("format"), state = metadata.find("state");
    const std::string_view name = format == metadata.end() ? "" : std::string_view(format->second);
    check<IoError>(name != kOldFormat,
                   "{}: a checkpoint of an earlier version of Invar ({}), whose optimizer state has another layout; "
                   "start the run again",
                   file.source(), kOldFormat);
    check<IoError>(name == kFormat,
                   "{}: not an Invar checkpoint (its metadata has no format {}); to take only its weights, name it in "
                   "init_from=",
                   file.source(), kFormat);
    check<IoError>(file.has_sums() && state != metadata.end(),
                   "{}: the checkpoint was rewritten by another program or is damaged; use an earlier one",
                   file.source());
    return parse_state(state->second, file.source());
}

Checkpoint load(const SafetensorsFile& file) {
    Checkpoint checkpoint;
    checkpoint.state = state_of(file);
    for (const TensorEntry& entry : file.entries()) checkpoint.tensors.emplace(entry.name, file.tensor(entry.name));
    return checkpoint;
}

}  // namespace

bool is_checkpoint(const Metadata& metadata) {
    const auto format = metadata.find("format");
    return format != metadata.end() && format->second.starts_with("invar-checkpoint");
}

Metadata checkpoint_metadata(const nlohmann::json& state) {
    return {{"format", std::string(kFormat)}, {"state", format_state(state)}};
}

void save_checkpoint(const fs::path& path, const Checkpoint& checkpoint) {
    save_safetensors(path, checkpoint.tensors, checkpoint_metadata(checkpoint.state));
}

Checkpoint load_checkpoint(const fs::path& path) {
    return load(SafetensorsFile(path));
}
Checkpoint parse_checkpoint(std::string_view bytes, std::string_view source) {
    return load(SafetensorsFile(bytes, source));
}

std::uint32_t checksum_of(const Tensor& tensor, std::uint32_t so_far) {
    return crc32c({static_cast<const char*>(tensor.raw()), tensor.bytes()}, so_far);
}

std::uint32_t checksum_of(const Checkpoint& checkpoint) {
    std::uint32_t sum = crc32c(checkpoint.state.dump());
    for (const auto& [name, tensor] : checkpoint.tensors) sum = checksum_of(tensor, crc32c(name, sum));
    return sum;
}

void verify_checkpoint(const fs::path& path) {
    const SafetensorsFile file(path);
    (void)state_of(file);
    file.verify();
}

CheckpointFolder::CheckpointFolder(fs::path folder, int keep) : folder_(std::move(folder)), keep_(keep) {
    check<UsageError>(keep >= 1, "checkpoints to keep: {} makes no sense; keep at least 1", keep);
    sweep_temporaries(folder_);
}

std::string CheckpointFolder::name_of(std::int64_t step) {
    return fmt::format("step_{:08}.safetensors", step);
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
    std::vector<std::int64_t> steps;
    std::error_code error;
    for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        constexpr std::size_t kDigitsAt = std::string_view("step_").size();
        std::int64_t step = -1;
        if (name.size() > kDigitsAt) std::from_chars(name.data() + kDigitsAt, name.data() + name.size(), step);
        if (step >= 0 && path_of(step).filename() == name) steps.push_back(step);
    }
    // To call a folder empty that cannot be read would start a run afresh that was to be resumed.
    if (error && error != std::errc::no_such_file_or_directory) fail_with_errno("read", folder_, error.value());
    std::sort(steps.begin(), steps.end());
    return steps;
}

fs::path CheckpointFolder::save(std::int64_t step, const Checkpoint& checkpoint, const StepSet& kept) const {
    check<UsageError>(step >= 0, "a checkpoint of step {}: steps count from 0", step);
    make_folders(folder_);
    save_checkpoint(path_of(step), checkpoint);
    prune(step, kept);
    return path_of(step);
}

void CheckpointFolder::prune(std::int64_t step, const StepSet& kept) const {
    // Only elders of a file that is whole are pruned: what claims a later step may be broken.
    std::vector<std::int64_t> elders = steps();
    std::erase_if(elders, [&](std::int64_t other) { return other >= step; });
    elders.resize(elders.size() - std::min(elders.size(), static_cast<std::size_t>(keep_ - 1)));
    for (const std::int64_t elder : elders) {
        if (kept.contains(elder)) continue;
        std::error_code ignored;  // an old file that cannot be deleted is no reason to stop a run
        fs::remove(path_of(elder), ignored);
    }
}

// From the newest on: where this is killed half-way, the newest that is left is still followed by none.
std::vector<fs::path> CheckpointFolder::put_aside_after(std::int64_t step) const {
    std::vector<fs::path> aside;
    const std::vector<std::int64_t> all = steps();
    for (auto later = all.rbegin(); later != all.rend() && *later > step; ++later) {
        aside.push_back(free_name(path_of(*later), ".aside"));
        fs::rename(path_of(*later), aside.back());
    }
    return aside;
}

void LatestCheckpoint::check_usable(const fs::path& run) const {
    check<UsageError>(step >= 0 || passed_over.empty(),
                      "{}: none of its {} checkpoints can be used: {}; restore one, or start another run", run.string(),
                      passed_over.size(), fmt::join(passed_over, "; "));
}

LatestCheckpoint CheckpointFolder::latest(std::int64_t most) const {
    LatestCheckpoint latest;
    const std::vector<std::int64_t> all = steps();
    for (auto step = all.rbegin(); step != all.rend(); ++step) {
        if (*step > most) continue;
        try {
            verify_checkpoint(path_of(*step));
            latest.path = path_of(*step);
            latest.step = *step;
            break;
        } catch (const Error& error) {
            latest.passed_over.push_back(error.what());
        }
    }
    return latest;
}

}  // namespace invar
