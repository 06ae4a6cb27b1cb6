// `invar check`: a line for each check, and an exit code that scripts can go by.
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Check : public CliTest {};

TEST_F(Check, SaysALineForEachCheckAndLeavesNothingBehind) {
    const Result result = invar(small({"model.dropout=0.1", "--device", "cpu"}, {"check"}));
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 9) << result.out;
    for (const char* name : {"train", "test", "shapes", "gradient", "split", "learning", "memory", "seed", "resume"})
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
    EXPECT_EQ(count, 9);
}

TEST_F(Check, ExitsWithOneWhereACheckFails) {
    const Result result = invar(small({"data.std=1e-42"}, {"check"}));
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_TRUE(has(result.out, "FAIL  train ") && has(result.out, "NaN or infinite")) << result.out;
}

TEST_F(Check, ExitsWithTwoWhereThereIsNothingToCheck) {
    const Result result = invar({"check", "data=mnist", "data.root=nowhere"});
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_TRUE(has(result.error(), "looked in nowhere")) << result.err;
}

}  // namespace
}  // namespace invar::cli
