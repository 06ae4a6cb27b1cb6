// `invar validate --resume`: killed at any moment, it loses no run that was finished and reports what it would have.
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class ResumeValidation : public CliTest {
  protected:
    static Words words(const Words& more) {
        Words all =
            learner({"--candidates", "bf16-mixed", "--seeds", "2", "trainer.checkpoint_every_n_steps=5"}, {"validate"});
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    // What is judged, to the last digit: no times, no memory.
    nlohmann::json judged(const std::string& folder) const {
        const auto report = nlohmann::json::parse(slurp(folder_ / folder / "report.json"));
        nlohmann::json all = {report.at("verdict"), report.at("reason"), report.at("baseline").at("noise")};
        for (const auto& arm : {report.at("baseline"), report.at("candidates").at(0)})
            for (const auto& run : arm.at("runs"))
                all.push_back({run.at("seed"), run.at("metric"), run.at("val_loss"), run.at("loss"),
                               run.at("max_grad_norm"), run.at("steps")});
        return all;
    }
};

TEST_F(ResumeValidation, KilledAgainAndAgainEndsWithTheReportOfOneThatWasNot) {
    ASSERT_NE(invar(words({"exp_name=whole"})).code, 2);
    std::mt19937 random(9);
    int killed = 0;
    Result last;
    for (int attempt = 0; attempt < 40; ++attempt) {
        const bool begun = std::filesystem::exists(folder_ / "runs/victim/validation.json");
        if (!begun) std::filesystem::remove_all(folder_ / "runs/victim");  // killed before it had its file
        const pid_t child = start(words(begun ? Words{"exp_name=victim", "--resume"} : Words{"exp_name=victim"}));
        if (attempt < 12)
            std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<int>(30, 150)(random)));
        if (attempt < 12) ::kill(child, SIGKILL);
        last = finish(child);
        if (last.code != 128 + SIGKILL) break;
        ++killed;
    }
    ASSERT_GT(killed, 2);
    ASSERT_TRUE(last.code == 0 || last.code == 1 || last.code == 3) << last.code << last.err;
    EXPECT_EQ(judged("runs/victim"), judged("runs/whole"));
}

TEST_F(ResumeValidation, NamesTheCommandThatAddsSeedsAndTheCommandDoes) {
    const Result first = invar(words({"exp_name=v", "--margin", "0.05"}));
    ASSERT_EQ(first.code, 3) << first.out << first.err;
    const std::string_view mark = "to add the seeds that would decide it: invar ";
    const std::size_t at = first.out.find(mark);
    ASSERT_NE(at, std::string::npos) << first.out;
    const std::string command = first.out.substr(at + mark.size(), first.out.find('\n', at) - at - mark.size());
    EXPECT_TRUE(has(slurp(folder_ / "runs/v/report.md"), command));
    EXPECT_TRUE(has(slurp(folder_ / "runs/v/report.md"), "Times were measured on one machine in one go"));
    EXPECT_TRUE(has(command, "--margin 0.05 --resume")) << command;
    const Result more = shell("invar " + command);
    EXPECT_NE(more.code, 2) << more.err;
    EXPECT_TRUE(has(more.out, "run 1 of ")) << more.out;
    EXPECT_TRUE(has(more.out, "runs/v/fp32_seed0 is there already")) << more.out;
    EXPECT_TRUE(has(slurp(folder_ / "runs/v/report.md"), "Times were not measured in one go"));
    const auto report = nlohmann::json::parse(slurp(folder_ / "runs/v/report.json"));
    EXPECT_GT(report.at("baseline").at("runs").size(), 2u);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/v_2"));
}

TEST_F(ResumeValidation, RefusesWhatIsNotTheSameInOneLine) {
    ASSERT_NE(invar(words({"exp_name=v"})).code, 2);
    const Result other = invar(words({"exp_name=v", "--resume", "optimizer.lr=0.02"}));
    EXPECT_EQ(other.code, 2);
    EXPECT_TRUE(has(other.error(), "optimizer.lr was 0.03 and is 0.02")) << other.err;
    const Result trained = invar({"train", "--resume", "runs/v/"});
    EXPECT_EQ(trained.code, 2);
    EXPECT_TRUE(has(trained.error(),
                    "the folder of a validation; to go on with it: invar validate CONFIG --resume "
                    "exp_name=v,"))
        << trained.err;
    const Result none = invar(words({"exp_name=w", "--resume"}));
    EXPECT_EQ(none.code, 2);
    EXPECT_TRUE(has(none.error(), "--resume: there is no validation in runs/w")) << none.err;
}

}  // namespace
}  // namespace invar::cli
