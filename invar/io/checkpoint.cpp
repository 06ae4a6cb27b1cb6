#include "invar/io/checkpoint.h"

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

constexpr std::string_view kFormat = "invar-checkpoint-1";
// Metadata is written in the order of its keys, so the checksum always stands at the same place of the file.
constexpr std::string_view kHeadStart = R"({"__metadata__":{"crc32c":")";
constexpr std::size_t kSumOffset = kLengthBytes + kHeadStart.size();
constexpr std::size_t kSumDigits = 8;

// Of the whole file, with zeros for the digits of the checksum itself.
std::string digits_of(std::uint32_t sum) {
    return fmt::format("{:08x}", sum);
}

std::uint32_t sum_of_head(std::string head) {
    head.replace(kSumOffset, kSumDigits, kSumDigits, '0');
    return crc32c(head);
}

std::string_view written_sum(const SafetensorsFile& file) {
    const Metadata& metadata = file.metadata();
    const auto format = metadata.find("format");
    check<IoError>(format != metadata.end() && format->second == kFormat,
                   "{}: not an Invar checkpoint (its metadata has no format {}); to take only its weights, name it in "
                   "init_from=",
                   file.source(), kFormat);
    const std::string_view head = file.head();
    const bool in_place = head.size() >= kSumOffset + kSumDigits && head.substr(kLengthBytes).starts_with(kHeadStart) &&
                          metadata.contains("state");
    check<IoError>(in_place, "{}: the checkpoint was rewritten by another program or is damaged; use an earlier one",
                   file.source());
    return head.substr(kSumOffset, kSumDigits);
}

// Has `take(entry, seen)` read each entry, in file order, and show its bytes to `seen`; then compares the checksums.
template <class Take>
void read_verified(const SafetensorsFile& file, Take&& take) {
    const std::string_view expected = written_sum(file);
    std::uint32_t sum = sum_of_head(file.head());
    for (const TensorEntry& entry : file.entries())
        take(entry, [&](std::string_view bytes) { sum = crc32c(bytes, sum); });
    check<IoError>(digits_of(sum) == expected,
                   "{}: the bytes have the checksum {}, expected {}; the file is damaged, use an earlier checkpoint",
                   file.source(), digits_of(sum), Quoted{expected});
}

void verify(const SafetensorsFile& file) {
    std::string buffer(std::size_t(1) << 20, '\0');
    read_verified(file, [&](const TensorEntry& entry, auto&& seen) {
        const std::uint64_t bytes = entry.end - entry.begin;
        for (std::uint64_t from = 0; from < bytes;) {
            const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), bytes - from));
            file.read(entry, from, buffer.data(), count);
            seen(std::string_view(buffer).substr(0, count));
            from += count;
        }
    });
    parse_state(file.metadata().at("state"), file.source());
}

Checkpoint load(const SafetensorsFile& file) {
    Checkpoint checkpoint;
    read_verified(file, [&](const TensorEntry& entry, auto&& seen) {
        const Tensor tensor = file.tensor(entry.name);
        seen(std::string_view(static_cast<const char*>(tensor.raw()), tensor.bytes()));
        checkpoint.tensors.emplace(entry.name, tensor);
    });
    checkpoint.state = parse_state(file.metadata().at("state"), file.source());
    return checkpoint;
}

}  // namespace

void save_checkpoint(const fs::path& path, const Checkpoint& checkpoint) {
    const Metadata metadata = {{"crc32c", std::string(kSumDigits, '0')},
                               {"format", std::string(kFormat)},
                               {"state", format_state(checkpoint.state)}};
    SafetensorsImage image = lay_out_safetensors(checkpoint.tensors, metadata);
    std::uint32_t sum = 0;
    for (const std::string_view piece : image.pieces()) sum = crc32c(piece, sum);
    image.head.replace(kSumOffset, kSumDigits, digits_of(sum));
    write_file_atomically(path, image.pieces());
}

Checkpoint load_checkpoint(const fs::path& path) {
    return load(SafetensorsFile(path));
}
Checkpoint parse_checkpoint(std::string_view bytes, std::string_view source) {
    return load(SafetensorsFile(bytes, source));
}
void verify_checkpoint(const fs::path& path) {
    verify(SafetensorsFile(path));
}

CheckpointFolder::CheckpointFolder(fs::path folder, int keep) : folder_(std::move(folder)), keep_(keep) {
    check<UsageError>(keep >= 1, "checkpoints to keep: {} makes no sense; keep at least 1", keep);
    sweep_temporaries(folder_);
}

fs::path CheckpointFolder::path_of(std::int64_t step) const {
    return folder_ / fmt::format("step_{:08}.safetensors", step);
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

fs::path CheckpointFolder::save(std::int64_t step, const Checkpoint& checkpoint) const {
    check<UsageError>(step >= 0, "a checkpoint of step {}: steps count from 0", step);
    make_folders(folder_);
    save_checkpoint(path_of(step), checkpoint);
    // Only elders of the file just written are pruned: what claims a later step may be broken, and this one is not.
    std::vector<std::int64_t> elders = steps();
    std::erase_if(elders, [&](std::int64_t other) { return other >= step; });
    const std::size_t kept = std::min(elders.size(), static_cast<std::size_t>(keep_ - 1));
    elders.resize(elders.size() - kept);
    for (const std::int64_t elder : elders) {
        std::error_code ignored;  // an old file that cannot be deleted is no reason to stop a run
        fs::remove(path_of(elder), ignored);
    }
    return path_of(step);
}

LatestCheckpoint CheckpointFolder::latest() const {
    LatestCheckpoint latest;
    const std::vector<std::int64_t> all = steps();
    for (auto step = all.rbegin(); step != all.rend(); ++step) {
        try {
            verify_checkpoint(path_of(*step));
            latest.path = path_of(*step);
            latest.step = *step;
            break;
        } catch (const Error& error) {
            latest.notes.push_back(fmt::format("passed over a checkpoint: {}", error.what()));
        }
    }
    return latest;
}

}  // namespace invar
