// `invar train --resume` on folders that something has happened to, starts at the same moment, and damaged weights.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

namespace fs = std::filesystem;

class Resume : public CliTest {
  protected:
    void put(const fs::path& file, const std::string& bytes) const {
        std::ofstream(folder_ / file, std::ios::binary) << bytes;
    }
    std::string status(const std::string& run) const {
        return nlohmann::json::parse(slurp(folder_ / run / "summary.json")).at("status");
    }
    // With one bit of the last tensor's last byte flipped.
    void flip(const fs::path& file) const {
        std::string bytes = slurp(folder_ / file);
        bytes.back() = char(bytes.back() ^ 1);
        put(file, bytes);
    }
};

TEST_F(Resume, RefusesWhereEveryCheckpointIsDamagedAndSaysWhatItFound) {
    ASSERT_EQ(invar(small()).code, 0);
    const std::string metrics = slurp(folder_ / "runs/run/metrics.jsonl");
    flip("runs/run/checkpoints/step_00000010.safetensors");
    for (const Words& words :
         {Words{"train", "--resume", "runs/run"}, Words{"eval", "runs/run"}, Words{"diagnose", "runs/run"}}) {
        const Result refused = invar(words);
        EXPECT_EQ(refused.code, 2) << refused.out;
        EXPECT_TRUE(has(refused.error(), "none of its 1 checkpoints can be used") &&
                    has(refused.error(), "step_00000010.safetensors: the bytes of tensor"))
            << refused.err;
    }
    EXPECT_EQ(slurp(folder_ / "runs/run/metrics.jsonl"), metrics);
}

TEST_F(Resume, GoesOnFromTheOlderCheckpointThatIsWhole) {
    ASSERT_EQ(invar(small({"trainer.checkpoint_every_n_steps=4"})).code, 0);
    const std::string whole = slurp(folder_ / "runs/run/checkpoints/step_00000010.safetensors");
    flip("runs/run/checkpoints/step_00000010.safetensors");
    const Result resumed = invar({"train", "--resume", "runs/run"});
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_TRUE(has(resumed.out, "passed over a checkpoint") && has(resumed.out, "resuming at step 8")) << resumed.out;
    EXPECT_TRUE(slurp(folder_ / "runs/run/checkpoints/step_00000010.safetensors") == whole);
}

TEST_F(Resume, TakesTheCheckpointsConfigurationWhereConfigYamlIsCutOffAndSaysSo) {
    ASSERT_EQ(invar(small({"optimizer.lr=0.0123", "trainer.checkpoint_every_n_steps=4"})).code, 0);
    const std::string yaml = slurp(folder_ / "runs/run/config.yaml");
    ASSERT_TRUE(has(yaml, "lr: 0.0123"));
    for (const std::string& bad :
         {yaml.substr(0, yaml.find("lr:")), std::string(), std::string("a: [\n# complete\n")}) {
        put("runs/run/config.yaml", bad);
        const Result resumed = invar({"train", "--resume", "runs/run"});
        EXPECT_EQ(resumed.code, 0) << resumed.err;
        EXPECT_TRUE(has(resumed.err, "note: runs/run/config.yaml") &&
                    has(resumed.err, "taking the configuration inside"))
            << resumed.err;
        EXPECT_EQ(slurp(folder_ / "runs/run/config.yaml"), yaml) << "it is whole again";
    }
    fs::remove_all(folder_ / "runs/run/checkpoints");
    put("runs/run/config.yaml", yaml.substr(0, 50));
    const Result refused = invar({"train", "--resume", "runs/run"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(has(refused.error(), "config.yaml is cut off")) << refused.err;
}

TEST_F(Resume, AFinishedRunWithNothingLeftStaysAsItIsWhateverIsAsked) {
    ASSERT_EQ(invar(small()).code, 0);
    const auto files = [&] {
        std::map<std::string, std::string> all;
        for (const auto& entry : fs::recursive_directory_iterator(folder_ / "runs"))
            if (entry.is_regular_file() && entry.path().filename() != ".lock") all[entry.path()] = slurp(entry.path());
        return all;
    };
    const auto before = files();
    for (const auto& [word, key] : {std::pair{"precision=bf16", "trainer.precision=bf16-mixed"},
                                    {"seed=5", "seed=5"},
                                    {"exp_name=z", "exp_name=z"}}) {
        const Result again = invar({"train", "--resume", "runs/run", word});
        EXPECT_EQ(again.code, 0) << again.err;
        EXPECT_TRUE(has(again.out, "nothing left to train; the run stays as it is")) << again.out;
        EXPECT_TRUE(has(again.out, std::string("not applied: ") + key + "\n")) << again.out;
        EXPECT_FALSE(has(again.out, "[AMP]") || has(again.err, "never validated")) << again.out << again.err;
        EXPECT_TRUE(files() == before) << word;
    }
    const Result quiet = invar({"train", "--resume", "runs/run", "--quiet", "seed=5"});
    EXPECT_EQ(quiet.out, "runs/run\n");
    EXPECT_TRUE(has(quiet.err, "nothing left to train") && has(quiet.err, "not applied: seed=5")) << quiet.err;
    EXPECT_FALSE(has(invar({"train", "--resume", "runs/run"}).out, "not applied"));
    EXPECT_TRUE(files() == before);
}

TEST_F(Resume, ARunKilledBeforeItsLastValidationIsFinished) {
    ASSERT_EQ(invar(small()).code, 0);
    const std::string whole = slurp(folder_ / "runs/run/metrics.jsonl");
    const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
    ASSERT_TRUE(has(whole.substr(last), "val_loss"));
    put("runs/run/metrics.jsonl", whole.substr(0, last));
    nlohmann::json summary = nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json"));
    summary["status"] = "running";
    put("runs/run/summary.json", summary.dump());
    ASSERT_EQ(invar({"train", "--resume", "runs/run"}).code, 0);
    EXPECT_EQ(slurp(folder_ / "runs/run/metrics.jsonl"), whole);
    EXPECT_EQ(status("runs/run"), "finished");
}

TEST_F(Resume, AStartThatWasKilledAtOnceLeavesItsNameFree) {
    fs::create_directories(folder_ / "runs/run");
    put("runs/run/.lock", "1");
    const Result refused = invar({"train", "--resume", "runs/run"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(has(refused.error(), "no config.yaml") && has(refused.error(), "start it again")) << refused.err;
    EXPECT_EQ(invar(small({"--quiet"})).out, "runs/run\n");
}

TEST_F(Resume, StartsOfOneNameAtOnceEachGetAFolderOfTheirOwn) {
    constexpr int kStarts = 6;
    std::vector<pid_t> children;
    for (int i = 0; i < kStarts; ++i)
        children.push_back(start(small({"--quiet", "output_dir=../runs"}), "home" + std::to_string(i)));
    std::set<std::string> folders;
    for (int i = 0; i < kStarts; ++i) {
        const Result result = finish(children[std::size_t(i)], "home" + std::to_string(i));
        EXPECT_EQ(result.code, 0) << result.err;
        folders.insert(result.out);
    }
    EXPECT_EQ(folders.size(), std::size_t(kStarts));
    for (const char* run : {"runs/run", "runs/run_2", "runs/run_6"}) EXPECT_EQ(status(run), "finished") << run;
}

TEST_F(Resume, AFolderDeletedUnderARunIsAnError) {
    const pid_t child = start(small({"trainer.max_epochs=100000", "trainer.checkpoint_every_n_steps=200"}));
    while (slurp(folder_ / "runs/run/metrics.jsonl").size() < 2000) ::usleep(2000);
    std::error_code ignored;
    while (fs::exists(folder_ / "runs/run")) fs::remove_all(folder_ / "runs/run", ignored);
    const Result result = finish(child);
    EXPECT_EQ(result.code, 1) << result.out;
    EXPECT_TRUE(has(result.error(), "runs/run")) << result.err;  // deleted, or not there when written just then
    EXPECT_FALSE(has(result.out, "finished"));
}

TEST_F(Resume, DamagedWeightsAreRefusedByNameWhereverTheyAreRead) {
    ASSERT_EQ(invar(small({"w.safetensors"}, {"init"})).code, 0);
    ASSERT_EQ(invar(small({"w.safetensors"}, {"eval"})).code, 0);
    flip("w.safetensors");
    for (const Words& words :
         {small({"w.safetensors"}, {"eval"}), small({"init_from=w.safetensors"}), Words{"inspect", "w.safetensors"}}) {
        const Result refused = invar(words);
        EXPECT_NE(refused.code, 0) << words[0];
        EXPECT_TRUE(has(refused.error(), "w.safetensors: the bytes of tensor \"")) << refused.err;
    }
}

}  // namespace
}  // namespace invar::cli
