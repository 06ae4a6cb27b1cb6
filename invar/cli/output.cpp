#include "invar/cli/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>

#include "invar/core/printable.h"
#include "invar/core/shell.h"

namespace invar::cli {

namespace {

int first_error = 0;

// 0, or why it could not be written.
int write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t put = ::write(descriptor, text.data(), text.size());
        if (put >= 0) {
            text.remove_prefix(static_cast<std::size_t>(put));
        } else if (errno == EAGAIN) {  // somebody who shares our terminal made it so
            pollfd ready{descriptor, POLLOUT, 0};
            ::poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

void write_out(std::string_view text) {
    const int error = write_all(STDOUT_FILENO, text);
    if (first_error == 0) first_error = error;
}

// Fit to be shown, with the colours in it turned into what a terminal understands.
std::string shown(std::string_view text) {
    std::string out;
    for (;;) {
        const std::size_t at = text.find(colour_mark());
        out += printable_lines(text.substr(0, at));
        if (at == text.npos) return out;
        text.remove_prefix(at + colour_mark().size());
        const std::size_t end = text.find('m');
        out.append("\x1b[").append(text.substr(0, end)).append("m");
        text.remove_prefix(end + 1);
    }
}

}  // namespace

void occupy_standard_descriptors() {
    for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
        // Opened the wrong way round, so that using it fails as it did when it was closed. The lowest number that is
        // free is this one.
        (void)!::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

void print(std::string_view text) {
    write_out(shown(text));
}

void say(std::string_view line) {
    write_out(shown(line) + "\n");
}

void warn(std::string_view line) {
    (void)write_all(STDERR_FILENO, fmt::format("{}: {}\n", program_name(), printable(line)));
}

void print_between(std::string_view before, std::string_view text, std::string_view after) {
    write_out(std::string(before).append(shown(text)).append(after));
}

int output_error() {
    return first_error;
}

std::string output_error_text() {
    return std::generic_category().message(first_error);
}

const std::string& colour_mark() {
    static const std::string mark = [] {
        std::random_device random;
        return fmt::format("\x1b{:08x}{:08x};", random(), random());
    }();
    return mark;
}

}  // namespace invar::cli
