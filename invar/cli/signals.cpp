#include "invar/cli/signals.h"

#include <signal.h>

#include "invar/train/trainer.h"

namespace invar {

namespace {

struct Handled {
    int number;
    const char* name;
    struct sigaction before {};
    bool ours = false;
};
Handled handled[] = {
    {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGXCPU, "SIGXCPU"}};

volatile sig_atomic_t first_signal = 0;

const char* name_of_signal(int number) {
    for (const Handled& each : handled)
        if (each.number == number) return each.name;
    return "a signal";
}

void on_signal(int number) {
    if (first_signal == 0) {
        first_signal = number;
        Trainer::request_stop(name_of_signal(number));
    }
    // From here on Ctrl-C and SIGTERM do what they do by themselves. A terminal that goes away sends SIGHUP twice, once
    // through its shell and once through the kernel, and means one; SIGXCPU comes again with every second.
    for (const Handled& each : handled)
        if (each.ours && (each.number == SIGINT || each.number == SIGTERM)) ::signal(each.number, SIG_DFL);
}

}  // namespace

void let_writes_fail() {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);
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

bool StopOnSignal::requested() {
    return first_signal != 0;
}

const char* StopOnSignal::name() {
    return name_of_signal(first_signal);
}

int StopOnSignal::exit_code() {
    return 128 + first_signal;
}

}  // namespace invar
