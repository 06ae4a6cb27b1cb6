// CheckpointWriter: writes a checkpoint beside the steps that follow it, from copies that were made of the state. Ranks
// write into one file at once, each its parts, and it gets its name when all of them are done.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "invar/dist/communicator.h"
#include "invar/io/file.h"
#include "invar/train/snapshot.h"

namespace invar {

class CheckpointWriter {
  public:
    explicit CheckpointWriter(Communicator& ranks) : ranks_(ranks) {}
    // Waits for what is being written: of one process it is complete then, or has failed unheard; ranks, which have not
    // agreed on it, leave nothing of it.
    ~CheckpointWriter() { stop(); }
    CheckpointWriter(const CheckpointWriter&) = delete;
    CheckpointWriter& operator=(const CheckpointWriter&) = delete;

    // All ranks call these together. One file at a time: until finish() has said true or thrown, no other is begun.
    // `file` is the first rank's to say.
    void start(const std::filesystem::path& file, SnapshotParts snapshot);
    // Whether the file is there, whole and on the disk. Waits for it, or only asks. Throws an IoError, on all ranks,
    // where one could not write its parts: nothing of the file is left then.
    bool finish(bool wait);
    // The same parts once more, into another place, after finish().
    void start_again(const std::filesystem::path& file);
    // Waits as the destructor does, and lets the copies go.
    void stop() noexcept;

  private:
    void write();
    void complete(const std::vector<std::uint32_t>& added);
    bool agree();
    Communicator& ranks_;
    SnapshotParts snapshot_;
    std::optional<SafetensorsLayout> layout_;
    std::unique_ptr<AtomicFile> file_;  // of the first rank
    std::filesystem::path temporary_;   // the same, as the others know it
    std::thread thread_;
    std::atomic<bool> done_ = false;    // what follows is the thread's until then
    std::vector<std::uint32_t> added_;  // to the checksums
    std::exception_ptr error_;
};

// Whether this folder is one and the same for all ranks: by rank, what is wrong with it; "" where nothing is.
std::vector<std::string> who_does_not_share(Communicator& ranks, const std::filesystem::path& folder);
// That this folder is one and the same for all ranks: throws a UsageError on every one where one does not see in it
// what the first one has put there.
void check_shared_folder(Communicator& ranks, const std::filesystem::path& folder);

}  // namespace invar
