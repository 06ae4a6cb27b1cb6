// Open MPI and MPICH are strangers to each other's programs: a small library of ours for each is loaded when it is
// needed, so that a program starts where neither is.
#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <utility>

#include "invar/core/error.h"
#include "invar/core/loaded_from.h"
#include "invar/dist/communicator.h"
#include "invar/dist/launcher.h"

namespace invar {

namespace {

std::atomic<bool> hurries = false;

double& timeout_seconds() {
    static double seconds = 30.0;
    return seconds;
}

std::unique_ptr<Communicator>& joined() {
    static std::unique_ptr<Communicator> communicator;
    return communicator;
}

const char* people_say(const std::string& library) {
    return library == "mpich" ? "MPICH" : "Open MPI";
}

TransportStart find_start(const Launch& launch) {
    const std::filesystem::path path =
        loaded_from(reinterpret_cast<void*>(&world)) / fmt::format("libinvar_{}.so", launch.library);
    const std::string so = fmt::format("{} started {} processes of {}", launch.by, launch.size,
                                       people_say(launch.library));
    std::error_code error;
    check<UsageError>(std::filesystem::exists(path, error),
                      "{}, but this build cannot join them: {} is not there; build with lib{}-dev, or start one process",
                      so, path.filename().string(), launch.library);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // Open MPI's own parts look for its symbols
    if (library == nullptr) {
        const char* const reason = dlerror();
        fail<UsageError>("{}, but its library cannot be loaded: {}", so, reason != nullptr ? reason : path.string());
    }
    const auto start = reinterpret_cast<TransportStart>(dlsym(library, kTransportStart));
    check<UsageError>(start != nullptr, "{} is of another version of Invar", path.string());
    return start;
}

std::unique_ptr<Communicator> join() {
    const Launch launch = launch_from_environment();
    if (launch.size == 1) return make_alone();
    const TransportStart start = find_start(launch);
    const TransportTimeout timeout(std::int64_t(timeout_seconds() * 1000));
    return make_communicator([=] {
        std::string why;
        std::unique_ptr<Transport> transport(start(timeout, why));
        check(transport != nullptr, "{} cannot be started: {}", people_say(launch.library), why);
        check(transport->size() == launch.size && transport->rank() == launch.rank,
              "{} says that this is rank {} of {}, the launcher that it is rank {} of {}; are they of the same "
              "installation?",
              people_say(launch.library), transport->rank(), transport->size(), launch.rank, launch.size);
        return transport;
    });
}

Communicator*& world_of_thread() {
    thread_local Communicator* ranks = nullptr;
    return ranks;
}

std::mutex& joining() {
    static std::mutex mutex;
    return mutex;
}

}  // namespace

Communicator& world() {
    if (world_of_thread() != nullptr) return *world_of_thread();
    const std::lock_guard lock(joining());
    if (!joined()) joined() = join();
    return *joined();
}

WorldScope::WorldScope(Communicator& ranks) : previous_(std::exchange(world_of_thread(), &ranks)) {}
WorldScope::~WorldScope() {
    world_of_thread() = previous_;
}

void leave_world() {
    const std::lock_guard lock(joining());
    joined().reset();
}

void fail_world(const std::string& why) noexcept {
    const std::lock_guard lock(joining());
    if (joined()) joined()->leave(why);
}

void hurry_world() noexcept {
    hurries = true;
}

bool world_hurries() noexcept {
    return hurries;
}

void set_rank_timeout(double seconds) {
    timeout_seconds() = seconds;
}

}  // namespace invar
