// A terminal to run the program on that can be written to and resized while it runs.
#pragma once

#include <sys/ioctl.h>

#include "tests/cli/program.h"

namespace invar::cli {

class TerminalTest : public CliTest {
  protected:
    void SetUp() override {
        if (!lends_terminals()) GTEST_SKIP() << "no pseudo-terminal can be opened on this system";
    }
    // As on_terminal(); `watch` sees what is shown as it comes.
    Result watched(const Words& words, unsigned short columns,
                   const std::function<void(int terminal, const std::string& shown)>& watch) const {
        const winsize size{40, columns, 0, 0};
        int terminal = -1;
        const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
        if (child == 0) {
            ::setenv("TERM", "xterm", 1);
            ::setenv("XDG_STATE_HOME", (folder_ / ".state").c_str(), 1);
            for (const char* name : {"INVAR_CONFIG_DIR", "NO_COLOR"}) ::unsetenv(name);
            if (::chdir(folder_.c_str()) != 0) ::_exit(99);
            std::vector<const char*> argv = {INVAR_BINARY_DIR "/bin/invar"};
            for (const std::string& word : words) argv.push_back(word.c_str());
            argv.push_back(nullptr);
            ::execv(argv[0], const_cast<char* const*>(argv.data()));
            ::_exit(98);
        }
        Result result;
        char buffer[4096];
        for (ssize_t n = 0; (n = ::read(terminal, buffer, sizeof buffer)) > 0;) {
            result.out.append(buffer, std::size_t(n));
            watch(terminal, result.out);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        ::close(terminal);
        result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return result;
    }
    // Columns of a line without its colours.
    static std::size_t columns_of(std::string_view line) {
        std::size_t columns = 0;
        bool escape = false;
        for (const char byte : line) {
            const auto c = static_cast<unsigned char>(byte);
            if (c == '\x1b')
                escape = true;
            else if (escape)
                escape = !std::isalpha(c);
            else
                columns += (c & 0xc0) != 0x80 && c >= ' ';
        }
        return columns;
    }
};

}  // namespace invar::cli
