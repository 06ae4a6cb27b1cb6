// What happens when nobody listens: terminals, pipes and disks that are full, closed or gone.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Output : public CliTest {
  protected:
    // That the run of this name went to its end, with every step logged.
    void expect_finished(const std::string& name = "run") const {
        const auto summary = nlohmann::json::parse(slurp(folder_ / "runs" / name / "summary.json"), nullptr, false);
        ASSERT_TRUE(summary.is_object());
        EXPECT_EQ(summary.at("status"), "finished");
        EXPECT_EQ(summary.at("steps"), 10);
        EXPECT_EQ(lines("runs/" + name + "/metrics.jsonl").size(), 11u) << "ten steps and a validation";
        EXPECT_TRUE(std::filesystem::exists(folder_ / "runs" / name / "checkpoints/step_00000010.safetensors"));
    }
    bool is_sanitized() { return shell("grep -qa '__[at]san_' \"$(command -v invar)\"").code == 0; }
    // Every file of the run folder that holds these words.
    std::string files_with(std::string_view words) const {
        std::string found;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "runs"))
            if (entry.is_regular_file() && has(slurp(entry.path()), words)) found += entry.path().string() + " ";
        return found;
    }
};

TEST_F(Output, AFullStandardErrorCostsNothing) {
    EXPECT_EQ(shell("invar train" + small_words({"--mixed_precision", "fp16"}) + " 2>/dev/full").code, 0);
    expect_finished();
    EXPECT_EQ(shell("invar train nosuch 2>/dev/full").code, 2);
    EXPECT_EQ(shell("invar train nosuch 2>&-").code, 2);
    EXPECT_EQ(shell("invar formats >/dev/full 2>/dev/full").code, 2);
}

TEST_F(Output, AFullStandardOutputDoesNotStopARunAndIsSpokenOfOnce) {
    const Result result = shell("invar train" + small_words() + " >/dev/full");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.err, "No space left on device") && has(result.err, "metrics.jsonl")) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    expect_finished();
}

TEST_F(Output, AQuietRunWhoseFolderNobodyGetsToReadSaysSo) {
    const Result result = shell("invar train" + small_words({"--quiet"}) + " >/dev/full");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err,
              "invar: warning: standard output is lost (No space left on device); the run folder is runs/run\n");
    expect_finished();
}

TEST_F(Output, ThreadsThatCannotBeStartedAreToldOfInOneLine) {
    if (is_sanitized()) GTEST_SKIP() << "sanitizers take more address space";
    const Result result = shell("ulimit -v 2000000; invar train" + small_words({"trainer.threads=1024"}));
    EXPECT_EQ(result.code, 2);
    EXPECT_TRUE(result.err.starts_with("invar: error: cannot start 1024 threads (")) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
}

TEST_F(Output, ASmallStackIsEnoughToReadFiles) {
    if (is_sanitized()) GTEST_SKIP() << "sanitizers take more stack";
    const Result result = shell("ulimit -s 64; invar train" + small_words({"--device", "cpu"}));
    EXPECT_EQ(result.code, 0) << result.err;
    expect_finished();
}

TEST_F(Output, ClosedDescriptorsAreNotTakenByFilesOfTheRun) {
    int i = 0;
    for (const char* closed : {">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"}) {
        const std::string name = "run" + std::to_string(++i);
        const Result result =
            shell("invar train" + small_words({"exp_name=" + name, "--mixed_precision", "fp16"}) + " " + closed);
        EXPECT_EQ(result.code, 0) << closed << result.err;
        expect_finished(name);
        EXPECT_EQ(files_with("[AMP]"), "") << closed;
        EXPECT_EQ(files_with("never validated"), "") << closed;
    }
}

TEST_F(Output, AReaderThatLeavesDoesNotStopARun) {
    const Result result = shell("set -o pipefail; invar train" + small_words() + " | head -1");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, "[AMP] Using FP32 (no mixed precision)\n");
    expect_finished();
}

TEST_F(Output, ALogThatTheDiskHasNoRoomForEndsTheRunAtACheckpointOnly) {
    // Checkpoints of this model fit into 16 KiB, the metrics and events of so many steps do not.
    const std::string run = "invar train" + small_words({"trainer.max_epochs=8", "monitor.enabled=false"});
    const Result result = shell("ulimit -f 16; " + run);
    EXPECT_EQ(result.code, 1) << result.err;
    const std::string message = result.error();
    EXPECT_TRUE(has(message, "cannot write runs/run/") && has(message, ": File too large")) << message;
    const std::size_t told = result.out.find("waits in memory");
    EXPECT_NE(told, std::string::npos) << result.out;
    EXPECT_EQ(result.out.find("waits in memory", told + 1), std::string::npos) << "once";
    for (const std::string& line : lines("runs/run/metrics.jsonl"))
        EXPECT_TRUE(nlohmann::json::parse(line, nullptr, false).is_object()) << "no line is torn: " << line;

    const Result resumed = shell("invar train --resume runs/run");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(lines("runs/run/metrics.jsonl").size(), 88u) << "eighty steps and eight validations";
}

TEST_F(Output, AVerdictIsToldAlsoWhereItsReportHasNoRoom) {
    // As above; the report in HTML is larger.
    const Result result = shell("ulimit -f 16; invar validate" + small_words({"--candidates", "bf16-mixed"}));
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_TRUE(has(result.error(), "report.html") && has(result.error(), "File too large")) << result.err;
    EXPECT_TRUE(has(result.out, "verdict") && has(result.out, "baseline")) << result.out;
}

TEST_F(Output, WhatOnlyPrintsFailsWhereItCannot) {
    for (const char* command : {"formats", "ops", "ops --json", "--help", "train --help", "--version",
                                "completion bash", "train synthetic --print-config"}) {
        const Result full = shell(std::string("invar ") + command + " >/dev/full");
        EXPECT_EQ(full.code, 2) << command;
        EXPECT_EQ(full.error(), "cannot write to standard output: No space left on device\n") << command;
        const Result closed = shell(std::string("invar ") + command + " >&-");
        EXPECT_EQ(closed.code, 2) << command;
        EXPECT_EQ(closed.error(), "cannot write to standard output: Bad file descriptor\n") << command;
    }
}

TEST_F(Output, WhatOnlyPrintsIsQuietWhenItsReaderHasEnough) {
    const Result result = shell("set -o pipefail; invar ops --json | head -1");
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1);
}

}  // namespace
}  // namespace invar::cli
