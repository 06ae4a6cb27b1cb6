// What a run's summary says of its speed and of the processes that trained it.
#include "invar/train/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

TEST(Summary, TellsItsSpeedInTheUnitThatTheTaskCountsIn) {
    const auto told = [](const Rate& rate) {
        RunSummary summary;
        summary.samples_per_s = 3;
        summary.rate = rate;
        return nlohmann::json::parse(summary_line(Config(), summary, Device::cpu()).text());
    };
    const nlohmann::json tokens = told({"tokens", 1536, 0.25});
    EXPECT_EQ(tokens.at("samples_per_s"), 3);
    EXPECT_EQ(tokens.at("tokens_per_s"), 1536);
    EXPECT_EQ(tokens.at("mfu"), 0.25);
    const nlohmann::json samples = told({"samples", 3, 0});
    EXPECT_EQ(samples.at("samples_per_s"), 3);
    EXPECT_FALSE(samples.contains("mfu"));
}

TEST(Summary, WeighsTheShareThatEachProcessWaitedByItsTime) {
    EarlierTotals earlier;
    earlier.speed.seconds = 30;
    earlier.waited_share = 0.2;
    EXPECT_DOUBLE_EQ(earlier.waited_share_with(0.6, 10), 0.3);
    EXPECT_EQ(earlier.waited_share_with(NAN, 10), 0.2) << "nothing is known of this one";
    EXPECT_EQ(earlier.waited_share_with(0.6, 0), 0.2) << "this one took no time";
    earlier.waited_share = NAN;
    EXPECT_EQ(earlier.waited_share_with(0.6, 10), 0.6) << "nothing is known of those before";
    earlier = {};
    earlier.waited_share = 0.2;
    EXPECT_EQ(earlier.waited_share_with(0.6, 0), 0.6) << "none of them took any time";
}

}  // namespace
}  // namespace invar
