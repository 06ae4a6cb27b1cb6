#include "invar/cli/ranks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "invar/cli/output.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/dist/communicator.h"
#include "invar/dist/launcher.h"
#include "invar/dist/roll_call.h"
#include "invar/io/file.h"

namespace invar::cli {

namespace {

int rank_here = 0;
int muted_output = -1;     // what was printed before there was a log
int launcher_output = -1;  // the standard error that the launcher gave
bool muted = false;
bool ended_normally = false;
constexpr std::chrono::seconds kReportTime(5);  // for the first rank to write down how its run ended
constexpr std::chrono::seconds kNoticeTime(1);  // for those who look who is here to see that this one has ended

std::function<std::string()>& advice_here() {
    static std::function<std::string()> advice;
    return advice;
}

void redirect_output(int descriptor) {
    ::dup2(descriptor, STDOUT_FILENO);
    ::dup2(descriptor, STDERR_FILENO);
}

void copy(int from, int to) {
    std::array<char, 4096> piece;
    ::lseek(from, 0, SEEK_SET);
    for (ssize_t got; (got = ::read(from, piece.data(), piece.size())) > 0;)
        if (::write(to, piece.data(), std::size_t(got)) != got) return;
}

void print_muted_output() {
    if (ended_normally || muted_output < 0 || launcher_output < 0) return;
    copy(muted_output, launcher_output);
    unmute();
    warn(fmt::format("error: rank {} on host {} was ended by {}", rank_here, host_name(),
                     launch_from_environment().library == "mpich" ? "MPICH" : "Open MPI"));
    std::this_thread::sleep_for(kNoticeTime);
}

}  // namespace

void mark_normal_end() {
    ended_normally = true;
}

void set_advice_on_lost_rank(std::function<std::string()> advice) {
    advice_here() = std::move(advice);
}

std::string advice_on_lost_rank(const RankError& error) {
    return error.first_lost >= 0 && advice_here() ? advice_here()() : "";
}

void begin_as_rank() {
    const Launch launch = launch_from_environment();
    if (launch.size == 1) return;
    rank_here = launch.rank;
    choose_gpu(launch);
    if (launch.rank == 0) return;
    muted_output = ::memfd_create("log of a rank", MFD_CLOEXEC);
    launcher_output = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (muted_output >= 0) redirect_output(muted_output), muted = true;
    std::atexit(print_muted_output);
}

void check_command_for_ranks(const std::string& command) {
    constexpr std::array kTogether{"train", "validate", "check", "bench"};
    const Launch launch = launch_from_environment();
    const bool together = std::ranges::find(kTogether, command) != kTogether.end();
    check<UsageError>(launch.size == 1 || together, "{} {} is for one process, and {} started {}", program_name(),
                      command, launch.by, launch.size);
    set_world_command(command);
    on_world_wait([](const std::string& what) { warn(what); });
}

void unmute_if_first_is_lost(const RankError& error) {
    if (rank_here == 1 && error.first_lost == 0) unmute();
}

void unmute() {
    if (launcher_output >= 0) ::dup2(launcher_output, STDERR_FILENO);
    muted = false;
}

std::string unmute_if_failed_alone() {
    if (launcher_output < 0 || world_joined()) return "";
    constexpr auto kEvery = std::chrono::milliseconds(50), kPatience = std::chrono::milliseconds(10000);
    const Launch launch = launch_from_environment();
    const RollCall seen(launch);
    bool alone = false;
    for (auto waited = kEvery; !alone && waited < kPatience; waited += kEvery) {
        std::this_thread::sleep_for(kEvery);
        alone = launch.local_rank > 0 && waits_to_be_joined(launch.rank - launch.local_rank);
    }
    // Where the first rank of all is on another machine, nobody sees whether it is well.
    if (!alone && (launch.local_rank > 0 || launch.rank == launch.local_rank)) return "";
    unmute();
    std::this_thread::sleep_for(kNoticeTime);
    return fmt::format("rank {} on host {}: ", launch.rank, host_name());
}

void wait_for_first_to_report() {
    if (muted && world_joined()) std::this_thread::sleep_for(kReportTime);
}

bool launcher_has_terminal() {
    // Open MPI gives its first process a terminal, wherever mpirun itself writes to.
    const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
    if (size == nullptr) return true;
    for (pid_t process = ::getppid(); process > 1;) {
        std::ifstream stat(fmt::format("/proc/{}/stat", process));
        const std::string text{std::istreambuf_iterator<char>(stat), {}};
        const std::size_t begin = text.find('('), end = text.rfind(')');
        if (begin == text.npos || end == text.npos || end + 4 > text.size()) return true;
        const std::string name = text.substr(begin + 1, end - begin - 1);
        if (name.starts_with("mpirun") || name.starts_with("mpiexec") || name.starts_with("orte") || name == "orted" ||
            name.starts_with("prte")) {
            std::error_code error;
            const std::string output =
                std::filesystem::read_symlink(fmt::format("/proc/{}/fd/1", process), error).string();
            return error ? true : output.starts_with("/dev/pts/") || output.starts_with("/dev/tty");
        }
        process = pid_t(std::atoi(text.c_str() + end + 4));  // "(name) S parent"
    }
    return true;
}

void log_into(const std::filesystem::path& run) {
    if (muted_output < 0) return;
    const std::filesystem::path folder = run / "logs", file = folder / fmt::format("rank-{}.log", rank_here);
    try {
        make_folders(folder);
    } catch (const IoError&) {
        return;  // the first rank will say why nothing can be written there
    }
    const int log = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (log < 0) return;
    copy(muted_output, log);
    redirect_output(log);
    ::close(log);
    ::close(muted_output);
    muted_output = -1;
}

void end_as_rank() {
    leave_world();
}

}  // namespace invar::cli
