#include "invar/cli/signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <system_error>
#include <thread>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/io/temporary_folder.h"
#include "invar/train/trainer.h"

namespace invar::cli {

namespace {

struct Handled {
    int number;
    const char* name;
    struct sigaction before {};
    bool ours = false;
};
Handled handled[] = {
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGXCPU, "SIGXCPU"}};

std::atomic<int> first_signal = 0;
std::atomic<std::int64_t> first_at = 0;  // milliseconds

// One request may arrive as several signals: timeout(1) sends its own to the process and then to its group, a terminal
// that goes away sends SIGHUP through its shell and through the kernel. Whoever insists takes longer.
constexpr std::int64_t kSameRequestMs = 500;

std::int64_t now_ms() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

const char* name_of_signal(int number) {
    for (const Handled& each : handled)
        if (each.number == number) return each.name;
    return "a signal";
}

void on_signal(int number) {
    if (first_signal == 0) {
        first_at = now_ms();
        first_signal = number;
        Trainer::request_stop(name_of_signal(number), number);
        return;
    }
    // SIGHUP, SIGUSR1 and SIGXCPU, which comes again with every second, never mean more than the first time.
    if ((number != SIGINT && number != SIGTERM) || now_ms() - first_at < kSameRequestMs) return;
    ::signal(number, SIG_DFL);
    ::raise(number);
}

// In a thread that does nothing else, so that anything may be done here.
void on_end(int number) {
    TemporaryFolder::remove_every();
    ::signal(number, SIG_DFL);
    ::raise(number);
}

// Where a signal would end us, temporary folders go first.
void clean_up_on_signal() {
    struct sigaction action {};
    action.sa_handler = on_end;
    action.sa_flags = SA_RESTART;
    sigfillset(&action.sa_mask);  // once is enough
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction before {};
        if (::sigaction(number, nullptr, &before) == 0 && before.sa_handler == SIG_DFL)
            ::sigaction(number, &action, nullptr);
    }
}

}  // namespace

void let_writes_fail() {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);
}

void take_signals_aside() {
    sigset_t ours, before;
    sigemptyset(&ours);
    for (const Handled& each : handled) sigaddset(&ours, each.number);
    if (::pthread_sigmask(SIG_BLOCK, &ours, &before) != 0) return;
    try {
        std::thread([before] {
            ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
            for (;;) ::pause();
        }).detach();
        clean_up_on_signal();
    } catch (const std::system_error&) {  // no thread to be had: then here after all
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
}

StopOnSignal::StopOnSignal() {
    first_signal = 0;
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;  // files are still being read and written
    for (Handled& each : handled) {
        ::sigaction(each.number, nullptr, &each.before);
        each.ours = each.before.sa_handler != SIG_IGN;
        if (each.ours) ::sigaction(each.number, &action, nullptr);
    }
}

StopOnSignal::~StopOnSignal() {
    for (Handled& each : handled)
        if (each.ours) ::sigaction(each.number, &each.before, nullptr);
}

void StopOnSignal::adopt(int number) {
    int none = 0;
    first_signal.compare_exchange_strong(none, number);
}

bool StopOnSignal::requested() {
    return first_signal != 0;
}

const char* StopOnSignal::name() {
    return name_of_signal(first_signal);
}

int StopOnSignal::exit_code() {
    return 128 + first_signal;
}

StopBetweenWrites::StopBetweenWrites(int& exit_code)
    : watch_([&exit_code](FileAct, const std::filesystem::path& file) {
          if (!is_temporary(file) || !StopOnSignal::requested()) return;
          exit_code = StopOnSignal::exit_code();
          fail("interrupted by {}; nothing was written", StopOnSignal::name());
      }) {}

}  // namespace invar::cli
