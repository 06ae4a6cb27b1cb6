// `invar diagnose PROBE` as people run it, on planted probes and, where PyTorch is installed, on what it really writes.
#include <nlohmann/json.hpp>

#include "invar/core/shell.h"
#include "tests/cli/program.h"
#include "tests/diagnose/probe_files.h"

namespace invar::cli {
namespace {

using Json = nlohmann::json;

class ProbeCommand : public CliTest {
  protected:
    Json json(const Words& probes, int code, const Words& more = {}) {
        Words words = {"diagnose", "--json"};
        words.insert(words.end(), probes.begin(), probes.end());
        words.insert(words.end(), more.begin(), more.end());
        const Result result = invar(words);
        EXPECT_EQ(result.code, code) << result.err << result.out;
        return Json::parse(result.out, nullptr, false);
    }
};

TEST_F(ProbeCommand, ShowsModulesByFormatInEightyColumnsAndWritesPageAndPatch) {
    auto tensors = probes::good_tensors();
    for (probes::Planted& t : tensors)
        if (t.module == "fc1")
            t.module = "encoder.layers.11.attention.self.output.dense", t.values = probes::around(0, 1e6f);
    probes::plant(folder_ / "probe", {{1, tensors}});
    const Result result = invar({"diagnose", "probe"});
    ASSERT_EQ(result.code, 0) << result.err;
    for (const char* part : {"probe (PyTorch 2.4.0, Net on cpu)", "f32, step 1; held against f16", "...", "over",
                             "recommended: GradScaler(init_scale=2.0**", "overflows in f16",
                             "keep in FP32: encoder.layers.11.attention.self.output.dense", "patch: probe/keep_fp32.py",
                             "page: probe/diagnosis.html"})
        EXPECT_TRUE(has(result.out, part)) << part << "\n" << result.out;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);)
        EXPECT_TRUE(!line.starts_with("  ") || line.size() <= 80u) << line;
    const std::string page = slurp(folder_ / "probe/diagnosis.html");
    EXPECT_TRUE(has(page, "<svg") && has(page, "torch.autocast(") && page.ends_with("</html>\n"));
    EXPECT_FALSE(has(page, "http://") || has(page, "https://") || has(page, "<script")) << "it must open offline";
    EXPECT_TRUE(has(slurp(folder_ / "probe/keep_fp32.py"), "enabled=False"));

    const Result elsewhere = invar({"diagnose", "probe", "--patch", "sub/patch.py", "--html", "sub/page.html"});
    EXPECT_EQ(elsewhere.code, 0) << elsewhere.err;
    EXPECT_TRUE(std::filesystem::exists(folder_ / "sub/patch.py") &&
                std::filesystem::exists(folder_ / "sub/page.html"));
    EXPECT_TRUE(has(invar({"diagnose", "probe", "--as", "bf16"}).out, "nothing overflows or loses its digits in bf16"));
}

TEST_F(ProbeCommand, LooksAtOneStepAlone) {
    auto tensors = probes::good_tensors();
    const auto good = tensors;
    for (float& value : probes::find(tensors, "act", "output").values) value *= 1e6f;
    probes::plant(folder_ / "probe", {{1, good}, {500, tensors}, {1000, good}});
    EXPECT_EQ(json({"probe"}, 0)["steps"], Json({1, 500, 1000}));
    EXPECT_EQ(json({"probe"}, 0, {"--step", "500"})["steps"], Json({500}));
    EXPECT_TRUE(json({"probe"}, 0, {"--step", "1000"})["healthy"].get<bool>());
    const Result none = invar({"diagnose", "probe", "--step", "2"});
    EXPECT_EQ(none.code, 2);
    EXPECT_TRUE(has(none.error(), "--step 2: probe has none of that number; it has 1, 500, 1000")) << none.err;
    EXPECT_EQ(invar({"diagnose", "probe", "probe", "--step", "500"}).code, 2);
}

TEST_F(ProbeCommand, ComparesTwo) {
    auto tensors = probes::good_tensors();
    probes::plant(folder_ / "a", {{1, tensors}});
    probes::plant(folder_ / "same", {{1, tensors}});
    for (float& value : probes::find(tensors, "act", "output").values) value += 1;
    probes::plant(folder_ / "b", {{1, tensors}});
    const Result same = invar({"diagnose", "a", "same"});
    EXPECT_EQ(same.code, 0) << same.err;
    EXPECT_TRUE(has(same.out, "they agree in all 1 step")) << same.out;
    const Result result = invar({"diagnose", "a", "b"});
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_TRUE(has(result.out, "step 1: they part at act (ReLU), forward")) << result.out;
    EXPECT_TRUE(has(slurp(folder_ / "b/comparison.html"), "they part at act"));
    EXPECT_EQ(json({"a", "b"}, 1).at("parting").at("module"), "act");
}

TEST_F(ProbeCommand, RefusesInOneLine) {
    probes::plant(folder_ / "probe", {{1, probes::good_tensors()}});
    std::filesystem::create_directories(folder_ / "empty");
    const auto refused = [&](const Words& words) {
        Words all = {"diagnose"};
        all.insert(all.end(), words.begin(), words.end());
        const Result result = invar(all);
        EXPECT_EQ(result.code, 2) << result.out;
        return result.error();
    };
    EXPECT_TRUE(has(refused({"probe", "empty"}), "empty is no probe"));
    EXPECT_TRUE(has(refused({"probe", "probe", "probe"}), "one probe, or two"));
    EXPECT_TRUE(has(refused({"probe", "optimizer.lr=1"}), "it has no keys to set"));
    EXPECT_TRUE(has(refused({"probe", "--as", "fp8"}), "one format at a time"));
    EXPECT_TRUE(has(refused({"probe", "probe", "--as", "bf16"}), "are for one probe"));
    EXPECT_TRUE(has(refused({"probe", "--steps", "0"}), "must be at least 1"));
    EXPECT_TRUE(has(refused({"synthetic", "--patch", "x.py"}), "--patch is for a probe"));
    std::ofstream(folder_ / "probe/step_1.safetensors") << "garbage";
    EXPECT_TRUE(has(refused({"probe"}), "probe/step_1.safetensors"));
}

// ---- with PyTorch ----

// The Python that has torch; "" where none does.
std::string python_with_torch() {
    for (const char* python : {"python3", "/usr/bin/python3"})
        if (std::system((std::string(python) + " -c 'import torch' >/dev/null 2>&1").c_str()) == 0) return python;
    return "";
}

class ProbedRuns : public ProbeCommand {
  protected:
    void python(const std::string& task) {
        const std::string command = python_ + " " + shell_word(INVAR_SOURCE_DIR "/tests/cli/probe_runs.py") + " " +
                                    shell_word(INVAR_SOURCE_DIR "/tools/pytorch") + " " + shell_word(folder_.string()) +
                                    " " + task + " >" + shell_word((folder_ / "python.txt").string()) + " 2>&1";
        ASSERT_EQ(std::system(command.c_str()), 0) << slurp(folder_ / "python.txt");
    }
    std::string python_ = python_with_torch();
};

TEST_F(ProbedRuns, OfPyTorchAreJudgedRightly) {
    if (python_.empty()) GTEST_SKIP() << "no python3 here can import torch";
    python("train");
    for (const char* name : {"healthy", "bf16", "scaled_fp16", "lightning", "hugging_face"}) {
        const Json d = json({name}, 0);
        EXPECT_TRUE(d.at("healthy")) << name << d.at("concerns");
        EXPECT_FALSE(d.at("rows").empty());
    }
    EXPECT_EQ(json({"healthy"}, 0).at("steps"), Json({1, 2, 4}));
    EXPECT_EQ(json({"bf16"}, 0).at("ran_in"), "autocast bf16");
    EXPECT_EQ(json({"hugging_face"}, 0).at("steps"), Json({11, 12}));

    const Json overflow = json({"overflow_fp32"}, 0);
    EXPECT_EQ(overflow.at("concerns").at(0).at("kind"), "overflow");
    EXPECT_EQ(overflow.at("keep_fp32"), Json({"2", "4"}));
    const Json infinite = json({"overflow_fp16"}, 1);
    EXPECT_EQ(infinite.at("finding").at("module"), "2");
    EXPECT_EQ(infinite.at("finding").at("blame"), "precision");
    const Json vanish = json({"vanish_fp16"}, 0);
    EXPECT_EQ(vanish.at("concerns").at(0).at("kind"), "underflow");
    EXPECT_EQ(vanish.at("concerns").at(0).at("direction"), "backward");
    EXPECT_GT(vanish.at("scale").at("recommended_log2"), 16);
    const Json gone = json({"gone_fp16"}, 0);
    EXPECT_EQ(gone.at("concerns").at(0).at("kind"), "underflow");
    EXPECT_EQ(gone.at("concerns").at(0).at("direction"), "backward");
    for (const char* name : {"digits", "digits_bf16"}) {
        const Json digits = json({name}, 0, {"--as", "bf16"});
        EXPECT_EQ(digits.at("concerns").at(0).at("kind"), "significance") << name;
        EXPECT_EQ(digits.at("concerns").at(0).at("module"), "2") << name;
    }

    const Json data = json({"nan_data"}, 1);
    EXPECT_EQ(data.at("finding").at("blame"), "data");
    EXPECT_EQ(data.at("finding").at("step"), 3);
    EXPECT_EQ(json({"nan_replayed"}, 1).at("finding"), data.at("finding")) << "a replay keeps the step itself";
    const Json after = json({"nan_after"}, 1);
    EXPECT_EQ(after.at("finding").at("step"), 4);
    EXPECT_EQ(after.at("finding").at("blame"), "weights");
    EXPECT_EQ(json({"skips"}, 0).at("steps"), Json({1, 5})) << "a skip shows in the next step, and arms the one after";
    EXPECT_EQ(json({"skips"}, 0).at("scale").at("skips"), 1);

    EXPECT_FALSE(json({"healthy", "bf16"}, 0).at("parting").at("found"));
    const Json parting = json({"digits", "digits_bf16"}, 1).at("parting");
    EXPECT_EQ(parting.at("module"), "3") << parting;
    EXPECT_EQ(parting.at("why"), "rounding");
    const Json code = json({"code", "code_bf16"}, 1).at("parting");
    EXPECT_EQ(code.at("module"), "second") << code;
    EXPECT_EQ(code.at("why"), "between modules");

    json({"digits"}, 0, {"--as", "bf16"});  // its patch
    python("patched");
    python("resume");
    python("gone");
    EXPECT_EQ(json({"healthy"}, 0).at("steps"), Json({1, 2, 4}));
}

}  // namespace
}  // namespace invar::cli
