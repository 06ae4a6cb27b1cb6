// Logs of other people's runs: sparse tables, JSON of every habit, and files that are damaged in every way.
#include "invar/validate/run_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "invar/core/error.h"
#include "invar/validate/metric_names.h"
#include "invar/validate/missing_values.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

using Numbers = std::vector<double>;

TEST(CsvLog, ReadsLightningsSparseTable) {
    const RunLog log = parse_csv_log(
        "epoch,lr-Adam,step,train/loss_step,val/hmean\r\n"
        "0,,49,0.9,\r\n"
        "0,0.001,49,,\r\n"
        "0,,99,0.5,\r\n"
        "0,,99,,0.81\r\n"
        "1,,199,,0.88\r\n",
        "metrics.csv");
    EXPECT_EQ(log.at("val/hmean").y, (Numbers{0.81, 0.88}));
    EXPECT_EQ(log.at("val/hmean").x, (Numbers{99, 199}));
    EXPECT_EQ(log.at("train/loss_step").x, (Numbers{49, 99}));
    EXPECT_EQ(log.at("lr-Adam").y, (Numbers{0.001}));
    EXPECT_EQ(log.at("epoch").y.size(), 5u);
}

TEST(CsvLog, UnderstandsQuotesMarksAndOddNumbers) {
    const RunLog log = parse_csv_log(
        "\xEF\xBB\xBF\"a,b\", c ,note\n\"1.5\",nan,\"said \"\"no\"\",\nand left\"\n+2,-Infinity,x\n,1e999,y\n", "f");
    EXPECT_EQ(log.at("a,b").y, (Numbers{1.5, 2}));
    EXPECT_EQ(log.at("a,b").x, (Numbers{1, 2})) << "rows count where there is neither step nor epoch";
    ASSERT_EQ(log.at("c").y.size(), 3u);
    EXPECT_TRUE(std::isnan(log.at("c").y[0]));
    EXPECT_EQ(log.at("c").y[1], -INFINITY);
    EXPECT_EQ(log.at("c").y[2], INFINITY);
    EXPECT_FALSE(log.series.contains("note"));
}

TEST(CsvLog, FallsBackToTheEpochWhereThereIsNoStep) {
    EXPECT_EQ(parse_csv_log("epoch,acc\n3,0.5\n4,0.6\n", "f").at("acc").x, (Numbers{3, 4}));
}

TEST(CsvLog, LeavesOutATornLastLineAndNoOther) {
    EXPECT_EQ(parse_csv_log("step,acc,x\n1,0.5,2\n2,0.", "f").at("acc").y, (Numbers{0.5}));
    const RunLog cut = parse_csv_log("step,acc\n1,0.5\n2,0.9", "f");
    EXPECT_EQ(cut.at("acc").y, (Numbers{0.5})) << "0.9 may be the beginning of 0.91";
    EXPECT_EQ(cut.note, "f ends in the middle of line 3, which is left out");
    EXPECT_EQ(parse_csv_log("step,acc\n1,0.5\n", "f").note, "");
    EXPECT_ERROR(parse_csv_log("step,acc\n1,0.5", "f"), IoError, "holds no numbers");
    const RunLog lines = parse_log("{\"acc\": 0.5}\n{\"acc\": 0.9}", "f");
    EXPECT_EQ(lines.at("acc").y, (Numbers{0.5, 0.9})) << "its brace is closed";
    EXPECT_NE(parse_log("{\"acc\": 0.5}\n{\"acc\": 0.9", "f").note, "");
    EXPECT_ERROR(parse_csv_log("step,acc,x\n1,0.5,2\n2,0.6\n3,0.7,1\n", "m.csv"), IoError,
                 "m.csv line 3: 2 cells, but the header names 3 columns");
    EXPECT_ERROR(parse_csv_log("step,acc\n1,2,3\n", "m.csv"), IoError, "line 2: 3 cells");
}

TEST(CsvLog, SaysWhereAValueIsNoNumberOnlyWhenItIsAskedFor) {
    const RunLog log = parse_csv_log("step,acc,who\n1,0.5,ann\n2,high,bob\n", "m.csv");
    EXPECT_EQ(log.at("step").y.size(), 2u);
    EXPECT_ERROR(log.at("acc"), IoError, "m.csv line 3: \"acc\" is \"high\", not a number");
    EXPECT_ERROR(log.at("who"), IoError, "not a number");
    EXPECT_ERROR(log.at("bleu"), IoError, "there is no \"bleu\"");
}

TEST(CsvLog, RefusesTwoColumnsOfOneName) {
    EXPECT_ERROR(parse_csv_log("step,acc,acc\n1,0.5,0.9\n", "m.csv"), IoError,
                 "m.csv line 1: two columns are called \"acc\"");
    EXPECT_EQ(parse_csv_log(",step,acc,\n0,1,0.5,\n", "m.csv").at("acc").y, (Numbers{0.5})) << "that of an index";
}

TEST(CsvLog, RefusesWhatHoldsNothing) {
    EXPECT_ERROR(parse_log("", "m.csv"), IoError, "m.csv: empty");
    EXPECT_ERROR(parse_log(" \n\n", "m.csv"), IoError, "m.csv: empty");
    EXPECT_ERROR(parse_csv_log("\n1,2\n", "m.csv"), IoError, "line 1: empty");
    EXPECT_ERROR(parse_log("step,acc\n", "m.csv"), IoError, "holds no numbers");
    EXPECT_ERROR(parse_log("only words\nand more\n", "m.csv"), IoError, "holds no numbers");
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A table of a loss beside a rate that is always there, with a row for each of steps 1, 2, ...
RunLog column(const Numbers& losses) {
    std::string text = "step,lr,loss\n";
    for (std::size_t i = 0; i < losses.size(); ++i) text += fmt::format("{},0.1,{}\n", i + 1, losses[i]);
    return parse_log(text, "f");
}

// pandas writes NaN where a row has no value; so does a real one look.
TEST(MissingValues, AreLeftOutInRowsOfAnotherKind) {
    const RunLog log = parse_log(
        "step,lr,loss,val_acc\n1,0.1,0.9,nan\n2,0.1,0.7,nan\n2,nan,nan,0.5\n3,0.1,0.5,NaN\n3,nan,nan,0.8\n", "f");
    EXPECT_EQ(log.at("loss").y, (Numbers{0.9, 0.7, 0.5}));
    EXPECT_EQ(log.at("loss").x, (Numbers{1, 2, 3}));
    EXPECT_EQ(log.at("val_acc").y, (Numbers{0.5, 0.8}));
}

TEST(MissingValues, AreLeftOutBetweenValuesThatAreLoggedNowAndThen) {
    const RunLog log = parse_log(
        "step,loss,val_acc\n1,0.9,nan\n2,0.8,nan\n3,0.7,0.5\n4,0.6,nan\n5,0.5,nan\n6,0.4,0.8\n7,0.3,nan\n", "f");
    EXPECT_EQ(log.at("loss").y.size(), 7u);
    EXPECT_EQ(log.at("val_acc").y, (Numbers{0.5, 0.8}));
    EXPECT_EQ(log.passed_over.at("val_acc"), (Numbers{1, 2, 4, 5, 7}));
    const RunLog json = parse_log(
        "{\"step\": 1, \"loss\": 0.9, \"acc\": NaN}\n{\"step\": 2, \"loss\": 0.8, \"acc\": 0.4}\n"
        "{\"step\": 3, \"loss\": 0.7, \"acc\": NaN}\n{\"step\": 4, \"loss\": 0.6, \"acc\": 0.5}\n",
        "f");
    EXPECT_EQ(json.at("acc").y, (Numbers{0.4, 0.5}));
    EXPECT_EQ(column({1, kNaN, kNaN, 2, kNaN, 3, kNaN, kNaN}).at("loss").y, (Numbers{1, 2, 3})) << "from the first on";
}

TEST(MissingValues, AreNotWhatWasComputedAsNaN) {
    const auto ends_in_nan = [](const char* text, const char* name) {
        return std::isnan(parse_log(text, "f").at(name).y.back());
    };
    EXPECT_TRUE(ends_in_nan("step,lr,loss\n1,0.1,0.9\n2,0.1,0.7\n3,0.1,nan\n", "loss"));
    EXPECT_TRUE(
        ends_in_nan("step,loss,val_acc\n1,0.9,nan\n2,nan,0.5\n3,0.7,nan\n4,nan,0.6\n5,nan,nan\n6,nan,0.1\n", "loss"))
        << "a row of training whose loss is gone";
    EXPECT_TRUE(ends_in_nan("step,loss,val_acc\n1,1,nan\n2,1,0.5\n3,1,nan\n4,1,nan\n", "val_acc"))
        << "the validation that was due";
    EXPECT_TRUE(ends_in_nan("step,loss,val_acc\n1,nan,0.9\n", "loss")) << "never anything else";
    const RunLog once = parse_log("step,lr,loss\n1,1,0.9\n2,1,nan\n3,1,0.8\n4,1,0.7\n5,1,0.6\n6,1,0.5\n", "f");
    EXPECT_EQ(once.at("loss").y.size(), 6u) << "one batch that overflowed";
    const RunLog early = parse_log("step,lr,loss\n1,1,0.9\n2,1,nan\n3,1,0.8\n4,1,0.7\n", "f");
    EXPECT_EQ(early.at("loss").y.size(), 4u) << "one of four";
    EXPECT_EQ(column({0.9, kNaN, 0.8}).at("loss").y.size(), 3u) << "one of three";
    EXPECT_EQ(column({kNaN, kNaN, 0.8}).at("loss").y.size(), 3u) << "two of three, and no second gap";
    EXPECT_EQ(column({kNaN, 0.9, kNaN, 0.8}).at("loss").y.size(), 2u) << "two gaps";
    EXPECT_EQ(column({kNaN, 0.9, kNaN, 0.8, 0.7}).at("loss").y.size(), 5u) << "two values in a row";
    EXPECT_EQ(column({0.9, kNaN, 0.8, kNaN, kNaN, kNaN, 0.7}).at("loss").y.size(), 7u) << "gaps of one and three";
}

TEST(MissingValues, AreNotThoseBesideAnotherFigureOfTheSameData) {
    const std::string head = "step,train_loss,val_loss,val_acc\n";
    const RunLog lost = parse_log(head + "1,5,nan,0.1\n2,4,2,0.2\n3,3,nan,0.3\n4,2,1,0.4\n", "f");
    EXPECT_EQ(lost.at("val_loss").y.size(), 4u) << "it comes regularly, but accuracy was measured";
    const RunLog each = parse_log(head + "1,5,nan,0.1\n2,nan,2,0.2\n3,3,nan,0.3\n4,nan,1,0.4\n", "f");
    EXPECT_EQ(each.at("val_loss").y.size(), 4u) << "no row is whole, and yet none is of another kind";
    const RunLog validated = parse_log(head + "1,5,nan,nan\n2,4,2,0.2\n3,3,nan,nan\n4,2,1,0.4\n", "f");
    EXPECT_EQ(validated.at("val_loss").y, (Numbers{2, 1})) << "what trained has no part in it";
    const RunLog seldom = parse_log(
        "step,val_loss,val_bleu\n1,9,nan\n2,8,nan\n3,7,nan\n4,6,10\n5,5,nan\n6,4,nan\n7,3,nan\n8,2,20\n", "f");
    EXPECT_EQ(seldom.at("val_bleu").y, (Numbers{10, 20})) << "one that is measured at every fourth validation";
}

TEST(MissingValues, AreNotThoseAtWhichTheBaselineHasAValue) {
    const RunLog baseline = column({4, 3, 2, 1});
    RunLog candidate = column({kNaN, 3, kNaN, 1});
    ASSERT_EQ(candidate.at("loss").y.size(), 2u);
    restore_computed(candidate, baseline);
    EXPECT_EQ(candidate.at("loss").x, (Numbers{1, 2, 3, 4}));
    EXPECT_TRUE(std::isnan(candidate.at("loss").y[0]) && std::isnan(candidate.at("loss").y[2]));
    RunLog same = column({kNaN, 3, kNaN, 1});
    restore_computed(same, column({kNaN, 3, kNaN, 1}));
    EXPECT_EQ(same.at("loss").y, (Numbers{3, 1})) << "logged now and then by both";
    const char* rows = "step,loss,val_acc\n1,0.9,nan\n1,nan,0.5\n2,0.7,nan\n2,nan,0.8\n";
    RunLog kinds = parse_log(rows, "f");
    restore_computed(kinds, parse_log(rows, "f"));
    EXPECT_EQ(kinds.at("loss").y, (Numbers{0.9, 0.7})) << "two rows of one step";
}

TEST(JsonLog, ReadsAnObjectALineWithNestedKeys) {
    const RunLog log = parse_log(
        "{\"step\": 10, \"loss\": 0.5, \"memory\": {\"total\": 7, \"by\": {\"x\": 1}}, \"tag\": [1, 2]}\n\n"
        "{\"step\": 20, \"loss\": \"nan\", \"note\": \"hi\", \"ok\": true, \"none\": null}\n",
        "m.jsonl");
    EXPECT_EQ(log.at("memory.total").y, (Numbers{7}));
    EXPECT_EQ(log.at("memory.by.x").x, (Numbers{10}));
    ASSERT_EQ(log.at("loss").y.size(), 2u);
    EXPECT_TRUE(std::isnan(log.at("loss").y[1]));
    EXPECT_FALSE(log.series.contains("tag"));
    EXPECT_FALSE(log.series.contains("ok"));
}

TEST(JsonLog, UnderstandsTheBareWordsOfPython) {
    const RunLog log = parse_log(
        "{\"loss\": NaN, \"a\": -Infinity, \"b\": Infinity, \"c\": \"NaN, \\\" Infinity\"}\n{\"loss\": 1}\n", "m");
    EXPECT_TRUE(std::isnan(log.at("loss").y[0]));
    EXPECT_EQ(log.at("a").y[0], -INFINITY);
    EXPECT_EQ(log.at("b").y[0], INFINITY);
}

TEST(JsonLog, TakesAnArrayAndTheLogHistoryOfATrainerState) {
    for (const char* text :
         {"[{\"step\": 1, \"eval_loss\": 2.5},\n {\"step\": 2, \"eval_loss\": 2}]\n",
          "{\n \"best\": null,\n \"log_history\": [{\"step\": 1, \"eval_loss\": 2.5},\n"
          "  {\"step\": 2, \"eval_loss\": 2}]\n}\n",
          "{\"log_history\": [{\"step\": 1, \"eval_loss\": 2.5}, {\"step\": 2, \"eval_loss\": 2}]}"}) {
        const RunLog log = parse_log(text, "trainer_state.json");
        EXPECT_EQ(log.at("eval_loss").y, (Numbers{2.5, 2})) << text;
        EXPECT_EQ(log.at("eval_loss").x, (Numbers{1, 2})) << text;
    }
    EXPECT_ERROR(parse_log("[1, 2]", "x.json"), IoError, "entry 1 of its array");
}

TEST(JsonLog, NamesTheLineThatIsDamaged) {
    EXPECT_ERROR(parse_log("{\"a\": 1}\n{\"a\": \n{\"a\": 2}\n", "m.jsonl"), IoError,
                 "m.jsonl line 2: not a JSON object");
    EXPECT_ERROR(parse_log("{broken\n", "m.jsonl"), IoError, "line 1");
    EXPECT_ERROR(parse_json_log(std::string("{\"a\"\0: 1}\n{}\n", 12), "m"), IoError, "line 1");
    EXPECT_EQ(parse_log("{\"a\": 1}\n{\"a\": ", "m").at("a").y.size(), 1u) << "a torn last line is left out";
    EXPECT_ERROR(parse_log("{}\n{\"a\": \"x\"}\n", "m"), IoError, "holds no numbers");
}

TEST(JsonLog, SurvivesNestingWithoutEnd) {
    std::string deep = "{\"x\": 1, \"a\": ";
    for (int i = 0; i < 100'000; ++i) deep += "{\"a\": ";
    deep += "1" + std::string(100'001, '}');
    EXPECT_EQ(parse_log(deep, "m").series.size(), 1u) << "what lies too deep is no metric";
    EXPECT_THROW(parse_log(std::string(100'000, '['), "m"), IoError);
}

TEST(MetricNames, AreFoundAsPeopleWriteThem) {
    const std::vector<std::string> names = {"epoch", "train/loss", "val/hmean", "val/precision", "Test.Acc"};
    EXPECT_EQ(find_metric("val/hmean", names), "val/hmean");
    EXPECT_EQ(find_metric("val_hmean", names), "val/hmean");
    EXPECT_EQ(find_metric("hmean", names), "val/hmean");
    EXPECT_EQ(find_metric("TEST_ACC", names), "Test.Acc");
    EXPECT_EQ(find_metric("hmeen", names), std::nullopt);
    EXPECT_EQ(find_metric("", names), std::nullopt);
    EXPECT_EQ(find_metric("loss", {"train_loss", "val_loss"}), std::nullopt) << "not clear which";
    EXPECT_EQ(find_metric("val_loss", {"train_loss", "val_loss_epoch"}), "val_loss_epoch") << "as Lightning calls it";
    EXPECT_EQ(find_metric("val_loss", {"val_loss_epoch", "val_loss"}), "val_loss");
    EXPECT_EQ(find_metric("hmean", {"val/hmean_epoch"}), "val/hmean_epoch");
    EXPECT_EQ(find_metric("val_loss", {"val_loss_epoch", "val_loss_step"}), std::nullopt) << "not clear which";
}

TEST(MetricNames, PrefersAnAccuracyOnHeldOutData) {
    EXPECT_EQ(default_metric({"epoch", "loss", "lr", "step", "val_accuracy", "val_loss"}), "val_accuracy");
    EXPECT_EQ(default_metric({"epoch", "loss", "eval_loss", "grad_norm", "eval_runtime"}), "eval_loss");
    EXPECT_EQ(default_metric({"train/acc", "loss"}), "train/acc");
    EXPECT_EQ(default_metric({"train_acc", "train_loss_step", "val_acc_epoch", "val_loss_epoch"}), "val_acc_epoch");
    EXPECT_EQ(default_metric({"epoch", "train_loss_epoch", "val_loss_epoch", "val_loss_step"}), "val_loss_epoch");
    EXPECT_EQ(default_metric({"test_acc", "val_acc", "val_step"}), "val_acc");
    EXPECT_EQ(default_metric({"val_loss", "val_wer", "val_time"}), "val_wer");
    EXPECT_EQ(default_metric({"step", "loss", "scale"}), "loss");
    EXPECT_EQ(default_metric({"step", "epoch", "lr"}), "");
    EXPECT_EQ(default_metric({"step", "temperature", "loss"}), "loss") << "nobody knows which way that is better";
    EXPECT_EQ(default_metric({"step", "temperature"}), "");
}

}  // namespace
}  // namespace invar
