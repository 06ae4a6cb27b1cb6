#include "invar/cli/ranks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/dist/communicator.h"
#include "invar/dist/launcher.h"
#include "invar/io/file.h"

namespace invar::cli {

namespace {

int rank_here = 0;
int kept = -1;  // what was said before there was a log

void speak_into(int descriptor) {
    ::dup2(descriptor, STDOUT_FILENO);
    ::dup2(descriptor, STDERR_FILENO);
}

}  // namespace

void begin_as_rank(const std::string& command) {
    const Launch launch = launch_from_environment();
    if (launch.size == 1) return;
    constexpr std::array kTogether{"train", ""};
    const bool together = std::ranges::find(kTogether, command) != kTogether.end();
    rank_here = launch.rank;
    choose_gpu(launch);
    if (launch.rank > 0) {
        kept = ::memfd_create("log of a rank", MFD_CLOEXEC);
        if (kept >= 0) speak_into(kept);
    }
    check<UsageError>(together, "{} {} is for one process, and {} started {}", program_name(), command, launch.by,
                      launch.size);
}

void log_into(const std::filesystem::path& run) {
    if (kept < 0) return;
    const std::filesystem::path folder = run / "logs", file = folder / fmt::format("rank-{}.log", rank_here);
    try {
        make_folders(folder);
    } catch (const IoError&) {
        return;  // the first rank will say why nothing can be written there
    }
    const int log = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log < 0) return;
    std::array<char, 4096> piece;
    ::lseek(kept, 0, SEEK_SET);
    for (ssize_t got; (got = ::read(kept, piece.data(), piece.size())) > 0;)
        if (::write(log, piece.data(), std::size_t(got)) != got) break;
    speak_into(log);
    ::close(log);
    ::close(kept);
    kept = -1;
}

void end_as_rank() {
    leave_world();
}

}  // namespace invar::cli
