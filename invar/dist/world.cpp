// Open MPI and MPICH are strangers to each other's programs: a small library of ours for each is loaded when it is
// needed, so that a program starts where neither is.
#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "invar/core/error.h"
#include "invar/core/loaded_from.h"
#include "invar/dist/communicator.h"
#include "invar/dist/launcher.h"
#include "invar/dist/roll_call.h"

namespace invar {

namespace {

std::atomic<bool> hurries = false;
constexpr std::chrono::milliseconds kLookEvery(100);  // whether somebody wants us to stop
constexpr int kCallEvery = 5;                         // looks: who is here
constexpr double kMostBetween = 1;                    // seconds: for longer this process itself was stopped
constexpr double kPatience = 10;                      // times the time-out, for those who may be on their way

std::atomic<double>& timeout_seconds() {
    static std::atomic<double> seconds = 30.0;
    return seconds;
}

std::function<void(const std::string&)>& waiting_here() {
    static std::function<void(const std::string&)> told;
    return told;
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
    const std::string so =
        fmt::format("{} started {} processes of {}", launch.by, launch.size, people_say(launch.library));
    std::error_code error;
    check<UsageError>(
        std::filesystem::exists(path, error),
        "{}, but this build cannot join them: {} is not there; build with lib{}-dev, or start one process", so,
        path.filename().string(), launch.library);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // Open MPI's own parts look for its symbols
    if (library == nullptr) {
        const char* const reason = dlerror();
        fail<UsageError>("{}, but its library cannot be loaded: {}", so, reason != nullptr ? reason : path.string());
    }
    const auto start = reinterpret_cast<TransportStart>(dlsym(library, kTransportStart));
    check<UsageError>(start != nullptr, "{} is of another version of Invar", path.string());
    return start;
}

// The library waits for all ranks without an end. A thread of its own waits with it, which is left behind where they do
// not come; whoever is stopped is not waited for longer than a time-out.
std::unique_ptr<Communicator> make_within(double seconds, const Launch& launch,
                                          const std::function<std::unique_ptr<Transport>()>& start) {
    using Clock = std::chrono::steady_clock;
    using Joined = std::promise<std::unique_ptr<Communicator>>;
    RollCall roll(launch);
    const auto promise = std::make_shared<Joined>();
    std::future<std::unique_ptr<Communicator>> result = promise->get_future();
    std::thread([promise, start] {
        try {
            promise->set_value(make_communicator(start));
        } catch (...) {
            promise->set_exception(std::current_exception());
        }
    }).detach();
    Clock::time_point last = Clock::now();
    double waited = 0;
    bool told = false;
    for (;;) {
        const double round = waited + std::min(timeout_seconds().load(), seconds);
        for (int looks = 0; waited < round && !hurries; ++looks) {
            const std::chrono::duration<double> left(round - waited);
            if (result.wait_for(std::min<std::chrono::duration<double>>(left, kLookEvery)) == std::future_status::ready)
                return result.get();
            const Clock::time_point now = Clock::now();
            waited += std::min(std::chrono::duration<double>(now - std::exchange(last, now)).count(), kMostBetween);
            if (looks % kCallEvery == 0) roll.look();
        }
        const RollCall::Missing missing = roll.missing();
        std::string who = missing.who;
        if (who.empty())
            who = launch.local_size == launch.size
                      ? fmt::format("all of them run, and {} has not joined them yet", people_say(launch.library))
                      : fmt::format("all of host {} are here, and others are not", host_name());
        if (waited < seconds && !missing.stopped && !missing.ended && !hurries) {
            if (launch.rank == 0 && waiting_here() && !std::exchange(told, true))
                waiting_here()(fmt::format("waiting for the {} ranks that {} started, for {:.0f} s at most: {}",
                                           launch.size, launch.by, seconds, who));
            continue;
        }
        // Who is gone may have been joined just now: then so are we.
        if (missing.ended && result.wait_for(std::chrono::seconds(2)) == std::future_status::ready) return result.get();
        const bool first_elsewhere = missing.first_here == launch.rank && launch.rank != launch.local_rank;
        const bool says_it = !missing.who.empty() && (first_elsewhere || missing.all_before_lost);
        // The first process that ends takes the others with it: not before those have spoken who do.
        if (launch.rank > 0 && !says_it) std::this_thread::sleep_for(std::chrono::seconds(2));
        throw MissingRanks(fmt::format("the {} ranks that {} started have not come together: {} (waited {:.0f} s)",
                                       launch.size, launch.by, who, waited),
                           says_it);
    }
}

std::string& command_here() {
    static std::string command;
    return command;
}

std::unique_ptr<Communicator> join(double seconds) {
    const Launch launch = launch_from_environment();
    if (launch.size == 1) return make_alone();
    const TransportStart start = find_start(launch);
    const TransportTimeout timeout(std::int64_t(timeout_seconds() * 1000));
    std::unique_ptr<Communicator> ranks = make_within(seconds, launch, [=] {
        std::string why;
        std::unique_ptr<Transport> transport(start(timeout, why));
        check(transport != nullptr, "{} cannot be started: {}", people_say(launch.library), why);
        check(transport->size() == launch.size && transport->rank() == launch.rank,
              "{} says that this is rank {} of {}, the launcher that it is rank {} of {}; are they of the same "
              "installation?",
              people_say(launch.library), transport->rank(), transport->size(), launch.rank, launch.size);
        return transport;
    });
    ranks->check_same("the commands", command_here());
    return ranks;
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
    return join_world(kPatience * timeout_seconds());
}

void set_world_command(const std::string& command) {
    const std::lock_guard lock(joining());
    command_here() = command;
}

void on_world_wait(std::function<void(const std::string&)> told) {
    const std::lock_guard lock(joining());
    waiting_here() = std::move(told);
}

Communicator& join_world(double seconds) {
    const std::lock_guard lock(joining());
    if (!joined()) joined() = join(seconds);
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

bool world_joined() noexcept {
    const std::lock_guard lock(joining());
    return joined() != nullptr;
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
