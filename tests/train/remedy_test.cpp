#include "invar/train/remedy.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

TEST(Remedy, IsWrittenAsASettingAndReadBackAsTheSame) {
    for (const auto& [remedy, text] :
         {std::pair(Remedy::of_precision("bf16-mixed"), "trainer.precision=bf16-mixed"),
          std::pair(Remedy::of_overrides({{"1", "32-true"}, {"block.fc", "bf16-mixed"}}),
                    "trainer.precision_overrides={1: 32-true, block.fc: bf16-mixed}"),
          std::pair(Remedy::of_init_scale(0x1p-3), "scaler.init_scale=0.125"),
          std::pair(Remedy::of_learning_rate(0.001), "optimizer.lr=0.001"),
          std::pair(Remedy::of_gradient_clip(1), "trainer.gradient_clip_val=1"), std::pair(Remedy{}, "")}) {
        EXPECT_EQ(remedy.str(), text);
        EXPECT_EQ(Remedy::parse(text), remedy);
        EXPECT_EQ(bool(remedy), *text != 0);
    }
    EXPECT_ERROR(Remedy::parse("seed=3"), Error, "no setting that a recovery makes");
}

// The form that checkpoints and run folders have always had.
TEST(Remedy, OfARecoveryStandsInItsCheckpointAsText) {
    const Recovery recovery{8, 6, "16-mixed", "16-mixed", "the loss is NaN", Remedy::of_overrides({{"1", "32-true"}})};
    const nlohmann::json json = to_json(recovery);
    EXPECT_EQ(json.at("setting"), "trainer.precision_overrides={1: 32-true}");
    const Recovery again = recovery_from_json(json);
    EXPECT_EQ(again.remedy, recovery.remedy);
    EXPECT_EQ(again.continues_in(), "16-mixed with trainer.precision_overrides={1: 32-true}");
    nlohmann::json older = json;
    older.erase("setting");
    EXPECT_FALSE(recovery_from_json(older).remedy);
}

}  // namespace
}  // namespace invar
