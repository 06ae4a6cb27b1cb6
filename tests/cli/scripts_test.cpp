// The scripts that go with the program: FP16 validated in one call, and runs uploaded to Weights & Biases.
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Scripts : public CliTest {
  protected:
    static std::string script(const char* name) { return std::string(INVAR_SOURCE_DIR "/scripts/") + name; }
};

TEST_F(Scripts, ValidateFp16JudgesTwoRunsByTheirDifference) {
    const Result result = shell("INVAR=invar " + script("validate_fp16.sh") + small_words({"data.size=640"}));
    EXPECT_TRUE(result.code == 0 || result.code == 1 || result.code == 3) << result.code << result.out << result.err;
    EXPECT_TRUE(has(result.out, "PASS: ") || has(result.out, "FAIL: ") || has(result.out, "MARGINAL: ")) << result.out;
    for (const char* file :
         {"runs/fp32_baseline/summary.json", "runs/fp16_test/summary.json", "runs/fp16_validation/report.md"})
        EXPECT_TRUE(std::filesystem::exists(folder_ / file)) << file;
    const auto fp16 = nlohmann::json::parse(slurp(folder_ / "runs/fp16_test/summary.json"));
    EXPECT_EQ(fp16.at("precision"), "16-mixed");
    EXPECT_EQ(fp16.at("epochs"), 3);
}

TEST_F(Scripts, ValidateFp16EndsWithTwoWhereARunCannotBeMade) {
    const Result result = shell("INVAR=invar " + script("validate_fp16.sh") + " nosuch");
    EXPECT_EQ(result.code, 2) << result.out << result.err;
    EXPECT_TRUE(has(result.err, "nosuch")) << result.err;
}

// The package is stood in for by a module that writes down what it is told.
TEST_F(Scripts, WandbUploadSendsConfigurationStepsInOrderAndSummary) {
    if (shell("python3 -c 'import json'").code != 0) GTEST_SKIP() << "there is no python3";
    std::ofstream(folder_ / "wandb.py") << R"(
import json
class Run:
    def __init__(self, **about):
        self.told = {"about": about, "steps": []}
        self.summary = {}
    def log(self, values, step):
        self.told["steps"].append([step, values])
    def finish(self):
        json.dump(self.told | {"summary": self.summary}, open("told.json", "w"))
init = Run
)";
    const Words words = small({"logger.wandb.enabled=true", "logger.wandb.project=ocr", "exp_name=mine",
                               "monitor.gradients_every_n_steps=1"});
    ASSERT_EQ(invar(words).code, 0);
    const Result result = shell("PYTHONPATH=. python3 " + script("wandb_upload.py") + " runs/mine");
    ASSERT_EQ(result.code, 0) << result.err;
    const auto told = nlohmann::json::parse(slurp(folder_ / "told.json"));
    EXPECT_EQ(told.at("about").at("project"), "ocr");
    EXPECT_EQ(told.at("about").at("name"), "mine");
    EXPECT_EQ(told.at("about").at("config").at("data.batch_size"), 16);
    EXPECT_EQ(told.at("summary").at("status"), "finished");
    ASSERT_EQ(told.at("steps").size(), 10u);
    for (std::size_t i = 0; i < 10; ++i) {
        EXPECT_EQ(told.at("steps")[i][0], i + 1);
        EXPECT_TRUE(told.at("steps")[i][1].contains("loss"));
    }
    EXPECT_TRUE(told.at("steps")[9][1].contains("val_accuracy"));
}

}  // namespace
}  // namespace invar::cli
