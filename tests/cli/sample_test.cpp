// `invar sample`: text from a run, at the terminal.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Sample : public CliTest {
  protected:
    // A run on a text of one sentence, over and over.
    void train(const Words& more = {}) {
        const Result result = train_gpt(more);
        ASSERT_EQ(result.code, 0) << result.err;
        trained_ = result.out;
    }
    std::string trained_;
};

TEST_F(Sample, TrainsOnTokensAndCountsThem) {
    train({"trainer.log_every_n_steps=1"});
    EXPECT_TRUE(has(trained_, "tokens/s, MFU ")) << trained_;
    EXPECT_FALSE(has(trained_, "samples/s")) << trained_;
    const auto line = nlohmann::json::parse(lines("runs/cats/metrics.jsonl").at(10));
    EXPECT_NEAR(line.at("tokens_per_s"), 32 * line.at("samples_per_s").get<double>(),
                1e-6 * line.at("tokens_per_s").get<double>());
    const auto summary = nlohmann::json::parse(slurp(folder_ / "runs/cats/summary.json"));
    EXPECT_GT(summary.at("mfu"), 0.0);
    EXPECT_LT(summary.at("mfu"), 1.5);
    EXPECT_GT(summary.at("tokens_per_s"), 0.0);
    train({"exp_name=dogs", "seed=1"});
    const Result report = invar({"compare", "runs/cats", "runs/dogs", "--any-length", "--report", "report"});
    EXPECT_TRUE(has(slurp(folder_ / "report/report.md"), "tokens_per_s")) << report.out << report.err;
}

TEST_F(Sample, GoesOnAsTheTextDidAndNeedsThatNoMore) {
    train();
    std::filesystem::remove(folder_ / "text.txt");
    const Result result = invar({"sample", "runs/cats", "the cat", "--tokens", "16", "--temperature", "0"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, "the cat sat on the mat.\n");
    const Result again = invar({"sample", "runs/cats", "the cat", "--tokens", "60", "--seed", "3", "--json"});
    const Result slow =
        invar({"sample", "runs/cats", "the cat", "--tokens", "60", "--seed", "3", "--json", "--no-cache"});
    EXPECT_EQ(again.out, slow.out);
    const auto json = nlohmann::json::parse(again.out);
    EXPECT_EQ(json.at("prompt"), "the cat");
    EXPECT_EQ(json.at("tokens"), 60);
}

// Those who hold the model against another reader of it need numbers, not text.
TEST_F(Sample, TellsIdsAndTheLogitsThatTheFirstOneIsTheLargestOf) {
    train();
    const Result result =
        invar({"sample", "runs/cats", "the cat", "--tokens", "4", "--temperature", "0", "--json", "--logits"});
    ASSERT_EQ(result.code, 0) << result.err;
    const auto json = nlohmann::json::parse(result.out);
    EXPECT_EQ(json.at("text"), " sat");
    EXPECT_EQ(json.at("prompt_ids"), nlohmann::json({'t', 'h', 'e', ' ', 'c', 'a', 't'}));
    EXPECT_EQ(json.at("ids"), nlohmann::json({' ', 's', 'a', 't'}));
    const std::vector<float> logits = json.at("logits");
    EXPECT_EQ(logits.size(), 257u);
    EXPECT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), ' ');
    EXPECT_TRUE(has(invar({"sample", "runs/cats", "the", "--logits"}).error(), "--logits is for --json"));
    const Result length = invar({"sample", "runs/cats", std::string(33, 'a'), "--json", "--logits", "--tokens", "1"});
    EXPECT_TRUE(has(length.error(), "33 tokens")) << length.out << length.err;
}

// A model that has learned nothing draws bytes that are no UTF-8; what follows them is shown all the same.
TEST_F(Sample, ShowsEveryByteEvenBehindOnesThatAreNoCharacters) {
    train({"trainer.max_steps=1"});
    Words words = {"sample", "runs/cats", "the", "--tokens", "200", "--seed", "5"};
    const Result shown = invar(words);
    ASSERT_EQ(shown.code, 0) << shown.err;
    words.push_back("--json");
    const std::size_t tokens = nlohmann::json::parse(invar(words).out).at("tokens");
    EXPECT_GT(tokens, 20u);
    EXPECT_GE(shown.out.size(), tokens + 3);  // a byte each, or more where one is no character
}

TEST_F(Sample, SaysWhatIsWrong) {
    train({"trainer.max_steps=1"});
    EXPECT_TRUE(has(invar({"sample", "runs/cats"}).error(), "say which run, and how the text begins"));
    EXPECT_TRUE(has(invar({"sample", "runs/cats", "a", "cat"}).error(), "how the text begins, in quotes"));
    EXPECT_TRUE(has(invar({"sample", "nowhere", "the"}).error(), "nowhere: not the folder of a run"));
    EXPECT_EQ(invar({"sample", "runs/cats", ""}).code, 0);  // begins where documents do
    const Result refused = invar({"sample", "runs/cats", "a", "--top-p", "0"});
    EXPECT_TRUE(has(refused.error(), "top_p in (0, 1]"));
    EXPECT_EQ(refused.out, "") << "what a text begins with is no result by itself";
    const auto error = [&](const char* flag, const char* value) {
        return invar({"sample", "runs/cats", "a", flag, value}).error();
    };
    for (const char* tokens : {"0", "-1", "20000000", "some"})
        EXPECT_EQ(error("--tokens", tokens),
                  std::string("--tokens ") + tokens + ": it takes a whole number from 1 to 16777216\n");
    EXPECT_TRUE(has(error("--seed", "-1"), "--seed -1: it takes a whole number from 0 to 18446744073709551615"));
    EXPECT_TRUE(has(error("--top-k", "-1"), "--top-k -1: it takes a whole number from 0"));
    EXPECT_EQ(invar({"sample", "runs/cats", "a", "--tokens", "1", "--seed", "18446744073709551615"}).code, 0);
    invar(small({"exp_name=images"}));
    EXPECT_TRUE(has(invar({"sample", "runs/images", "a"}).error(), "model mlp is no language model"));
}

}  // namespace
}  // namespace invar::cli
