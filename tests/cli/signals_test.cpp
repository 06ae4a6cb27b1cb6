// Signals, as shells, nohup, batch systems and vanishing terminals send them.
#include <fmt/ranges.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Signals : public CliTest {
  protected:
    static Words endless() { return small({"trainer.max_epochs=100000"}); }
    void await_steps(std::size_t more = 2000) const {
        const auto metrics = folder_ / "runs/run/metrics.jsonl";
        const std::size_t wanted = slurp(metrics).size() + more;
        for (int i = 0; i < 4000 && slurp(metrics).size() < wanted; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    nlohmann::json summary() const {
        return nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json"), nullptr, false);
    }
};

TEST_F(Signals, EachOneSavesAndStopsWithItsOwnExitCode) {
    const std::pair<int, const char*> cases[] = {
        {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}, {SIGXCPU, "SIGXCPU"}};
    for (const auto& [number, name] : cases) {
        SCOPED_TRACE(name);
        std::filesystem::remove_all(folder_ / "runs");
        const pid_t child = start(endless());
        await_steps();
        // timeout(1) sends it twice, and so does a terminal that goes away; a limit on time does every second.
        ::kill(child, number);
        ::kill(child, number);
        const Result result = finish(child);
        EXPECT_EQ(result.code, 128 + number) << result.err;
        EXPECT_TRUE(has(result.out, std::string("interrupted by ") + name)) << result.out;
        EXPECT_TRUE(has(result.err, std::string("interrupted by ") + name)) << result.err;
        EXPECT_EQ(summary().at("status"), "interrupted");
        EXPECT_EQ(summary().at("interrupted_by"), name);
        EXPECT_FALSE(std::filesystem::is_empty(folder_ / "runs/run/checkpoints"));
    }
}

// A handler that ran on a thread inside one of oneDNN's products was seen to damage the heap.
TEST_F(Signals, ReachNoThreadThatComputes) {
    const pid_t child = start(endless());
    await_steps();
    std::vector<std::string> open;  // threads that take SIGTERM
    for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", child))) {
        const std::string status = slurp(task.path() / "status");
        const std::size_t at = status.find("SigBlk:");
        ASSERT_NE(at, std::string::npos);
        const std::uint64_t blocked = std::stoull(status.substr(at + 7), nullptr, 16);
        if ((blocked >> (SIGTERM - 1) & 1) == 0) open.push_back(task.path().filename().string());
    }
    ::kill(child, SIGKILL);
    finish(child);
    ASSERT_EQ(open.size(), 1u) << fmt::format("{}", fmt::join(open, " "));
    EXPECT_NE(open[0], std::to_string(child)) << "the main thread trains";
}

TEST_F(Signals, UnderNohupAHangUpIsIgnored) {
    const std::string script =
        "trap '' HUP; invar train" + small_words({"trainer.max_epochs=100000"}) +
        " >log 2>&1 & run=$!; n=0; until [ -s runs/run/metrics.jsonl ] || [ $n = 400 ]; do sleep 0.05; "
        "n=$((n+1)); done; kill -HUP $run; sleep 0.3; kill -0 $run && echo alive; "
        "kill -TERM $run; wait $run; echo code $?";
    const Result result = shell(script);
    EXPECT_EQ(result.out, "alive\ncode 143\n") << result.err;
}

TEST_F(Signals, ASecondOneEndsAtOnce) {
    // A pipe that nobody reads holds the run up, so that it cannot stop by itself.
    const std::string script = "mkfifo pipe; sleep 1000 <>pipe & reader=$!; invar train" +
                               small_words({"trainer.max_epochs=100000"}) +
                               " >pipe & run=$!; n=0; until [ -s runs/run/metrics.jsonl ] || [ $n = 400 ]; do sleep "
                               "0.05; n=$((n+1)); done; sleep 1; kill -TERM $run; sleep 0.7; kill -TERM $run; wait "
                               "$run; echo code $?; kill $reader";
    EXPECT_EQ(shell(script).out, "code 143\n");
}

TEST_F(Signals, ALimitOnFileSizesIsToldInWords) {
    const Result result = shell("ulimit -f 1; invar init w.safetensors" + small_words({"model.hidden=[64]"}));
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_TRUE(has(result.error(), "File too large")) << result.err;
    EXPECT_TRUE(has(result.err, "w.safetensors")) << result.err;
}

}  // namespace
}  // namespace invar::cli
