// data=table: one's own file under the commands, without a line of code.
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

}  // namespace
}  // namespace invar::cli
