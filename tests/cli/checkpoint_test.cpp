// Best and last checkpoints, and early stopping, as people ask for them.
#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/io/safetensors.h"
#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Checkpoints : public CliTest {
  protected:
    std::string weights(const Words& more) const {
        Words words = {"eval", "runs/run", "--json"};
        words.insert(words.end(), more.begin(), more.end());
        const Result result = invar(words);
        EXPECT_EQ(result.code, 0) << result.err;
        return nlohmann::json::parse(result.out).at("weights");
    }
};

TEST_F(Checkpoints, SayByThemselvesWhichRunGoesOn) {
    ASSERT_EQ(invar(small()).code, 0);
    const auto summary = nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json"));
    const Result result =
        invar({"train", "--resume", "runs/run/checkpoints/step_00000010.safetensors", "trainer.max_epochs=3"});
    EXPECT_EQ(result.code, 0) << result.err;
    const auto longer = nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json"));
    EXPECT_GT(longer.at("steps"), summary.at("steps"));
}

TEST_F(Checkpoints, AreEvaluatedAndResumedByName) {
    const Result trained = invar(small({"trainer.max_epochs=4", "optimizer.lr=0.5", "checkpoint.monitor=val_loss",
                                        "trainer.keep_checkpoints=1", "trainer.on_instability=skip"}));
    ASSERT_EQ(trained.code, 0) << trained.err;
    const auto summary = nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json"));
    const std::string best = "runs/run/" + summary.at("best_checkpoint").at("file").get<std::string>();
    EXPECT_TRUE(has(trained.out, "best checkpoint") && has(trained.out, "val_loss")) << trained.out;
    EXPECT_EQ(weights({"--checkpoint", "best"}), best);
    EXPECT_EQ(weights({"--checkpoint", "last"}), "runs/run/checkpoints/step_00000040.safetensors");
    EXPECT_EQ(weights({}), "runs/run/checkpoints/step_00000040.safetensors");
    EXPECT_EQ(weights({"--checkpoint", best}), best);
    const auto value = nlohmann::json::parse(invar({"eval", "runs/run", "--checkpoint", "best", "--json"}).out);
    EXPECT_EQ(value.at("val_loss"), summary.at("best_checkpoint").at("value"));

    const Result resumed = invar({"train", "--resume", "runs/run", "--checkpoint", "best", "trainer.max_epochs=5"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    const std::int64_t step = summary.at("best_checkpoint").at("step");
    EXPECT_TRUE(has(resumed.out, "resuming at step " + std::to_string(step))) << resumed.out;
}

// A figure beside a loss that is NaN would be taken for a good one; and nothing can be learned from such weights.
TEST_F(Checkpoints, WithWeightsThatAreNoNumbersAreNeitherJudgedGoodNorTrainedOn) {
    ASSERT_EQ(invar({"init", "mnist_mlp", "w.safetensors", "data=synthetic"}).code, 0);
    const SafetensorsFile file(folder_ / "w.safetensors");
    TensorMap tensors;
    for (const TensorEntry& entry : file.entries()) tensors.emplace(entry.name, file.tensor(entry.name));
    Tensor& bias = tensors.rbegin()->second;
    bias = Tensor::from(std::vector<float>(std::size_t(bias.numel()), NAN), bias.shape());
    save_safetensors(folder_ / "nan.safetensors", tensors);
    const Result judged = invar({"eval", "nan.safetensors", "mnist_mlp", "data=synthetic"});
    EXPECT_EQ(judged.code, 1);
    EXPECT_TRUE(has(judged.err, "not every figure is a number")) << judged.err;
    const Result trained = invar({"train", "mnist_mlp", "data=synthetic", "init_from=nan.safetensors"});
    EXPECT_EQ(trained.code, 2);
    EXPECT_TRUE(has(trained.error(), "nan.safetensors: " + tensors.rbegin()->first + " holds NaN")) << trained.err;
}

TEST_F(Checkpoints, ThatAreNotThereAreRefusedInOneLine) {
    ASSERT_EQ(invar(small()).code, 0);
    const Result best = invar({"eval", "runs/run", "--checkpoint", "best"});
    EXPECT_EQ(best.code, 2);
    EXPECT_TRUE(has(best.error(), "checkpoint.monitor")) << best.err;
    EXPECT_EQ(invar({"train", "--resume", "runs/run", "--checkpoint", "beast"}).code, 2);
    const Result alone = invar(small({"--checkpoint", "best"}));
    EXPECT_EQ(alone.code, 2);
    EXPECT_TRUE(has(alone.error(), "--checkpoint says where --resume goes on")) << alone.err;
}

TEST_F(Checkpoints, OfAMetricThatIsNotThereAreRefusedBeforeTraining) {
    const Result wrong = invar(small({"checkpoint.monitor=val_acc"}));
    EXPECT_EQ(wrong.code, 2);
    EXPECT_TRUE(has(wrong.error(), "there are val_loss, val_accuracy")) << wrong.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/run"));
}

TEST_F(Checkpoints, ARunThatStopsEarlySaysWhyAndWhatGoesOn) {
    const Words words = small(
        {"trainer.max_epochs=9", "optimizer.lr=0", "early_stopping.monitor=val_loss", "early_stopping.patience=2"});
    const Result stopped = invar(words);
    EXPECT_EQ(stopped.code, 0) << stopped.err;
    EXPECT_TRUE(has(stopped.out, "stopped early") && has(stopped.out, "val_loss has not improved in 2 validations"))
        << stopped.out;
    const Result again = invar({"train", "--resume", "runs/run"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_TRUE(has(again.out, "nothing left to train; a larger early_stopping.patience goes on")) << again.out;
    EXPECT_EQ(nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json")).at("steps"), 30);
}

}  // namespace
}  // namespace invar::cli
