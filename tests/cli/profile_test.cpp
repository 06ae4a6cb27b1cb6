// `invar profile`: its table, its JSON and trace, and what it refuses before it begins.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Profiling : public CliTest {
  protected:
    static Words profile(const Words& more = {}) {
        Words words = small(more, {"profile"});
        for (const char* word : {"--steps", "2", "--warmup", "1", "--device", "cpu"}) words.emplace_back(word);
        return words;
    }
    static std::vector<nlohmann::json> json_lines(const std::string& text) {
        std::vector<nlohmann::json> all;
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
        return all;
    }
};

TEST_F(Profiling, ShowsATableOfEightyColumnsThatAddsUp) {
    const Result result = invar(profile({"--top", "3"}));
    ASSERT_EQ(result.code, 0) << result.err;
    for (const char* part : {"mlp, 32-true, 16 samples a step, on cpu with 1 thread; median of 2 steps",
                             "measured here: products f32 ", "module", "operation", "roof", " more ",
                             "between operations", "step ", "100.0%", "a step takes ", "all floors together"})
        EXPECT_TRUE(has(result.out, part)) << part << "\n" << result.out;
    std::istringstream in(result.out);
    int rows = 0;
    for (std::string line; std::getline(in, line);) {
        EXPECT_TRUE(line.size() <= 80 || has(line, "runs/") || has(line, "disturbed")) << line;
        const bool words = has(line, "between") || has(line, "above") || has(line, "disturbed");
        rows += line.find('%') != line.npos && !words ? 1 : 0;
    }
    EXPECT_EQ(rows, 3 + 1 + 1) << "those asked for, the rest, and the step\n" << result.out;
}

TEST_F(Profiling, WritesJsonLinesWhoseSharesMakeAWhole) {
    const Result result = invar(profile({"--json", "trainer.precision=16-mixed"}));
    ASSERT_EQ(result.code, 0) << result.err;
    const std::vector<nlohmann::json> lines = json_lines(result.out);
    ASSERT_GT(lines.size(), 5u);
    double share = lines.back().at("between_share"), ms = 0;
    bool product = false, loss = false;
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
        share += lines[i].at("share").get<double>(), ms += lines[i].at("ms").get<double>();
        EXPECT_LE(lines[i].at("ms"), lines[i > 0 ? i - 1 : 0].at("ms")) << "the most time first";
        product = product || (lines[i].at("operation") == "linear" && lines[i].at("dtype") == "f16");
        loss = loss || (lines[i].at("operation") == "cross_entropy" && lines[i].at("dtype") == "f32");
    }
    EXPECT_NEAR(share, 1, 1e-6);
    EXPECT_NEAR(ms, lines.back().at("operations_ms"), 1e-6);
    EXPECT_TRUE(product && loss) << result.out;
    EXPECT_GT(lines.back().at("product_flops_per_s").at("f16"), 0);
    EXPECT_GT(lines.back().at("copy_bytes_per_s"), 0);
    EXPECT_EQ(lines.back().at("trace"), "runs/run_trace.json");
}

TEST_F(Profiling, WritesATraceAndNothingElse) {
    const Result result = invar(profile({"--trace", "step.json"}));
    ASSERT_EQ(result.code, 0) << result.err;
    const auto trace = nlohmann::json::parse(slurp(folder_ / "step.json"));
    int operations = 0;
    double end = 0;
    for (const auto& event : trace.at("traceEvents")) {
        if (event.at("ph") != "X") continue;
        const double until = event.at("ts").get<double>() + event.at("dur").get<double>();
        if (event.at("cat") == "step") end = until;
        EXPECT_LE(until, end + 1e-3) << "all of it lies in the step";
        operations += event.at("cat") != "part" && event.at("cat") != "step" ? 1 : 0;
    }
    EXPECT_GT(operations, 8);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

TEST_F(Profiling, AddsUpByOneName) {
    const Result ops = invar(profile({"--by", "op"})), dtypes = invar(profile({"--by", "dtype"}));
    EXPECT_TRUE(has(ops.out, "\nlinear fwd ") && has(ops.out, "\nlinear bwd ")) << ops.out;
    EXPECT_TRUE(has(dtypes.out, "\nf32 ")) << dtypes.out;
    EXPECT_TRUE(has(invar(profile({"--by", "module"})).out, "\nloss ")) << "of the loss";
}

TEST_F(Profiling, RefusesInOneLineBeforeItBegins) {
    const auto refuses = [&](const Words& words, const std::string& why) {
        Words all = small({}, {"profile"});
        all.insert(all.end(), words.begin(), words.end());
        const Result result = invar(all);
        EXPECT_EQ(result.code, 2) << why;
        EXPECT_TRUE(has(result.error(), why)) << result.err;
        EXPECT_EQ(result.out, "");
    };
    refuses({"--steps", "0"}, "--steps 0: must be at least 1");
    refuses({"--warmup", "-1"}, "--warmup -1: must be at least 0");
    refuses({"--top", "0"}, "--top 0: must be at least 1");
    refuses({"--by", "colour"}, "--by colour: there are all, op, module and dtype");
    refuses({"nosuch"}, "nosuch");
    refuses({"--trace", "nowhere/trace.json"}, "nowhere");
    refuses({"--trace", "."}, "is a folder");
    std::filesystem::create_directories(folder_ / "closed");
    ::chmod((folder_ / "closed").c_str(), 0500);
    if (::geteuid() != 0) refuses({"--trace", "closed/trace.json"}, "closed");
    ::chmod((folder_ / "closed").c_str(), 0700);
}

}  // namespace
}  // namespace invar::cli
