// `invar compare` and the reports of `invar validate`, through the program.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/io/proto_bytes.h"

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
    mutable int written_ = 0;
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

TEST_F(Compare, NamesEveryPrecisionOfARunThatChangedIt) {
    const auto run = [&](const std::string& name, const std::string& spans) {
        put(name + "/metrics.jsonl",
            "{\"step\":1,\"loss\":2.0}\n{\"step\":41,\"loss\":1.0}\n{\"step\":20,\"val_accuracy\":0.5}\n"
            "{\"step\":41,\"val_accuracy\":0.9" +
                std::to_string(++written_) + "}\n");
        put(name + "/summary.json", "{\"status\":\"finished\",\"steps\":41,\"precision\":\"bf16-mixed\"," +
                                        ("\"precision_by_step\":{" + spans + "}}"));
    };
    run("a", "\"0\":\"32-true\"");
    run("b", "\"0\":\"32-true\",\"9\":\"16-mixed\",\"40\":\"bf16-mixed\"");
    run("c", "\"0\":\"32-true\",\"9\":\"bf16-mixed\",\"41\":\"16-mixed\"");
    const Result few = invar({"compare", "a", "b"});
    EXPECT_TRUE(has(few.out, "32-true then 16-mixed then bf16-mixed")) << few.out << few.err;
    EXPECT_TRUE(has(few.out + few.err, "only the last 1 of its 41 steps was in bf16-mixed")) << few.out << few.err;
    const Result most = invar({"compare", "a", "c"});
    EXPECT_TRUE(has(most.out, "32-true then bf16-mixed") && !has(most.out, "then 16-mixed")) << most.out << most.err;
    EXPECT_FALSE(has(most.out + most.err, "only the last")) << most.out;
}

TEST_F(Compare, TestsSeveralRunsAnArmHoweverTheyAreNamed) {
    const double base[] = {0.880, 0.886, 0.892}, low[] = {0.881, 0.8861, 0.891};
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
    const Result validated = invar(learner({"--candidates", "bf16-mixed", "--json", "exp_name=v"}, {"validate"}));
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
    EXPECT_FALSE(has(invar({"compare", "base.csv", "low.csv", "--direction", "lower"}).out, "it is better"));
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
                          Case{{"base.csv", "low.csv", "--direction", "up"}, 2, "--direction up"},
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
                put_csv(arm.substr(begin, arm.find(',', begin) - begin), 0.9 + 1e-4 * ++written_);
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
    put_csv("one.csv", 0.91), put_csv("two.csv", 0.92);
    EXPECT_TRUE(has(invar({"compare", "one.csv", "two.csv", "logs/x_seed0.csv,logs/x_seed1.csv"}).out,
                    "1 baseline and 3 candidate runs of 2 candidates"));
}

TEST_F(Compare, HelpsToFindTheMetric) {
    put("a.csv", "epoch,step,train_loss,val_loss,val_acc\n0,1,0.5,0.6,0.9\n");
    put("b.csv", "epoch,step,train_loss,val_loss\n0,1,0.5,0.6\n");
    put("c.csv", "epoch,step,bleu\n0,1,30\n");
    put("d.csv", "epoch,step,train_loss,val_accuracy\n0,1,0.5,0.9\n");
    put("zero.csv", "epoch,step,val_acc\n0,1,0\n");
    const auto error = [&](Words words) {
        words.insert(words.begin(), "compare");
        return invar(words).error();
    };
    EXPECT_TRUE(has(error({"a.csv", "b.csv", "--metric", "loss"}), "may be train_loss or val_loss"));
    EXPECT_TRUE(has(error({"a.csv", "b.csv", "--metric", "val_los"}), "did you mean 'val_loss'?"));
    EXPECT_TRUE(has(error({"d.csv", "b.csv", "--metric", "acuracy"}), "did you mean 'val_accuracy'?"));
    EXPECT_TRUE(has(error({"a.csv", "b.csv", "--metric", "val_acc"}), "not in b.csv"));
    const std::string none = error({"a.csv", "c.csv"});
    EXPECT_TRUE(has(none, "no metric in common") && has(none, "c.csv has bleu")) << none;
    EXPECT_FALSE(has(none, "step") || has(none, "epoch")) << none;
    const Result zero = invar({"compare", "zero.csv", "a.csv"});
    EXPECT_EQ(zero.code, 4) << zero.err;
    EXPECT_TRUE(has(zero.out, "no share of zero")) << zero.out;
    EXPECT_FALSE(has(zero.out, "0.00%")) << zero.out;
}

TEST_F(Compare, CountsEveryRunOnce) {
    put_csv("base.csv", 0.8863);
    put_csv("low.csv", 0.8850);
    put("copy.csv", slurp(folder_ / "low.csv"));
    std::filesystem::create_symlink("low.csv", folder_ / "link.csv");
    std::filesystem::create_hard_link(folder_ / "low.csv", folder_ / "hard.csv");
    for (const char* twice : {"low.csv,low.csv", "low.csv,copy.csv", "low.csv,link.csv", "low.csv,hard.csv"}) {
        const Result result = invar({"compare", "base.csv", twice});
        EXPECT_EQ(result.code, 2) << twice;
        EXPECT_TRUE(has(result.error(), "that is one run, which counts once")) << result.err;
    }
    EXPECT_EQ(invar({"compare", "low.csv", "copy.csv"}).code, 2) << "nor can it be held against itself";
}

TEST_F(Compare, TakesTheLastCheckpointOfARunOfHuggingFace) {
    const auto state = [&](const std::string& name, int steps, int of, double scale) {
        std::string history;
        for (int step = 1; step <= steps; ++step)
            history += (step > 1 ? "," : "") + std::string("{\"step\": ") + std::to_string(step) +
                       ", \"loss\": " + std::to_string(scale / step) +
                       ", \"eval_loss\": " + std::to_string(1.1 * scale / step) + "}";
        put(name + "/trainer_state.json", "{\"global_step\": " + std::to_string(steps) + ", \"max_steps\": " +
                                              std::to_string(of) + ", \"log_history\": [" + history + "]}\n");
    };
    for (const int step : {4, 8, 12})
        state("a/checkpoint-" + std::to_string(step), step, 12, 1.0),
            state("b/checkpoint-" + std::to_string(step), step, 12, 1.001);
    const Result result = invar({"compare", "a", "b", "--json"});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_FALSE(has(result.out, "p_equivalent")) << "one run an arm has no test\n" << result.out;
    state("c/checkpoint-8", 8, 12, 1.002);
    const Result cut = invar({"compare", "a", "c"});
    EXPECT_EQ(cut.code, 2);
    EXPECT_TRUE(has(cut.error(), "is no whole run: it is at step 8 of 12; finish it")) << cut.err;
    const Result anyway = invar({"compare", "a", "c", "--any-length", "--report", "r"});
    EXPECT_TRUE(has(anyway.err, "warning: ") && has(anyway.err, "step 8 of 12")) << anyway.err;
    EXPECT_TRUE(has(slurp(folder_ / "r/report.md"), "Warning: ")) << anyway.err;
}

TEST_F(Compare, RefusesRunsOfDifferentLengthUnlessItIsToldTo) {
    put("long.csv", "step,val_acc\n10,0.5\n20,0.8\n");
    put("short.csv", "step,val_acc\n10,0.8\n");
    const Result refused = invar({"compare", "long.csv", "short.csv"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(has(refused.error(), "the runs differ in length: the last val_acc of short.csv is at 10"))
        << refused.err;
    const Result told = invar({"compare", "long.csv", "short.csv", "--any-length"});
    EXPECT_EQ(told.code, 0) << told.err;
    EXPECT_TRUE(has(told.err, "warning: the runs differ in length")) << told.err;
}

TEST_F(Compare, JudgesByWhatWasValidatedAndNotByWhatWasTrainedOn) {
    const auto table = [](double acc) {
        return "epoch,step,train_acc,train_loss_step,val_acc_epoch,val_loss_epoch\n0,1,0.99,0.5,,\n0,2,,," +
               std::to_string(acc) + ",0.6\n";
    };
    put("a.csv", table(0.8));
    put("b.csv", table(0.7));
    const Result result = invar({"compare", "a.csv", "b.csv"});
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_TRUE(has(result.out, "val_acc_epoch (higher is better)")) << result.out;
    const Result named = invar({"compare", "a.csv", "b.csv", "--metric", "val_loss"});
    EXPECT_EQ(named.code, 0) << named.out << named.err;
    EXPECT_TRUE(has(named.out, "val_loss_epoch (meant by --metric val_loss, lower is better)")) << named.out;
    put("c.csv", "step,train_acc\n1,0.9\n");
    put("d.csv", "step,train_acc\n1,0.91\n");
    EXPECT_TRUE(has(invar({"compare", "c.csv", "d.csv"}).err, "warning: train_acc does not look like"))
        << "and says so";
}

TEST_F(Compare, AsksWhichWayIsBetterWhereTheNameDoesNotSay) {
    put("a.csv", "step,val_power\n1,0.9\n");
    put("b.csv", "step,val_power\n1,0.8\n");
    EXPECT_EQ(invar({"compare", "a.csv", "b.csv"}).code, 2);
    EXPECT_TRUE(has(invar({"compare", "a.csv", "b.csv"}).error(), "--direction lower or --direction higher"));
    EXPECT_EQ(invar({"compare", "a.csv", "b.csv", "--direction", "lower"}).code, 1);
    EXPECT_TRUE(has(invar({"compare", "a.csv", "b.csv", "--direction", "lower"}).out, "it is better"));
}

TEST_F(Compare, UsesNoNumberThatMayBeCutOff) {
    put("a.csv", "step,val_acc\n1,0.5\n2,0.912\n");
    put("b.csv", "step,val_acc\n1,0.5\n2,0.911\n3,0.9");
    const Result result = invar({"compare", "a.csv", "b.csv"});
    EXPECT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_TRUE(has(result.err, "warning: b.csv ends in the middle of line 4, which is left out")) << result.err;
}

TEST_F(Compare, PassesOverMissingValuesThatAreWrittenAsNaN) {
    const std::string start = "step,loss,val_acc\n1,0.9,NaN\n1,NaN,0.5\n2,0.7,NaN\n";
    put("a.csv", start + "2,NaN,0.90\n");
    put("b.csv", start + "2,NaN,0.901\n");
    EXPECT_EQ(invar({"compare", "a.csv", "b.csv"}).code, 0) << invar({"compare", "a.csv", "b.csv"}).out;
    put("b.csv", "step,loss,val_acc\n1,0.9,NaN\n1,NaN,0.5\n2,NaN,NaN\n2,NaN,0.901\n");
    EXPECT_EQ(invar({"compare", "a.csv", "b.csv"}).code, 1) << "its last loss is NaN";
    EXPECT_TRUE(has(invar({"compare", "a.csv", "b.csv"}).out, "loss is NaN at step 2"));
}

TEST_F(Compare, AsksForTheSamplesBehindAShare) {
    put("a.csv", "step,loss,val_acc\n1,0.9,0.5\n2,0.5,0.75\n");
    put("b.csv", "step,loss,val_acc\n1,0.9,0.4\n2,0.5,0.75\n");
    EXPECT_TRUE(has(invar({"compare", "a.csv", "b.csv"}).out, "--samples N says it")) << "for val_acc";
    EXPECT_FALSE(has(invar({"compare", "a.csv", "b.csv", "--samples", "100"}).out, "--samples N"));
    EXPECT_FALSE(has(invar({"compare", "a.csv", "b.csv", "--metric", "loss"}).out, "--samples N")) << "no share";
    EXPECT_FALSE(has(invar({"compare", "a.csv", "b.csv", "--json"}).out, "--samples N"));
}

TEST_F(Compare, AdvisesAMarginInTheUnitOfTheValues) {
    put("a.csv", "step,val_acc\n1,50\n2,90.0\n");
    put("b.csv", "step,val_acc\n1,51\n2,89.6\n");
    EXPECT_TRUE(has(invar({"compare", "a.csv", "b.csv", "--margin", "0.5pp"}).err, "say abs:0.5 in its own unit"));
}

TEST_F(Compare, FailsNaNHoweverOftenItComes) {
    const auto table = [](std::initializer_list<const char*> losses) {
        std::string text = "epoch,train_loss,val_loss,val_accuracy\n";
        int epoch = 0;
        for (const char* loss : losses) {
            ++epoch;
            text += fmt::format("{},{},{},{}\n", epoch, 2.0 / epoch, loss, 0.5 + 0.1 * epoch);
        }
        return text;
    };
    put("a.csv", table({"1.0", "0.9", "0.8", "0.7"}));
    for (const std::string& low : {table({"1.0", "NaN", "0.8", "0.7"}), table({"1.0", "NaN", "0.8", "NaN"}),
                                   table({"NaN", "0.9", "NaN", "0.7"}), table({"NaN", "NaN", "NaN", "0.7"})}) {
        put("b.csv", low);
        const Result result = invar({"compare", "a.csv", "b.csv"});
        EXPECT_EQ(result.code, 1) << low << result.out << result.err;
        EXPECT_TRUE(has(result.out, "val_loss is NaN at step")) << result.out;
    }
    put("c.csv", "step,loss,val_acc\n1,4,0.5\n2,3,0.6\n3,2,0.7\n4,1,0.8\n");
    put("d.csv", "step,loss,val_acc\n1,NaN,0.5\n2,3,0.6\n3,NaN,0.7\n4,1,0.8\n");
    EXPECT_EQ(invar({"compare", "c.csv", "d.csv"}).code, 1) << "regular, but the baseline has values there";
}

TEST_F(Compare, IsInvalidWhereTheBaselineGotNoBetter) {
    put("a.csv", "step,loss,val_acc\n1,2.3,0.1\n2,2.9,0.1\n3,9.1,0.1\n");
    put("b.csv", "step,loss,val_acc\n1,2.3,0.1\n2,3.9,0.1\n3,9.2,0.1\n");
    const Result result = invar({"compare", "a.csv", "b.csv", "--report", "r"});
    EXPECT_EQ(result.code, 4) << result.out << result.err;
    EXPECT_TRUE(has(result.out, "INVALID: the baseline gives nothing to compare with: it is not shown to have learned"))
        << result.out;
    EXPECT_EQ(nlohmann::json::parse(slurp(folder_ / "r/report.json")).at("verdict"), "INVALID");
    put("c.csv", "step,loss,val_acc\n1,2.3,\n2,9.1,0.1\n");
    put("d.csv", "step,loss,val_acc\n1,2.3,\n2,9.2,0.1\n");
    EXPECT_TRUE(has(invar({"compare", "c.csv", "d.csv"}).err, "may not have learned")) << "one value tells less";
}

TEST_F(Compare, FailsARunWithNaNAndSaysWhere) {
    put("base.jsonl", "{\"step\": 1, \"loss\": 0.5, \"val_acc\": 0.9}\n");
    put("low.jsonl", "{\"step\": 1, \"loss\": NaN, \"val_acc\": 0.9}\n");
    const Result result = invar({"compare", "base.jsonl", "low.jsonl"});
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(has(result.out, "low.jsonl: loss is NaN at step 1")) << result.out;
    EXPECT_FALSE(has(result.out, "low.jsonl: low.jsonl")) << result.out;
}

TEST_F(Compare, JudgesRunsThatOtherProgramsLogged) {
    const auto events = [&](const std::string& run, float last) {
        std::string file;
        for (int step = 1; step <= 5; ++step)
            file += proto::simple(std::uint64_t(step), "val/accuracy", step == 5 ? last : 0.1f * float(step));
        put("tb/" + run + "/events.out.tfevents.1700000000.host", file);
        std::string lines;
        for (int step = 1; step <= 5; ++step)
            lines += "170000000000" + std::to_string(step) + " " +
                     std::to_string(step == 5 ? last : 0.1f * float(step)) + " " + std::to_string(step) + "\n";
        put("mlruns/0/" + run + "/metrics/val/accuracy", lines);
        put("mlruns/0/" + run + "/meta.yaml", "lifecycle_stage: active\nstatus: 3\n");
    };
    events("fp32", 0.9f);
    events("good", 0.901f);
    events("bad", 0.7f);
    put("export.csv",
        "\"Step\",\"fp32 - val/accuracy\",\"good - val/accuracy\",\"bad - val/accuracy\"\n"
        "\"1\",\"0.1\",\"0.1\",\"0.1\"\n\"5\",\"0.9\",\"0.901\",\"0.7\"");
    for (const std::string& where : {std::string("tb/"), std::string("mlruns/0/"), std::string("export.csv:")}) {
        const Result good = invar({"compare", where + "fp32", where + "good"});
        EXPECT_EQ(good.code, 0) << where << good.out << good.err;
        EXPECT_TRUE(has(good.out, "val/accuracy (higher is better)")) << good.out;
        EXPECT_EQ(invar({"compare", where + "fp32", where + "bad"}).code, 1) << where;
        EXPECT_EQ(invar({"compare", where + "fp32", where + "missing"}).code, 2) << where;
    }
    EXPECT_TRUE(has(invar({"compare", "export.csv:fp32", "export.csv:goof"}).error(), "did you mean 'good'"));
    put("mlruns/0/good/meta.yaml", "lifecycle_stage: active\nstatus: 1\n");
    EXPECT_TRUE(has(invar({"compare", "mlruns/0/fp32", "mlruns/0/good"}).error(), "its meta.yaml says RUNNING"));
    put("tb/good/events.out.tfevents.1700000000.host", std::string(40, 'x'));
    const Result damaged = invar({"compare", "tb/fp32", "tb/good"});
    EXPECT_EQ(damaged.code, 2);
    EXPECT_TRUE(has(damaged.error(), "record 1, at byte 0")) << damaged.err;
}

}  // namespace
}  // namespace invar::cli
