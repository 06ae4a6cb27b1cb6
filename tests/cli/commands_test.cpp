// The smaller commands, help and completion.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Commands : public CliTest {
  protected:
    static std::vector<nlohmann::json> json_lines(const std::string& text) {
        std::vector<nlohmann::json> all;
        std::istringstream in(text);
        for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
        return all;
    }
};

TEST_F(Commands, HelpEverywhereShowsAnExample) {
    for (const char* command :
         {"doctor", "check", "train", "validate", "compare", "inspect", "diagnose", "tune", "init", "eval", "predict",
          "tokenize", "formats", "ops", "bench", "profile", "plan", "runs", "completion"}) {
        const Result help = invar({command, "--help"});
        EXPECT_EQ(help.code, 0) << command;
        EXPECT_TRUE(has(help.out, "Usage: invar " + std::string(command))) << help.out;
        EXPECT_TRUE(has(help.out, "Example:\n") || has(help.out, "Examples:\n")) << help.out;
        EXPECT_TRUE(has(invar({"--help"}).out, "  " + std::string(command) + " ")) << command;
    }
    EXPECT_EQ(invar({}).out, invar({"--help"}).out);
    EXPECT_EQ(invar({"help"}).out, invar({"--help"}).out);
    EXPECT_EQ(invar({"help", "train"}).out, invar({"train", "--help"}).out);
    EXPECT_EQ(invar({"help", "trian"}).code, 2);
    EXPECT_TRUE(invar({"--version"}).out.starts_with("invar "));
}

TEST_F(Commands, RunsAreListedWithWhatDiffers) {
    ASSERT_EQ(invar(small({"exp_name=one", "seed=1"})).code, 0);
    ASSERT_EQ(invar(small({"exp_name=two", "seed=2", "--mixed_precision", "bf16"})).code, 0);
    const Result table = invar({"runs"});
    EXPECT_EQ(table.code, 0) << table.err;
    EXPECT_TRUE(has(table.out, "runs/one") && has(table.out, "bf16-mixed") && has(table.out, "val_accuracy"))
        << table.out;
    EXPECT_TRUE(has(table.out, "seed=1") && has(table.out, "trainer.precision=bf16-mixed")) << table.out;
    EXPECT_FALSE(has(table.out, "data.batch_size=")) << "what all were told alike is left out: " << table.out;
    const auto first = [&](const char* key) {
        return json_lines(invar({"runs", "runs", "--sort", key, "--json"}).out).at(0);
    };
    const double low = first("val_loss").at("summary").at("val_loss"),
                 high = first("-val_loss").at("summary").at("val_loss");
    EXPECT_LT(low, high);
    EXPECT_TRUE(has(invar({"runs", "--sort", "beauty"}).err, "no run has it")) << "a wrong key";
    EXPECT_TRUE(has(invar({"runs", "nowhere"}).err, "there is no such folder"));
    std::filesystem::create_directories(folder_ / "empty");
    EXPECT_EQ(invar({"runs", "empty"}).code, 2);
}

TEST_F(Commands, RunsTellOnlyWhereOneDiffersFromMost) {
    for (const char* name : {"exp_name=a", "exp_name=b", "exp_name=c"}) ASSERT_EQ(invar(small({name})).code, 0);
    ASSERT_EQ(invar(small({"exp_name=d", "optimizer.lr=0.002"})).code, 0);
    const std::string out = invar({"runs"}).out;
    EXPECT_TRUE(has(out, "what differs in their configurations")) << out;
    EXPECT_TRUE(has(out, "\n  runs/d: optimizer.lr=0.002\n")) << out;
    EXPECT_FALSE(has(out, "runs/a:")) << "it is as most are: " << out;
    const double accuracy = nlohmann::json::parse(slurp(folder_ / "runs/a/summary.json")).at("val_accuracy");
    EXPECT_TRUE(has(out, fmt::format("{:.2f}%", 100 * accuracy))) << "as the console shows it: " << out;
}

TEST_F(Commands, RunsLeaveOutWhatAValidationSetsByItself) {
    ASSERT_NE(invar(learner({"exp_name=v", "--candidates", "bf16-mixed", "--seeds", "2"}, {"validate"})).code, 2);
    const std::string out = invar({"runs"}).out;
    EXPECT_TRUE(has(out, "trainer.precision=bf16-mixed") && has(out, "seed=")) << out;
    EXPECT_FALSE(has(out, "data.seed=") || has(out, "log_every_n_steps=")) << out;
}

TEST_F(Commands, RunsWithoutANumberComeLastInEitherOrder) {
    for (const char* name : {"exp_name=a", "exp_name=b"}) ASSERT_EQ(invar(small({name})).code, 0);
    const std::filesystem::path file = folder_ / "runs/a/summary.json";
    nlohmann::json summary = nlohmann::json::parse(slurp(file));
    summary["loss"] = "nan";
    std::ofstream(file) << summary;
    for (const char* key : {"loss", "-loss"}) {
        const auto lines = json_lines(invar({"runs", "runs", "--sort", key, "--json"}).out);
        EXPECT_EQ(lines.at(1).at("run"), "runs/a") << key;
    }
}

TEST_F(Commands, EvalMeasuresWhatTheRunMeasured) {
    ASSERT_EQ(invar(small({"--mixed_precision", "bf16"})).code, 0);
    const auto summary = nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json"));
    for (const char* what : {"runs/run", "runs/run/checkpoints/step_00000010.safetensors"}) {
        const Result result = invar({"eval", what, "--json"});
        ASSERT_EQ(result.code, 0) << result.err;
        const auto line = json_lines(result.out).at(0);
        EXPECT_EQ(line.at("val_loss"), summary.at("val_loss")) << what;
        EXPECT_EQ(line.at("val_accuracy"), summary.at("val_accuracy")) << what;
        EXPECT_EQ(line.at("precision"), "bf16-mixed");
    }
    EXPECT_EQ(json_lines(invar({"eval", "runs/run", "--json", "trainer.precision=32-true"}).out).at(0).at("precision"),
              "32-true");
    const std::string table = invar({"eval", "runs/run"}).out;
    EXPECT_TRUE(has(table, "\nval_loss ") && has(table, "\nval_accuracy ")) << table;
}

TEST_F(Commands, EvalTakesPlainWeightsWithAConfiguration) {
    ASSERT_EQ(invar(small({"w.safetensors"}, {"init"})).code, 0);
    const Result result = invar(small({"w.safetensors", "--json"}, {"eval"}));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(json_lines(result.out).at(0).at("samples"), 32);
}

TEST_F(Commands, InitDoesNotReplaceAFileUnasked) {
    ASSERT_EQ(invar(small({"w.safetensors"}, {"init"})).code, 0);
    const std::string before = slurp(folder_ / "w.safetensors");
    EXPECT_EQ(invar(small({"w.safetensors", "seed=9"}, {"init"})).code, 2);
    EXPECT_EQ(slurp(folder_ / "w.safetensors"), before);
    EXPECT_EQ(invar(small({"w.safetensors", "seed=9", "--force"}, {"init"})).code, 0);
    EXPECT_NE(slurp(folder_ / "w.safetensors"), before);
}

TEST_F(Commands, FormatsKnowTheirNumbers) {
    const std::vector<nlohmann::json> formats = json_lines(invar({"formats", "--json"}).out);
    ASSERT_EQ(formats.size(), 7u);
    for (const auto& format : formats) {
        if (format.at("format") == "f16") {
            EXPECT_EQ(format.at("max"), 65504.0);
        }
        if (format.at("format") == "f8e4m3") {
            EXPECT_EQ(format.at("max"), 448.0);
        }
        if (format.at("format") == "tf32") {
            EXPECT_EQ(format.at("mantissa_bits"), 10);
        }
    }
    const std::string table = invar({"formats"}).out;
    for (const char* name : {"f64", "f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2"})
        EXPECT_TRUE(has(table, name)) << name;
}

TEST_F(Commands, OpsAreListedByClass) {
    const std::vector<nlohmann::json> low = json_lines(invar({"ops", "--json", "--class", "low"}).out);
    const auto names = [&](const std::string& name) {
        return std::any_of(low.begin(), low.end(), [&](const nlohmann::json& op) { return op.at("op") == name; });
    };
    EXPECT_TRUE(names("matmul") && names("conv2d") && names("linear"));
    EXPECT_FALSE(names("softmax"));
    EXPECT_GT(json_lines(invar({"ops", "--json"}).out).size(), low.size());
    EXPECT_TRUE(has(invar({"ops"}).out, "softmax"));
}

TEST_F(Commands, OpsSayWhatTheyComputeAlsoAsADocument) {
    for (const nlohmann::json& op : json_lines(invar({"ops", "--json"}).out))
        EXPECT_NE(op.at("computes"), "") << op.at("op");
    const std::string document = invar({"ops", "--markdown"}).out;
    EXPECT_TRUE(has(document, "\n| relu | x, or 0 where x is negative | keep | runs in what it gets |\n"));
    EXPECT_TRUE(has(document, "\\|prediction - target\\|"));
    EXPECT_EQ(invar({"ops", "--markdown", "--json"}).code, 2);
}

TEST_F(Commands, CompletionScriptsAreWhole) {
    for (const char* shell : {"bash", "zsh", "fish"}) {
        const Result script = invar({"completion", shell});
        ASSERT_EQ(script.code, 0) << script.err;
        for (const char* word : {"validate", "compare", "inspect", "require-validated", "mixed_precision",
                                 "mnist_convnet", "trainer=fp16_safe", "trainer.max_epochs="})
            EXPECT_TRUE(has(script.out, word)) << shell << ": " << word;
    }
    const std::string file = (folder_ / "completion.bash").string();
    std::ofstream(file) << invar({"completion", "bash"}).out;
    EXPECT_EQ(std::system(("bash -n " + file).c_str()), 0);
}

TEST_F(Commands, BashCompletesCommandsFlagsAndKeys) {
    const std::string file = (folder_ / "completion.bash").string();
    std::ofstream(file) << invar({"completion", "bash"}).out;
    const auto completed = [&](const std::string& line) {
        std::istringstream in(line);
        std::vector<std::string> words;
        for (std::string word; in >> word;) words.push_back(word);
        if (line.ends_with(' ')) words.emplace_back();
        const std::string command = "bash -c 'source " + file + "; COMP_LINE=\"" + line +
                                    "\"; COMP_POINT=" + std::to_string(line.size()) + "; COMP_WORDS=(" +
                                    [&] {
                                        std::string list;
                                        for (const std::string& word : words) list += "\"" + word + "\" ";
                                        return list;
                                    }() +
                                    "); COMP_CWORD=" + std::to_string(words.size() - 1) +
                                    "; _invar 2>/dev/null; printf \"%s\\n\" \"${COMPREPLY[@]}\"' > " +
                                    (folder_ / "words").string();
        EXPECT_EQ(std::system(command.c_str()), 0) << command;
        return slurp(folder_ / "words");
    };
    EXPECT_TRUE(has(completed("invar tr"), "train\n"));
    EXPECT_TRUE(has(completed("invar train --mixed"), "--mixed_precision\n"));
    EXPECT_TRUE(has(completed("invar train mnist_m"), "mnist_mlp\n"));
    EXPECT_TRUE(has(completed("invar train trainer.max_e"), "trainer.max_epochs=\n"));
    EXPECT_FALSE(has(completed("invar formats "), "mnist_mlp"));
}

TEST_F(Commands, BenchTellsArithmeticAndItsShareOfTheBestProduct) {
    const Words words = small({"--steps", "2", "--warmup", "0", "--precisions", "32-true,bf16-mixed"}, {"bench"});
    const Result table = invar(words);
    EXPECT_EQ(table.code, 0) << table.err;
    EXPECT_TRUE(has(table.out, "FLOP/s") && has(table.out, "of product") && has(table.out, "activations")) << table.out;
    const bool disturbed = has(table.out, "times were disturbed and are not compared: other work on this machine");
    EXPECT_EQ(has(table.out, "1.00x"), !disturbed) << table.out;
    Words json = words;
    json.push_back("--json");
    const auto lines = json_lines(invar(json).out);
    ASSERT_EQ(lines.size(), 2u);
    for (const auto& line : lines) {
        const double rate = line.at("flops_per_s"), best = line.at("product_flops_per_s"),
                     each = line.at("flops_per_step"), ms = line.at("ms_per_step");
        EXPECT_GT(each, 0);
        const double waited = line.value("waited_share", 0.0);
        EXPECT_TRUE(waited >= 0 && waited <= 1) << waited;
        EXPECT_NEAR(rate, 1e3 * each / ms, 1e-9 * rate);
        EXPECT_NEAR(line.at("product_share").get<double>(), rate / best, 1e-9);
    }
}

// As train does, and only where the device was left to the program.
TEST_F(Commands, TuneDoesNotCallATargetMetThatFp32AloneMeets) {
    const Result tuned =
        invar(small({"--steps", "0", "--batches", "1", "--no-validate", "--target", "1e-9", "--json"}, {"tune"}));
    EXPECT_EQ(tuned.code, 1) << tuned.err;
    EXPECT_TRUE(has(tuned.out, "\"met\":false")) << tuned.out;
}

TEST_F(Commands, EveryCommandThatComputesSaysWhyItUsesNoGpu) {
    ASSERT_EQ(invar(small({"--device", "cpu"})).code, 0);
    for (const Words& words :
         {Words{"eval", "runs/run"}, small({"--steps", "1"}, {"diagnose"}), small({"--steps", "1"}, {"bench"}),
          small({"--steps", "0", "--batches", "1", "--no-validate"}, {"tune"})}) {
        Words left = words, named = words;
        left.insert(left.end(), {"--device", "auto"});
        named.insert(named.end(), {"--device", "cpu"});
        EXPECT_EQ(has(invar(left).out, "no GPU is used: "), has(invar(small()).out, "no GPU is used: ")) << words[0];
        EXPECT_FALSE(has(invar(named).out, "no GPU is used: ")) << words[0];
    }
}

TEST_F(Commands, ConfigurationFoldersAreFoundWhereTheyAreSaidToBe) {
    std::filesystem::create_directories(folder_ / "configs/experiment");
    std::ofstream(folder_ / "configs/experiment/mine.yaml") << "exp_name: mine\ndefaults:\n  - trainer: fp16_safe\n";
    const Result result = invar({"train", "mine", "--print-config"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "exp_name: mine") && has(result.out, "16-mixed")) << result.out;
}

TEST_F(Commands, BenchShowsTheMemoryAndTimeOfEachLevelOfRecomputation) {
    const Words words = {"bench",          "gpt",
                         "data=chains",    "model.layers=2",
                         "model.width=32", "model.heads=2",
                         "data.length=64", "data.batch_size=4",
                         "--steps",        "1",
                         "--warmup",       "0",
                         "--precisions",   "32-true",
                         "--device",       "cpu",
                         "--recompute",    "none,light,block"};
    const Result table = invar(words);
    EXPECT_EQ(table.code, 0) << table.err;
    EXPECT_TRUE(has(table.out, "recompute") && has(table.out, "tokens/s")) << table.out;
    Words as_json = words;
    as_json.push_back("--json");
    std::istringstream lines(invar(as_json).out);
    std::vector<double> activations, flops;
    for (std::string line; std::getline(lines, line);) {
        const auto json = nlohmann::json::parse(line);
        activations.push_back(json.at("peak_bytes").at("activations"));
        flops.push_back(json.at("flops_per_step"));
    }
    ASSERT_EQ(activations.size(), 3u);
    EXPECT_LT(activations[1], activations[0]);
    EXPECT_LT(activations[2], activations[1]);
    EXPECT_EQ(flops, std::vector<double>(3, flops[0]));  // what is computed a second time is not the model's
    EXPECT_TRUE(has(invar({"bench", "--recompute", "some"}).err, "--recompute some: there are none, light and block"));
}

}  // namespace
}  // namespace invar::cli
