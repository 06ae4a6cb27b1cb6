// What a run of one seed among several was trained and judged on is what its folder leads back to.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Seeds : public CliTest {};

TEST_F(Seeds, RunsOfAValidationAreEvaluatedOnTheirOwnData) {
    const Result validated = invar(learner({"--candidates", "bf16-mixed", "--seeds", "2", "exp_name=v"}, {"validate"}));
    ASSERT_TRUE(validated.code == 0 || validated.code == 1 || validated.code == 3) << validated.err;
    for (const char* run : {"fp32_seed0", "fp32_seed1", "bf16-mixed_seed1"}) {
        SCOPED_TRACE(run);
        double logged = -1;
        for (const std::string& line : lines(std::string("runs/v/") + run + "/metrics.jsonl"))
            if (const auto each = nlohmann::json::parse(line); each.contains("val_loss")) logged = each["val_loss"];
        const Result evaluated = invar({"eval", std::string("runs/v/") + run, "--json", "--threads", "1"});
        ASSERT_EQ(evaluated.code, 0) << evaluated.err;
        EXPECT_DOUBLE_EQ(nlohmann::json::parse(evaluated.out)["val_loss"].get<double>(), logged) << evaluated.out;
    }
}

// 128 samples to validate on, of which one is almost the margin: whatever the runs agree on, that is no proof.
TEST_F(Seeds, OnFewSamplesEstablishNothingAndSayWhatWould) {
    const Words words = learner({"--candidates", "bf16-mixed", "--seeds", "3", "--json", "exp_name=v"}, {"validate"});
    const Result validated = invar(words);
    ASSERT_NE(validated.code, 0) << validated.out;
    ASSERT_NE(validated.code, 2) << validated.err;
    std::vector<nlohmann::json> lines;
    std::istringstream text(validated.out);
    for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
    ASSERT_EQ(lines.size(), 3u);
    const auto& noise = lines[0].at("noise");
    EXPECT_EQ(noise.at("samples"), 128);
    EXPECT_DOUBLE_EQ(noise.at("resolution"), 1 / 128.0);
    EXPECT_GT(noise.at("spread"), 0.0);
    EXPECT_GT(noise.at("sampling_error"), 0.01);
    EXPECT_GT(lines[1].at("enough_samples"), 500);
    EXPECT_TRUE(has(lines[2].at("reason").get<std::string>(), "one of the 128 samples is")) << lines[2];
    const auto report = nlohmann::json::parse(slurp(folder_ / "runs/v/report.json"));
    EXPECT_EQ(report.at("baseline").at("noise"), noise);
    EXPECT_TRUE(has(slurp(folder_ / "runs/v/report.md"), "Noise of the baseline: standard deviation "));
    EXPECT_TRUE(has(slurp(folder_ / "runs/v/report.html"), "Noise of the baseline: standard deviation "));

    // The same runs from their folders, with the same verdict and what the console says of noise.
    const Result compared = invar({"compare", "--baseline", "runs/v/fp32_seed0", "--baseline", "runs/v/fp32_seed1",
                                   "--baseline", "runs/v/fp32_seed2", "--candidate", "runs/v/bf16-mixed_seed0",
                                   "--candidate", "runs/v/bf16-mixed_seed1", "--candidate", "runs/v/bf16-mixed_seed2"});
    EXPECT_EQ(compared.code, validated.code);
    EXPECT_TRUE(has(compared.out, lines[2].at("reason").get<std::string>())) << compared.out;
    EXPECT_TRUE(has(compared.out, " by the choice of 128 samples, of which one is 0.781 points")) << compared.out;
}

TEST_F(Seeds, AreJudgedByAMarginInPointsToo) {
    const Result wide =
        invar(learner({"--candidates", "bf16", "--seeds", "2", "--margin", "60pp", "exp_name=v"}, {"validate"}));
    EXPECT_EQ(wide.code, 0) << wide.out << wide.err;
    EXPECT_TRUE(has(wide.out, "within 60 percentage points")) << wide.out;
    EXPECT_TRUE(has(slurp(folder_ / "runs/v/report.md"), "--margin 60pp")) << "how to do it again";
    EXPECT_TRUE(has(invar(learner({"--margin", "1pp", "--metric", "val_loss"}, {"validate"})).error(),
                    "--margin 1pp: val_loss is no share"));
    EXPECT_TRUE(has(invar(learner({"--margin", "much"}, {"validate"})).error(), "--margin much: must lie above 0"));
}

}  // namespace
}  // namespace invar::cli
