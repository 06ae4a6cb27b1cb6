#include "invar/train/checkpoint_writer.h"

#include <fcntl.h>

#include "invar/core/error.h"
#include "invar/io/watch.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

std::string text_of(const std::exception_ptr& error) {
    if (!error) return "";
    try {
        std::rethrow_exception(error);
    } catch (const std::exception& known) {
        return known.what();
    }
}

// On every rank what any of them failed of, first things first.
void throw_together(Communicator& ranks, const std::exception_ptr& error) {
    const std::vector<std::string> errors = ranks.gathered(text_of(error));
    for (std::size_t r = 0; r < errors.size(); ++r) check<IoError>(errors[r].empty(), "rank {}: {}", r, errors[r]);
}

}  // namespace

void CheckpointWriter::start(const fs::path& file, SnapshotParts snapshot) {
    snapshot_ = std::move(snapshot);
    start_again(file);
}

void CheckpointWriter::start_again(const fs::path& file) {
    error_ = nullptr;
    if (ranks_.leads()) {
        try {
            layout_.emplace(snapshot_.entries, checkpoint_metadata(snapshot_.state));
            make_folders(file.parent_path());
            file_ = std::make_unique<AtomicFile>(file);
            temporary_ = file_->path();
        } catch (...) {
            error_ = std::current_exception();
        }
    }
    if (!ranks_.alone()) {
        temporary_ = ranks_.broadcast_text(error_ ? "" : temporary_.string());
        const std::string layout =
            temporary_.empty() ? "" : ranks_.broadcast_text(ranks_.leads() ? layout_->str() : "");
        if (!ranks_.leads() && !layout.empty()) layout_ = SafetensorsLayout::parse(layout);
    }
    done_ = temporary_.empty() || error_;
    if (done_) return;
    thread_ = std::thread([this, told = IoWatch::told()] {
        std::optional<IoWatch> watch;
        if (told) watch.emplace(told);
        try {
            write();
        } catch (...) {
            error_ = std::current_exception();
        }
        done_ = true;
    });
}

void CheckpointWriter::write() {
    if (ranks_.leads()) {
        added_ = write_parts(file_->file(), *layout_, snapshot_.parts);
        if (ranks_.alone()) return complete(added_);
        return file_->file().sync();
    }
    const Descriptor file = Descriptor::open(temporary_, O_WRONLY | O_NOFOLLOW, "write");
    added_ = write_parts(file, *layout_, snapshot_.parts);
    file.sync();
}

void CheckpointWriter::complete(const std::vector<std::uint32_t>& added) {
    file_->write_at(0, layout_->head_of_parts(added));
    file_->commit();
}

bool CheckpointWriter::finish(bool wait) {
    if (!wait && ranks_.alone() && !done_) return false;
    if (wait && thread_.joinable()) thread_.join();
    if (!ranks_.alone() && !agree()) return false;
    if (thread_.joinable()) thread_.join();
    file_.reset();
    if (error_) std::rethrow_exception(error_);
    return true;
}

// Whether all are done; then the first one gives the file its name.
bool CheckpointWriter::agree() {
    if (ranks_.any(!done_)) return false;
    if (thread_.joinable()) thread_.join();
    try {
        throw_together(ranks_, error_);
        std::vector<std::uint32_t> all(added_.size() * std::size_t(ranks_.size()));
        ranks_.all_gather(added_.data(), all.data(), added_.size() * sizeof(std::uint32_t));
        for (std::size_t i = 0; i < added_.size(); ++i)
            for (std::size_t r = 1; r < std::size_t(ranks_.size()); ++r) all[i] ^= all[r * added_.size() + i];
        all.resize(added_.size());
        if (ranks_.leads()) {
            try {
                complete(all);
            } catch (...) {
                error_ = std::current_exception();
            }
        }
        throw_together(ranks_, error_);
    } catch (...) {
        error_ = std::current_exception();
    }
    return true;
}

void CheckpointWriter::stop() noexcept {
    if (thread_.joinable()) thread_.join();
    file_.reset();
    snapshot_ = {};
}

std::vector<std::string> who_does_not_share(Communicator& ranks, const fs::path& folder) {
    std::unique_ptr<AtomicFile> probe;
    std::string problem;
    try {
        if (ranks.leads()) probe = std::make_unique<AtomicFile>(folder / "probe");
    } catch (const Error& error) {
        problem = error.what();
    }
    const std::string name = ranks.broadcast_text(probe ? probe->path().filename().string() : "");
    if (!ranks.leads() && !name.empty()) {
        try {
            (void)Descriptor::open(folder / name, O_WRONLY | O_NOFOLLOW, "write");
        } catch (const Error&) {
            problem = fmt::format(
                "does not see in {} what rank 0 has written there, and all ranks write the checkpoints of a run; set "
                "output_dir= to a folder of a disk that they share",
                folder.string());
        }
    }
    return ranks.gathered(problem);
}

void check_shared_folder(Communicator& ranks, const fs::path& folder) {
    if (ranks.alone()) return;
    const std::vector<std::string> problems = who_does_not_share(ranks, folder);
    for (std::size_t r = 0; r < problems.size(); ++r)
        check<UsageError>(problems[r].empty(), "rank {}{} {}", r, r == 0 ? ":" : "", problems[r]);
}

}  // namespace invar
