// `invar compare` and the reports of `invar validate`, through the program.
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Compare : public CliTest {
  protected:
    void put(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories((folder_ / name).parent_path());
        std::ofstream(folder_ / name) << text;
    }
    // Lightning's log of one run that ends with this H-mean.
    void put_csv(const std::string& name, double hmean) const {
        std::ostringstream text;
        text << "epoch,step,train_loss_step,val/hmean\n0,1,0.9,\n0,2,0.7,\n0,2,,0.5\n1,4,0.4,\n1,4,," << hmean << "\n";
        put(name, text.str());
    }
    static nlohmann::json last_line(const std::string& text) {
        const std::size_t end = text.find_last_not_of('\n');
        return nlohmann::json::parse(text.substr(text.rfind('\n', end) + 1));
    }
};

TEST_F(Compare, EndsWithTheVerdictOfOneRunAgainstAnother) {
    put_csv("base.csv", 0.8863);
    for (const auto& [hmean, code] : {std::pair(0.8850, 0), {0.8750, 3}, {0.8650, 1}}) {
        put_csv("low.csv", hmean);
        const Result result = invar({"compare", "base.csv", "low.csv"});
        EXPECT_EQ(result.code, code) << result.out << result.err;
        EXPECT_TRUE(has(result.out, "val/hmean (higher is better)")) << result.out;
    }
    EXPECT_FALSE(std::filesystem::exists(folder_ / "report.md")) << "nothing is written unasked";
}

TEST_F(Compare, TestsSeveralRunsAnArmHoweverTheyAreNamed) {
    const double base[] = {0.880, 0.886, 0.892}, low[] = {0.881, 0.886, 0.891};
    for (int i = 0; i < 3; ++i) {
        const std::string seed = std::to_string(i);
        put_csv("fp32/version_" + seed + "/metrics.csv", base[i]);
        put("fp32/version_" + seed + "/hparams.yaml", "seed: " + seed + "\n");
        put_csv("fp16/low_seed" + seed + ".csv", low[i]);
    }
    const std::vector<Words> ways = {
        {"fp32", "fp16"},
        {"fp32/version_0,fp32/version_1,fp32/version_2", "fp16/low_seed0.csv,fp16/low_seed1.csv,fp16/low_seed2.csv"},
        {"--baseline", "fp32/version_0", "--baseline", "fp32/version_1", "--baseline", "fp32/version_2", "--candidate",
         "fp16/low_seed0.csv", "--candidate", "fp16/low_seed1.csv", "--candidate", "fp16/low_seed2.csv"},
    };
    for (Words words : ways) {
        words.insert(words.begin(), "compare");
        words.push_back("--json");
        const Result result = invar(words);
        EXPECT_EQ(result.code, 0) << result.out << result.err;
        EXPECT_EQ(last_line(result.out).at("verdict"), "PASS");
        EXPECT_TRUE(has(result.out, "\"paired\":true")) << result.out;
        EXPECT_TRUE(has(result.out, "\"runs\":3"));
    }
}

TEST_F(Compare, WritesTheThreeReports) {
    put_csv("base.csv", 0.8863);
    put_csv("low.csv", 0.8850);
    const Result result = invar({"compare", "base.csv", "low.csv", "--report", "out/here"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(slurp(folder_ / "out/here/report.md"), "invar compare base.csv low.csv --report out/here"));
    EXPECT_TRUE(has(slurp(folder_ / "out/here/report.html"), "<svg"));
    EXPECT_EQ(nlohmann::json::parse(slurp(folder_ / "out/here/report.json")).at("verdict"), "PASS");
}

TEST_F(Compare, AgreesWithValidateOnItsOwnRuns) {
    const Result validated = invar(small({"--candidates", "bf16-mixed", "--json", "exp_name=v"}, {"validate"}));
    ASSERT_TRUE(validated.code == 0 || validated.code == 3 || validated.code == 1) << validated.err;
    for (const char* file : {"report.md", "report.json", "report.html"})
        EXPECT_TRUE(std::filesystem::exists(folder_ / "runs/v" / file)) << file;
    const Result compared =
        invar({"compare", "runs/v/fp32", "runs/v/bf16-mixed", "--metric", "val_accuracy", "--json"});
    EXPECT_EQ(compared.code, validated.code) << compared.err;
    EXPECT_EQ(last_line(compared.out).at("reason"), last_line(validated.out).at("reason"));
    const Result mixed = invar({"compare", "runs/v", "runs/v/fp32"});
    EXPECT_EQ(mixed.code, 2);
    EXPECT_TRUE(has(mixed.error(), "an arm is one configuration"));
}

TEST_F(Compare, CanJudgeByTheBestValueAndTheOtherWayRound) {
    put("base.csv", "step,score\n1,0.5\n2,0.9\n3,0.6\n");
    put("low.csv", "step,score\n1,0.5\n2,0.6\n3,0.9\n");
    EXPECT_EQ(invar({"compare", "base.csv", "low.csv"}).code, 1);
    EXPECT_EQ(invar({"compare", "base.csv", "low.csv", "--value", "best"}).code, 0);
    EXPECT_TRUE(has(invar({"compare", "base.csv", "low.csv"}).out, "it is better"));
    EXPECT_FALSE(has(invar({"compare", "base.csv", "low.csv", "--better", "lower"}).out, "it is better"));
    EXPECT_EQ(invar({"compare", "base.csv", "low.csv", "--margin", "0.6"}).code, 0);
}

TEST_F(Compare, SaysInOneLineWhatIsWrong) {
    put_csv("base.csv", 0.8863);
    put_csv("low.csv", 0.8850);
    put("empty.csv", "");
    put("other.jsonl", "{\"step\": 1, \"bleu\": 30}\n");
    put("damaged.csv", "step,val/hmean\n1,0.5,7\n");
    put("words.csv", "step,val/hmean\n1,great\n2,0.5\n");
    std::filesystem::create_directories(folder_ / "nothing");
    struct Case {
        Words words;
        int code;
        const char* says;
    };
    for (const Case& c : {Case{{"base.csv"}, 2, "no CANDIDATE given"}, Case{{}, 2, "no BASELINE given"},
                          Case{{"base.csv", ","}, 2, "no CANDIDATE given"},
                          Case{{"base.csv", "missing.csv"}, 2, "missing.csv: there is no such file or folder"},
                          Case{{"base.csv", "nothing"}, 2, "nothing: no run in it"},
                          Case{{"base.csv", "empty.csv"}, 2, "empty.csv: empty"},
                          Case{{"base.csv", "damaged.csv"}, 2, "damaged.csv line 2: 3 cells"},
                          Case{{"base.csv", "other.jsonl"}, 2, "no metric"},
                          Case{{"base.csv", "words.csv", "--metric", "val/hmean"}, 2, "words.csv line 2"},
                          Case{{"base.csv", "low.csv", "--metric", "hmeen"},
                               2,
                               "(did you mean 'val/hmean'?); there are train_loss_step, val/hmean"},
                          Case{{"base.csv", "low.csv", "--metric", "val/hmaen"}, 2, "did you mean 'val/hmean'?"},
                          Case{{"base.csv", "low.csv", "--better", "up"}, 2, "--better up"},
                          Case{{"base.csv", "low.csv", "--value", "first"}, 2, "--value first"},
                          Case{{"base.csv", "low.csv", "--margin", "0"}, 2, "--margin 0"},
                          Case{{"base.csv", "low.csv", "--margin", "nan"}, 2, "--margin"},
                          Case{{"base.csv", "low.csv", "--report", "base.csv"}, 2, "base.csv"}}) {
        Words words = c.words;
        words.insert(words.begin(), "compare");
        const Result result = invar(words);
        EXPECT_EQ(result.code, c.code) << c.says << "\n" << result.out;
        EXPECT_TRUE(has(result.error(), c.says)) << result.err;
    }
}

TEST_F(Compare, CallsArmsByWhatDiffersInTheirPaths) {
    const auto names = [&](const std::vector<std::string>& arms) {
        Words words = {"compare", "--json"};
        for (const std::string& arm : arms) {
            for (std::size_t begin = 0; begin < arm.size(); begin = std::min(arm.find(',', begin), arm.size() - 1) + 1)
                put_csv(arm.substr(begin, arm.find(',', begin) - begin), 0.9);
            words.push_back(arm);
        }
        std::istringstream out(invar(words).out);
        std::vector<std::string> found;
        for (std::string line; std::getline(out, line) && found.size() < arms.size();) {
            const auto json = nlohmann::json::parse(line);
            found.push_back(json.at("name"));
            EXPECT_FALSE(json.contains("precision")) << "nobody said in which";
        }
        return found;
    };
    EXPECT_EQ(names({"fp32/version_0/metrics.csv", "fp16/version_0/metrics.csv"}), (Words{"fp32", "fp16"}));
    EXPECT_EQ(names({"logs/x_seed0.csv,logs/x_seed1.csv", "logs/y_seed0.csv,logs/y_seed1.csv"}), (Words{"x", "y"}));
    EXPECT_EQ(names({"p/version_0/metrics.csv,p/version_1/metrics.csv", "q/version_0/metrics.csv"}),
              (Words{"p/version", "q/version_0/metrics.csv"}));
    EXPECT_EQ(names({"same.csv", "same.csv"}), (Words{"same.csv", "same.csv (2)"}));
    EXPECT_TRUE(has(invar({"compare", "same.csv", "same.csv", "logs/x_seed0.csv,logs/x_seed1.csv"}).out,
                    "1 baseline and 3 candidate runs of 2 candidates"));
}

TEST_F(Compare, HelpsToFindTheMetric) {
    put("a.csv", "epoch,step,train_loss,val_loss,val_acc\n0,1,0.5,0.6,0.9\n");
    put("b.csv", "epoch,step,train_loss,val_loss\n0,1,0.5,0.6\n");
    put("c.csv", "epoch,step,bleu\n0,1,30\n");
    put("zero.csv", "epoch,step,val_acc\n0,1,0\n");
    const auto error = [&](Words words) {
        words.insert(words.begin(), "compare");
        return invar(words).error();
    };
    EXPECT_TRUE(has(error({"a.csv", "b.csv", "--metric", "loss"}), "may be train_loss or val_loss"));
    EXPECT_TRUE(has(error({"a.csv", "b.csv", "--metric", "val_los"}), "did you mean 'val_loss'?"));
    EXPECT_TRUE(has(error({"a.csv", "b.csv", "--metric", "val_acc"}), "not in b.csv"));
    const std::string none = error({"a.csv", "c.csv"});
    EXPECT_TRUE(has(none, "no metric in common") && has(none, "c.csv has bleu")) << none;
    EXPECT_FALSE(has(none, "step") || has(none, "epoch")) << none;
    const Result zero = invar({"compare", "zero.csv", "a.csv"});
    EXPECT_EQ(zero.code, 1);
    EXPECT_TRUE(has(zero.out, "no share of zero")) << zero.out;
    EXPECT_FALSE(has(zero.out, "0.00%")) << zero.out;
}

TEST_F(Compare, FailsARunWithNaNAndSaysWhere) {
    put("base.jsonl", "{\"step\": 1, \"loss\": 0.5, \"val_acc\": 0.9}\n");
    put("low.jsonl", "{\"step\": 1, \"loss\": NaN, \"val_acc\": 0.9}\n");
    const Result result = invar({"compare", "base.jsonl", "low.jsonl"});
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(has(result.out, "low.jsonl: loss is NaN at step 1")) << result.out;
    EXPECT_FALSE(has(result.out, "low.jsonl: low.jsonl")) << result.out;
}

}  // namespace
}  // namespace invar::cli
