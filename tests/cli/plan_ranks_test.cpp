// What `invar plan` says of the memory of a rank against what `invar bench` measures of real ones.
#include <nlohmann/json.hpp>

#include "tests/cli/ranks.h"

namespace invar::cli {
namespace {

struct Planned {
    int ranks;
    std::string words;
};
void PrintTo(const Planned& p, std::ostream* out) {
    *out << p.ranks << " ranks, " << p.words;
}

class PlannedRanks : public RanksTest, public testing::WithParamInterface<Planned> {
  protected:
    std::vector<nlohmann::json> lines_of(const std::string& script) const {
        const Result result = shell(script);
        EXPECT_EQ(result.code, 0) << result.err;
        std::vector<nlohmann::json> lines;
        std::istringstream in(result.out);
        for (std::string line; std::getline(in, line);)
            if (line.starts_with('{')) lines.push_back(nlohmann::json::parse(line));
        return lines;
    }
};

TEST_P(PlannedRanks, HoldWhatBenchMeasures) {
    constexpr int kBatch = 4;
    const auto& [ranks, words] = GetParam();
    const std::string same = fmt::format(
        " {} trainer.device=cpu trainer.threads=1 --precisions 32-true,16-mixed,bf16-mixed,bf16-true"
        " --json data.batch_size=",
        words);
    const std::vector<nlohmann::json> plan =
        lines_of(fmt::format("invar plan {}{} --quick --ranks {}", same, kBatch, ranks));
    int compared = 0;
    for (const char* strategy : {"ddp", "zero1", "zero2"}) {
        const std::string bench =
            fmt::format("bench{}{} --steps 1 --warmup 0 trainer.strategy={}", same, kBatch * ranks, strategy);
        for (const nlohmann::json& measured : lines_of(RanksTest::ranks(ranks, bench))) {
            SCOPED_TRACE(fmt::format("{} {}", strategy, measured.at("precision").get<std::string>()));
            const auto planned = std::ranges::find_if(plan, [&](const nlohmann::json& row) {
                return row.at("precision") == measured.at("precision") && row.at("strategy") == strategy;
            });
            ASSERT_NE(planned, plan.end());
            const double total = measured.at("peak_bytes").at("total");
            for (const auto& [purpose, bytes] : measured.at("peak_bytes").items())
                EXPECT_NEAR(planned->at("peak_bytes").at(purpose).get<double>(), bytes.get<double>(), 0.01 * total)
                    << purpose;
            ++compared;
        }
    }
    EXPECT_EQ(compared, 12);
}

INSTANTIATE_TEST_SUITE_P(
    BuiltIn, PlannedRanks,
    testing::Values(
        Planned{2, "data=synthetic model=mlp model.hidden=[64]"}, Planned{3, "data=synthetic model=convnet"},
        Planned{2, "gpt data=chains data.length=64 model.layers=2 model.width=128 model.heads=2 trainer.bucket_mb=0.1"},
        Planned{4,
                "gpt data=chains data.length=64 model.layers=2 model.width=128 model.heads=2 trainer.bucket_mb=0.1 "
                "trainer.accumulate_grad_batches=2 trainer.recompute=block"}));

}  // namespace
}  // namespace invar::cli
