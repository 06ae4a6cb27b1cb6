// Keys as other tools write them, and what they come to here.
#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/config/config.h"

namespace invar {
namespace {

const ConfigSources kShipped{{std::filesystem::path(INVAR_SOURCE_DIR) / "configs"}};

TEST(OthersKeys, ClipsGradientsAsThePolicySays) {
    const auto limit = [](const std::vector<std::string>& words) {
        return load_config("", words, kShipped).trainer.clip_limit();
    };
    EXPECT_EQ(limit({"trainer.gradient_clip_val=5"}), 5.0);
    EXPECT_EQ(limit({"policy.gradient_clipping=True", "policy.max_grad_norm=0.5"}), 0.5);
    EXPECT_EQ(limit({"policy.gradient_clipping=true"}), 1.0) << "on, at what is usual";
    EXPECT_EQ(limit({"trainer=fp16_safe", "policy.gradient_clipping=false"}), 0.0);
    EXPECT_EQ(limit({}), 0.0);
}

TEST(OthersKeys, NestsTheKeysOfWeightsAndBiasesAsHydraDoes) {
    const Config config = parse_config("logger:\n  wandb:\n    enabled: true\n    project: ocr\n", "my.yaml");
    EXPECT_TRUE(config.logger.wandb);
    EXPECT_EQ(config.logger.wandb_project, "ocr");
    EXPECT_EQ(parse_config(to_yaml(config), "again"), config);
}

// The policies of Keras by their names there, for a run and for a program of one's own.
TEST(OthersKeys, TakeThePoliciesOfKeras) {
    const auto precision = [](const std::string& word) {
        return load_config("", {word}, kShipped).trainer.resolved_precision().name();
    };
    EXPECT_EQ(precision("trainer.precision=mixed_float16"), "16-mixed");
    EXPECT_EQ(precision("policy.precision=mixed_bfloat16"), "bf16-mixed");
    EXPECT_EQ(precision("mixed_precision=mixed_float16"), "16-mixed");
    set_global_policy("mixed_float16");
    EXPECT_EQ(global_policy().name(), "16-mixed");
    set_global_policy("float32");
    EXPECT_EQ(global_policy().name(), "32-true");
}

}  // namespace
}  // namespace invar
