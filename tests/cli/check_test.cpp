// `invar check`: a line for each check, and an exit code that scripts can go by.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Check : public CliTest {};

TEST_F(Check, SaysALineForEachCheckAndLeavesNothingBehind) {
    const Result result = invar(small({"model.dropout=0.1", "--device", "cpu"}, {"check"}));
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 10) << result.out;
    for (const char* name :
         {"train", "test", "shapes", "gradient", "split", "learning", "run", "memory", "seed", "resume"})
        EXPECT_TRUE(has(result.out, "PASS  " + std::string(name) + " ")) << name << "\n" << result.out;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

TEST_F(Check, GivesTheSameAsJsonWithTheFiguresBehindIt) {
    const Result result = invar(small({"--json"}, {"check"}));
    EXPECT_EQ(result.code, 0) << result.err;
    std::istringstream lines(result.out);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
        const auto json = nlohmann::json::parse(line);
        EXPECT_EQ(json.at("mark"), "PASS") << line;
        EXPECT_TRUE(json.at("figures").is_object());
        if (json.at("check") == "train") {
            EXPECT_EQ(json.at("figures").at("tensors").at("y").at("labels").at("3"), 16) << line;
        }
    }
    EXPECT_EQ(count, 10);
}

TEST_F(Check, ExitsWithOneWhereACheckFails) {
    const Result result = invar(small({"data.std=1e-42"}, {"check"}));
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_TRUE(has(result.out, "FAIL  train ") && has(result.out, "NaN or infinite")) << result.out;
}

TEST_F(Check, WarnsWhereTheMachineHasNoPlaceForScratchFiles) {
    const Result result = shell("TMPDIR=/nowhere/at/all invar check" + small_words());
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_TRUE(has(result.out, "WARN  resume    could not be made: cannot make a folder in /nowhere/at/all"))
        << result.out;
    EXPECT_TRUE(has(result.out, "No such file or directory; TMPDIR")) << result.out;
}

// No file of the scratch run may grow past 2 KiB, whichever it is: the kernel's own way to a full disk.
TEST_F(Check, WarnsInOneLineWhereTheDiskIsFullAndLeavesNothing) {
    const std::filesystem::path scratch = folder_ / "scratch";
    std::filesystem::create_directories(scratch);
    const Result result = shell("set -o pipefail; (ulimit -f 2; TMPDIR=" + scratch.string() +
                                " invar check --device cpu" + small_words() + ") | cat");
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_TRUE(has(result.out, "WARN  resume    could not be made: cannot write " + scratch.string())) << result.out;
    EXPECT_TRUE(has(result.out, "File too large; free space or choose another folder; TMPDIR")) << result.out;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 10) << result.out;
    EXPECT_TRUE(std::filesystem::is_empty(scratch));
}

// A data set of many pixels, so that the run in the scratch folder takes its time.
TEST_F(Check, RemovesItsScratchFilesWhenASignalEndsIt) {
    const std::filesystem::path scratch = folder_ / "scratch";
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        std::filesystem::create_directories(scratch);
        ::setenv("TMPDIR", scratch.c_str(), 1);
        const pid_t child = start(small({"data.height=200", "data.width=200"}, {"check"}));
        ::unsetenv("TMPDIR");
        while (std::filesystem::is_empty(scratch) && ::kill(child, 0) == 0 && ::waitpid(child, nullptr, WNOHANG) == 0)
            ::usleep(1000);
        EXPECT_FALSE(std::filesystem::is_empty(scratch)) << "the test came too late";
        ::kill(child, signal);
        EXPECT_EQ(finish(child).code, 128 + signal);
        EXPECT_TRUE(std::filesystem::is_empty(scratch)) << signal;
    }
}

TEST_F(Check, MakesNothingOfLabelsThatItDidNotRead) {
    const Result result = invar(small({"--samples", "1"}, {"check"}));
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_TRUE(has(result.out, "with one class, ") && has(result.out, "PASS  shapes")) << result.out;
}

TEST_F(Check, WarnsOfAConstantTargetInEitherSplit) {
    const Result result = invar(small({"data.classes=1"}, {"check"}));
    EXPECT_TRUE(has(result.out, "WARN  train") && has(result.out, "there is nothing to learn")) << result.out;
    EXPECT_TRUE(has(result.out, "WARN  test") && has(result.out, "there is nothing to tell apart")) << result.out;
}

TEST_F(Check, MakesUpNoMeanOfValuesThatAreNotFinite) {
    const Result result = invar(small({"data.std=1e-40"}, {"check"}));
    EXPECT_EQ(result.code, 1) << result.out << result.err;
    EXPECT_TRUE(has(result.out, "without a finite value; ") && has(result.out, "samples is nan")) << result.out;
    EXPECT_FALSE(has(result.out, "-nan") || has(result.out, "mean 0;")) << result.out;
}

TEST_F(Check, ShowsEachLineWhenItIsKnown) {
    const Result result = shell("invar check --device cpu" + small_words() +
                                " | while read -r mark name rest; do echo $name ${EPOCHREALTIME/./}; done");
    std::istringstream lines(result.out);
    std::vector<long long> times;
    for (std::string name, time; lines >> name >> time;) times.push_back(std::stoll(time));
    ASSERT_EQ(times.size(), 10u) << result.out;
    EXPECT_GT(times.back() - times.front(), 20'000) << "microseconds: they came at once\n" << result.out;
}

TEST_F(Check, ExitsWithTwoWhereThereIsNothingToCheck) {
    const Result result = invar({"check", "data=mnist", "data.root=nowhere"});
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_TRUE(has(result.error(), "looked in nowhere")) << result.err;
}

}  // namespace
}  // namespace invar::cli
