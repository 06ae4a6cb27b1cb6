// What a run of one seed among several was trained and judged on is what its folder leads back to.
#include <nlohmann/json.hpp>

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
        EXPECT_DOUBLE_EQ(nlohmann::json::parse(evaluated.out)["loss"].get<double>(), logged) << evaluated.out;
    }
}

}  // namespace
}  // namespace invar::cli
