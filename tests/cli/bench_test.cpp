// `invar bench`: its options beside the words of a configuration.
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Bench : public CliTest {};

TEST_F(Bench, ListsTakeOneWordAndLeaveTheNextToTheConfiguration) {
    const Result result = invar(small({"--steps", "1", "--warmup", "0", "--json", "--precisions", "bf16-mixed",
                                       "data.batch_size=4", "--recompute", "none,light", "seed=3"},
                                      {"bench"}));
    ASSERT_EQ(result.code, 0) << result.err;
    std::istringstream in(result.out);
    std::vector<std::string> levels;
    for (std::string text; std::getline(in, text);) {
        const auto line = nlohmann::json::parse(text);
        EXPECT_EQ(line.at("precision"), "bf16-mixed");
        EXPECT_EQ(line.at("samples_per_step"), 4);
        levels.push_back(line.at("recompute"));
    }
    EXPECT_EQ(levels, (std::vector<std::string>{"none", "light"}));
}

}  // namespace
}  // namespace invar::cli
