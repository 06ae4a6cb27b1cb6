#include "invar/cli/aside.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "invar/kernels/kernels.h"

namespace invar::cli {

namespace {

constexpr auto kPatience = std::chrono::seconds(60);  // for work of milliseconds, on a machine that others use too

[[noreturn]] void be_the_child(const std::function<void()>& work) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    set_threads(1);
    try {
        work();
    } catch (const std::exception&) {  // an error that is said is no death: the parent meets it again
    }
    _exit(0);
}

std::string end_of(pid_t child) {
    int status = 0;
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (std::chrono::steady_clock::now() > until) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return "it does not come to an end";
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (WIFSIGNALED(status)) return fmt::format("it ends the program: {}", strsignal(WTERMSIG(status)));
    return WEXITSTATUS(status) == 0 ? "" : fmt::format("it ends the program with status {}", WEXITSTATUS(status));
}

}  // namespace

std::string try_aside(const std::function<void()>& work) {
    std::string why;
    // A thread of its own has no team of OpenMP threads yet: a child that inherits one waits for threads that are not
    // there.
    std::jthread([&] {
        const pid_t child = fork();
        if (child == 0) be_the_child(work);
        if (child > 0) why = end_of(child);  // where there can be none, the work is tried here and now
    }).join();
    return why;
}

}  // namespace invar::cli
