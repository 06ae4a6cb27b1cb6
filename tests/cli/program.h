// What the tests of cli/ share: the real program run in a folder of its own, its output, and its exit code.
#pragma once

#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace invar::cli {

inline bool has(std::string_view text, std::string_view part) {
    return text.find(part) != text.npos;
}

inline std::string slurp(const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

struct Result {
    int code = -1;  // 128 + the signal where one ended it
    std::string out, err;
    // The one line on standard error, without "invar: error: ".
    std::string error() const {
        constexpr std::string_view kStart = "invar: error: ";
        EXPECT_TRUE(err.starts_with(kStart)) << err;
        EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
        return err.size() > kStart.size() ? err.substr(kStart.size()) : "";
    }
};

// A folder to run the program in; it goes away with the test.
class CliTest : public ::testing::Test {
  protected:
    CliTest() {
        std::string name = (std::filesystem::temp_directory_path() / "invar_cli_XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
    }
    ~CliTest() override {
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }
    std::filesystem::path operator/(std::string_view name) const { return folder_ / name; }

    using Words = std::vector<std::string>;
    // A small run on made-up data: 10 steps of an mlp.
    static Words small(const Words& more = {}, const Words& before = {"train"}) {
        Words words = before;
        for (const char* word :
             {"data=synthetic", "data.size=160", "data.height=6", "data.width=6", "data.batch_size=16", "model=mlp",
              "model.hidden=[8]", "trainer.log_every_n_steps=1", "data.num_workers=0", "trainer.threads=1"})
            words.emplace_back(word);
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }

    // The same with 40 steps, after which it tells nine images out of ten.
    static Words learner(const Words& more = {}, const Words& before = {"train"}) {
        Words words = small({"data.size=640", "optimizer.lr=0.03"}, before);
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }

    // A run of a small GPT, in runs/cats, on a text of one sentence over and over.
    Result train_gpt(const Words& more = {}) const {
        std::ofstream text(folder_ / "text.txt");
        for (int i = 0; i < 400; ++i) text << "the cat sat on the mat. ";
        text.close();
        Words words = {"train", "gpt"};
        for (const char* word : {"data.path=text.txt", "data.length=32", "model.layers=1", "model.heads=2",
                                 "model.width=32", "data.batch_size=8", "trainer.max_epochs=8", "optimizer.lr=0.01",
                                 "exp_name=cats", "trainer.threads=1", "trainer.device=cpu"})
            words.emplace_back(word);
        words.insert(words.end(), more.begin(), more.end());
        return invar(words);
    }

    Result invar(const Words& words, const std::string& in = "") const {
        const pid_t child = start(words, in);
        return finish(child, in);
    }
    // Starts it with its output going to files of the folder.
    pid_t start(const Words& words, const std::string& in = "") const {
        const std::filesystem::path home = folder_ / in;
        std::filesystem::create_directories(home);
        const pid_t child = ::fork();
        if (child == 0) {
            if (::chdir(home.c_str()) != 0) ::_exit(99);
            ::setenv("XDG_STATE_HOME", (folder_ / ".state").c_str(), 1);  // never the user's own
            if (::freopen(".out", "w", stdout) == nullptr || ::freopen(".err", "w", stderr) == nullptr) ::_exit(99);
            execute(words);
        }
        return child;
    }
    // A script for bash, in which `invar` is the program. What may hang it should run under `timeout`.
    Result shell(const std::string& script) const {
        const pid_t child = ::fork();
        if (child == 0) {
            if (::chdir(folder_.c_str()) != 0) ::_exit(99);
            ::setenv("XDG_STATE_HOME", (folder_ / ".state").c_str(), 1);
            ::setenv("PATH", (std::string(INVAR_BINARY_DIR "/bin:") + std::getenv("PATH")).c_str(), 1);
            if (::freopen(".out", "w", stdout) == nullptr || ::freopen(".err", "w", stderr) == nullptr) ::_exit(99);
            prepare();
            ::execlp("bash", "bash", "-c", script.c_str(), nullptr);
            ::_exit(98);
        }
        return finish(child);
    }
    // The words of small() for a script.
    static std::string small_words(const Words& more = {}) {
        std::string text;
        for (const std::string& word : small(more, {})) text += " '" + word + "'";
        return text;
    }
    Result finish(pid_t child, const std::string& in = "") const {
        int status = 0;
        ::waitpid(child, &status, 0);
        return {exit_code(status), slurp(folder_ / in / ".out"), slurp(folder_ / in / ".err")};
    }
    // Whether this system lends pseudo-terminals; a bare chroot does not.
    static bool lends_terminals() {
        int ours = -1, theirs = -1;
        if (::openpty(&ours, &theirs, nullptr, nullptr, nullptr) != 0) return false;
        ::close(ours);
        ::close(theirs);
        return true;
    }
    // With a terminal of so many columns; everything it showed is in `out`.
    Result on_terminal(const Words& words, unsigned short columns = 120) const {
        winsize size{40, columns, 0, 0};
        int terminal = -1;
        const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
        if (child == 0) {
            ::setenv("TERM", "xterm", 1);
            ::setenv("XDG_STATE_HOME", (folder_ / ".state").c_str(), 1);
            if (::chdir(folder_.c_str()) != 0) ::_exit(99);
            execute(words);
        }
        Result result;
        char buffer[4096];
        for (ssize_t n = 0; (n = ::read(terminal, buffer, sizeof buffer)) > 0;)
            result.out.append(buffer, std::size_t(n));
        int status = 0;
        ::waitpid(child, &status, 0);
        ::close(terminal);
        result.code = exit_code(status);
        return result;
    }

    std::vector<std::string> lines(const std::filesystem::path& file) const {
        std::vector<std::string> all;
        std::ifstream in(folder_ / file);
        for (std::string line; std::getline(in, line);) all.push_back(line);
        return all;
    }

    std::filesystem::path folder_;

  private:
    // As a user's shell starts it, whatever the test itself was started by.
    static void prepare() {
        ::unsetenv("INVAR_CONFIG_DIR");
        ::unsetenv("NO_COLOR");
        for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) ::signal(number, SIG_DFL);
    }
    [[noreturn]] static void execute(Words words) {
        prepare();
        std::string program = INVAR_BINARY_DIR "/bin/invar";
        std::vector<char*> argv = {program.data()};
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        ::execv(program.c_str(), argv.data());
        ::_exit(98);
    }
    static int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }
};

}  // namespace invar::cli
