// `invar plan`: its tables, its JSON and page, and what it refuses in one line.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Planning : public CliTest {
  protected:
    static Words plan(const Words& more) {
        Words words = {"plan", "data=synthetic", "model=mlp", "data.batch_size=32", "--card", "h200"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
};

TEST_F(Planning, NeedsNoGpuToPlanForOne) {
    const Result result = invar(plan({"--ranks", "8", "--precisions", "32-true,bf16-mixed"}));
    ASSERT_EQ(result.code, 0) << result.err;
    for (const char* part : {"on 8 ranks of NVIDIA H200", "bf16-mixed  zero2     yes", "masters", "ms/step", "  1024 "})
        EXPECT_TRUE(has(result.out, part)) << part << "\n" << result.out;
}

TEST_F(Planning, WritesJsonLinesAndAPage) {
    const Result result =
        invar(plan({"--ranks", "4", "--strategies", "ddp,zero1", "--json", "--quick", "--html", "plan.html"}));
    ASSERT_EQ(result.code, 0) << result.err;
    std::istringstream in(result.out);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    ASSERT_EQ(lines.size(), 2u + 2 * 11);
    EXPECT_EQ(lines[1].at("strategy"), "zero1");
    EXPECT_EQ(lines[1].at("ranks"), 4);
    EXPECT_EQ(lines[1].at("fits"), true);
    EXPECT_GT(lines[1].at("ms_per_step"), 0);
    // Gradients of 4 bytes, there and back: 3 of 4 parts twice. Held are all of them and the sums of one part.
    const double held = lines[0].at("peak_bytes").at("gradients");
    EXPECT_NEAR(lines[0].at("wire_bytes").get<double>(), 1.5 / 1.25 * held, 0.01 * held);
    EXPECT_TRUE(has(slurp(folder_ / "plan.html"), "<svg"));
}

TEST_F(Planning, EndsWithOneWhereNothingFits) {
    const Result result = invar(plan({"--memory", "0.76", "data.batch_size=4096", "--quick", "--html", "plan.html"}));
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(has(result.out, "nothing fits; use a smaller batch or trainer.recompute=block or a larger card"))
        << result.out;
    EXPECT_FALSE(has(result.out, "  1024 ")) << "a table of nothing: " << result.out;
    EXPECT_TRUE(has(result.out, " -\n")) << "no time of what cannot be: " << result.out;
    const std::string page = slurp(folder_ / "plan.html");
    EXPECT_TRUE(has(page, "Nothing fits"));
    EXPECT_TRUE(has(page, "memory of a rank at the peak of a step")) << "what it would hold is plotted";
    EXPECT_FALSE(has(page, "s of all ranks, 32-true")) << "and no time";
}

TEST_F(Planning, AdvisesOnlyWhatTheTablesDoNotContradict) {
    const Result searched = invar(plan({"--memory", "0.7501", "trainer.recompute=block"}));
    EXPECT_EQ(searched.code, 1);
    EXPECT_TRUE(has(searched.out, "nothing fits; use a larger card")) << searched.out;
}

TEST_F(Planning, RefusesWhatCannotBeMeant) {
    const Result less = invar(plan({"--memory", "0.5"}));
    EXPECT_EQ(less.code, 2);
    EXPECT_EQ(less.error(), "--memory 0.5: driver and libraries take 768.0 MiB of it, and nothing is left\n");
    EXPECT_TRUE(has(invar(plan({"--device", "cpu"})).error(), "and trainer.device=cpu: plan for one of the two"));
}

TEST_F(Planning, TimesThisMachineWhereNoCardIsNamed) {
    const Result result = invar({"plan", "data=synthetic", "model=mlp", "--device", "cpu", "--quick", "--ranks", "2"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "on 2 ranks of this CPU, timed now")) << result.out;
}

TEST_F(Planning, RefusesInOneLine) {
    const auto refuses = [&](const Words& words, const std::string& why) {
        const Result result = invar(plan(words));
        EXPECT_EQ(result.code, 2) << why;
        EXPECT_TRUE(has(result.error(), why)) << result.err;
    };
    refuses({"--ranks", "0"}, "--ranks 0: must be 1 to 1024");
    refuses({"--ranks", "2000"}, "--ranks 2000: must be 1 to 1024");
    refuses({"--strategies", "fsdp"}, "strategy 'fsdp' is not there");
    refuses({"--wire", "fp8"}, "--wire fp8: gradients travel as fp32 or bf16");
    refuses({"--node", "0"}, "--node 0: must be at least 1");
    for (const char* link : {"0", "-1", "1e-300", "nan", "2000000"})
        refuses({"--link", link}, fmt::format("--link {}: must be 0.001 to 1000000", link));
    refuses({"--link", "1", "--link", "2"}, "--link is there 2 times (1, 2) and is taken once");
    refuses({"--memory", "0"}, "--memory 0: must be 0.001 to 1000000");
    refuses({"--precisions", "fp8"}, "FP8");
    const Result unknown = invar({"plan", "--card", "h20"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_TRUE(has(unknown.error(), "--card h20: there is no such card (did you mean 'h200'?); there are h200, h100"));
}

}  // namespace
}  // namespace invar::cli
