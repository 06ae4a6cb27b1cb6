// data=table: one's own file under the commands, without a line of code.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Tables : public CliTest {
  protected:
    static Words with(const char* command, const char* file, const char* target, const Words& more = {}) {
        Words words = {command,
                       "data=table",
                       "data.path=" + std::string(file),
                       "model=mlp",
                       "model.hidden=[8]",
                       "data.target=" + std::string(target),
                       "data.batch_size=16",
                       "optimizer.lr=0.03",
                       "data.num_workers=0",
                       "trainer.threads=1"};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    // So many rows in which the sign of a, in words, is to be told; with other words and columns where they are given.
    void write_signs(const char* file, int rows, const std::string& minus = "minus", const std::string& plus = "plus",
                     const std::string& header = "a,sign,b\n") const {
        std::ofstream csv(folder_ / file);
        csv << header;
        for (int i = 0; i < rows; ++i) {
            const double a = 0.01 * (i * 37 % 200) - 0.995;
            csv << a << "," << (a < 0 ? minus : plus) << "," << 0.5 * a << "\n";
        }
    }
    nlohmann::json summary() const { return nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json")); }
};

TEST_F(Tables, AreToldApartByTheirClasses) {
    std::ofstream csv(folder_ / "signs.csv");
    csv << "a,sign,b\n";
    for (int i = 0; i < 200; ++i) {
        const double a = 0.01 * (i * 37 % 200) - 1;
        csv << a << (a < 0 ? ",minus," : ",plus,") << 0.5 << "\n";
    }
    csv.close();
    const Result trained = invar(with("train", "signs.csv", "sign", {"trainer.max_epochs=8"}));
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_GT(summary().at("val_accuracy"), 0.9);
    const Result checked = invar(with("check", "signs.csv", "sign"));
    EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
    EXPECT_TRUE(has(checked.out, "y i64 with 2 classes from 0 to 1")) << checked.out;
}

TEST_F(Tables, ArePredictedWhereTheirTargetIsANumber) {
    std::ofstream text(folder_ / "line.txt");
    for (int i = 0; i < 200; ++i) {
        const double a = 0.01 * (i * 37 % 200) - 1;
        text << a << ";" << 2 * a + 0.125 << "\n";
    }
    text.close();
    const Result refused = invar(with("train", "line.txt", "1"));
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_TRUE(has(refused.error(), "use task=regression")) << refused.err;
    EXPECT_TRUE(has(refused.error(), "data.predict=classes")) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/run")) << "what cannot be trained leaves no folder behind";
    const Result trained =
        invar(with("train", "line.txt", "1", {"task=regression", "trainer.max_epochs=8", "exp_name=line"}));
    ASSERT_EQ(trained.code, 0) << trained.err;
    EXPECT_GT(nlohmann::json::parse(slurp(folder_ / "runs/line/summary.json")).at("val_r2"), 0.9);
}

TEST_F(Tables, AreRefusedWithLineAndColumnWhereAValueIsMissing) {
    std::ofstream(folder_ / "holes.csv") << "a,b,y\n1,2,0\n3,NA,1\n";
    const Result result = invar(with("train", "holes.csv", "y"));
    EXPECT_EQ(result.code, 2) << result.out;
    EXPECT_TRUE(has(result.error(), "holes.csv:3: the value of column \"b\" is missing")) << result.err;
    EXPECT_EQ(invar(with("train", "nosuch.csv", "y")).code, 2);
    EXPECT_TRUE(has(invar({"train", "data=table", "model=mlp"}).error(), "data=table needs data.path"));
}

TEST_F(Tables, OfARunAreThoseItWasTrainedOn) {
    write_signs("signs.csv", 100);
    ASSERT_EQ(invar(with("train", "signs.csv", "sign", {"trainer.max_epochs=1"})).code, 0);
    const auto refused = [&](const Words& words, const char* why) {
        const Result result = invar(words);
        EXPECT_EQ(result.code, 2) << result.out;
        EXPECT_TRUE(has(result.error(), why)) << result.err;
    };
    write_signs("words.csv", 100, "below", "above");
    const char* const classes = "classes was minus, plus, and is above, below";
    refused({"eval", "runs/run", "data.path=words.csv"}, classes);
    refused({"train", "--resume", "runs/run", "data.path=words.csv", "trainer.max_epochs=2"}, classes);
    write_signs("columns.csv", 100, "minus", "plus", "a,sign,c\n");
    refused({"eval", "runs/run", "data.path=columns.csv"}, "input was a, b, and is a, c");
    const char* const rows = "rows to validate on was 20 of 100, chosen by seed 0, and is 20 of 100, chosen by seed 1";
    refused({"train", "--resume", "runs/run", "seed=1", "trainer.max_epochs=2"}, rows);
    EXPECT_EQ(invar({"eval", "runs/run"}).code, 0);
    write_signs("more.csv", 30);
    const Result other = invar({"eval", "runs/run", "data.test_path=more.csv"});
    EXPECT_EQ(other.code, 0) << other.err;
    EXPECT_TRUE(has(other.out, "more.csv, 30 samples")) << other.out;
}

// The checkpoint of the last step is saved before the validation there; a resumed run must not measure it again.
TEST_F(Tables, ToValidateOnMayChangeAndLeaveWhatWasLogged) {
    write_signs("signs.csv", 100);
    write_signs("test.csv", 40);
    write_signs("other.csv", 30, "plus", "minus");  // all of it wrong
    ASSERT_EQ(invar(with("train", "signs.csv", "sign", {"data.test_path=test.csv", "trainer.max_epochs=2"})).code, 0);
    const std::vector<std::string> before = lines("runs/run/metrics.jsonl");
    const Result resumed = invar({"train", "--resume", "runs/run", "data.test_path=other.csv", "trainer.max_epochs=3"});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    const std::vector<std::string> after = lines("runs/run/metrics.jsonl");
    ASSERT_GT(after.size(), before.size());
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin())) << "what was logged stays";
    int validations = 0;
    for (const std::string& line : after) validations += has(line, "val_loss");
    EXPECT_EQ(validations, 3);
}

TEST_F(Tables, OfAnotherSizeGoOnForTheEpochsThatAreLeft) {
    write_signs("signs.csv", 160);
    write_signs("test.csv", 40);
    ASSERT_EQ(invar(with("train", "signs.csv", "sign", {"data.test_path=test.csv", "trainer.max_epochs=2"})).code, 0);
    EXPECT_EQ(summary().at("steps"), 20);
    for (const auto& [rows, steps] : {std::pair{32, 22}, {320, 42}}) {  // an epoch more each time
        write_signs("signs.csv", rows);
        const int epochs = summary().at("epochs").get<int>() + 1;
        const Result resumed = invar({"train", "--resume", "runs/run", "trainer.max_epochs=" + std::to_string(epochs)});
        ASSERT_EQ(resumed.code, 0) << resumed.err;
        EXPECT_EQ(summary().at("epochs"), epochs) << resumed.out;
        EXPECT_EQ(summary().at("steps"), steps) << resumed.out;
    }
    const Result again = invar({"train", "--resume", "runs/run"});
    EXPECT_TRUE(has(again.out, "nothing left to train")) << again.out << again.err;
}

TEST_F(Tables, OfFewerRowsThanABatchAreOneBatch) {
    write_signs("signs.csv", 50);
    const Result trained = invar(with("train", "signs.csv", "sign", {"data.batch_size=128", "trainer.max_epochs=2"}));
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(summary().at("steps"), 2);
    const Result checked = invar(with("check", "signs.csv", "sign", {"data.batch_size=128"}));
    EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
    for (const char* command : {"train", "check"}) {
        const Result refused =
            invar(with(command, "signs.csv", "sign", {"data.batch_size=128", "data.drop_last=true"}));
        EXPECT_EQ(refused.code, 2) << command << refused.out;
        EXPECT_TRUE(has(refused.error(), "data.batch_size=128") && has(refused.error(), "data.drop_last=true"));
    }
}

TEST_F(Tables, AreToldOfByWhatWasFoundInThem) {
    write_signs("plain.csv", 100, "minus", "plus", "");
    write_signs("test.csv", 30, "minus", "plus", "");
    const Result checked = invar(with("check", "plain.csv", "1", {"data.test_path=test.csv"}));
    EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
    EXPECT_TRUE(has(checked.out, "plain.csv, 100 samples")) << "the first row is one of them: " << checked.out;
    EXPECT_TRUE(has(checked.out, "input: 2 without names (no header)")) << checked.out;
    EXPECT_TRUE(has(checked.out, "test.csv, 30 samples")) << checked.out;
    const Result trained = invar(with("train", "plain.csv", "1", {"trainer.max_epochs=1"}));
    EXPECT_TRUE(has(trained.out, "classes: minus, plus")) << trained.out;
}

TEST_F(Tables, WithOneNumberToPredictAreWarnedOf) {
    std::ofstream csv(folder_ / "flat.csv");
    csv << "a,y\n";
    for (int i = 0; i < 40; ++i) csv << 0.1 * i << ",2.5\n";
    csv.close();
    const Result checked = invar(with("check", "flat.csv", "y", {"task=regression"}));
    EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
    EXPECT_TRUE(has(checked.out, "WARN  train") && has(checked.out, "the same in every sample")) << checked.out;
}

}  // namespace
}  // namespace invar::cli
