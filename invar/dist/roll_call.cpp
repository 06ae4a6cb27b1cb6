#include "invar/dist/roll_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

namespace invar {

namespace {

// What the processes of one launch have in common, and those of others do not.
std::string name_of_launch() {
    const auto value = [](const char* name) {
        const char* const text = std::getenv(name);
        return std::string(text != nullptr ? text : "");
    };
    if (const std::string space = value("PMIX_NAMESPACE"); !space.empty()) return space;
    if (const std::string job = value("SLURM_JOB_ID"); !job.empty()) return job + "." + value("SLURM_STEP_ID");
    return std::to_string(::getppid());  // MPICH starts those of a machine from one process
}

// Of Linux's abstract names: they are no files, and go with the process.
struct Address {
    sockaddr_un address{};
    socklen_t length = 0;
    explicit Address(int rank) {
        const std::string name = fmt::format("invar/{}/{}/{}", ::getuid(), name_of_launch(), rank);
        address.sun_family = AF_UNIX;
        const std::size_t used = std::min(name.size(), sizeof address.sun_path - 1);
        std::memcpy(address.sun_path + 1, name.data() + (name.size() - used), used);  // the end tells ranks apart
        length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + used);
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// The process that listens for a rank on this machine; 0: none does.
pid_t process_of(int rank) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const Address address(rank);
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool found = ::connect(socket, address.get(), address.length) == 0 &&
                       ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    ::close(socket);
    return found ? peer.pid : 0;
}

bool is_stopped(pid_t process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t name_ends = text.rfind(')');
    return name_ends != text.npos && name_ends + 2 < text.size() && std::strchr("tT", text[name_ends + 2]) != nullptr;
}

}  // namespace

bool waits_to_be_joined(int rank) {
    return process_of(rank) != 0;
}

std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

RollCall::RollCall(const Launch& launch) : launch_(launch) {
    socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const Address address(launch.rank);
    // Where it does not work, this rank is taken for one that has not come, and only if somebody has to be found.
    if (socket_ >= 0 && ::bind(socket_, address.get(), address.length) == 0) ::listen(socket_, 1024);
}

RollCall::~RollCall() {
    if (socket_ >= 0) ::close(socket_);
}

void RollCall::look() {
    for (int rank = 0; rank < launch_.size; ++rank)
        if (!seen_.contains(rank) && process_of(rank) != 0) seen_.insert(rank);
}

RollCall::Missing RollCall::missing() {
    look();
    const bool sees_all = launch_.local_size == launch_.size;
    std::vector<int> here, absent, ended;
    bool all_before_lost = launch_.rank > 0;
    std::vector<std::string> stopped;
    for (int rank = 0; rank < launch_.size; ++rank) {
        const pid_t process = rank == launch_.rank ? ::getpid() : process_of(rank);
        (process != 0 ? here : seen_.contains(rank) ? ended : absent).push_back(rank);
        const bool is_still = process != 0 && is_stopped(process);
        if (rank < launch_.rank) all_before_lost = all_before_lost && (is_still || (sees_all && !seen_.contains(rank)));
        if (is_still)
            stopped.push_back(fmt::format("rank {} on host {} is stopped (process {})", rank, host_name(), process));
    }
    Missing result{"", !stopped.empty(), !ended.empty(), here.front(), all_before_lost};
    const auto names = [](const std::vector<int>& ranks, const char* of_one, const char* of_several) {
        return fmt::format("rank{} {} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                           ranks.size() == 1 ? of_one : of_several);
    };
    if (!stopped.empty())
        result.who = fmt::format("{}", fmt::join(stopped, ", "));
    else if (!ended.empty())
        result.who = fmt::format("{} ended, as seen from host {}", names(ended, "has", "have"), host_name());
    else if (sees_all && !absent.empty())
        result.who = fmt::format("{} not come, as seen from host {}", names(absent, "has", "have"), host_name());
    else if (int(here.size()) < launch_.local_size)
        result.who = fmt::format("of the {} ranks on host {} only {} came", launch_.local_size, host_name(),
                                 fmt::join(here, ", "));
    return result;
}

}  // namespace invar
