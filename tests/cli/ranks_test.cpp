// Several processes of the program under mpirun: the same run as one makes, and what becomes of it when a rank is lost.
#include <nlohmann/json.hpp>
#include <random>

#include "invar/io/checkpoint.h"
#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Ranks : public CliTest {
  protected:
    void SetUp() override {
#ifdef INVAR_SANITIZED
        GTEST_SKIP() << "under sanitizers ranks are tested as threads of one process: tests/dist, tests/train/ranks_test.cpp";
#endif
        if (!there("openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed, or this build is without it";
        ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        ::setenv("OMPI_MCA_plm", "isolated", 1);  // one machine: nothing to log in with is needed
        ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
        ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
        ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0);  // what MPI leaves behind is its own
    }
    static bool there(const std::string& kind) {
        return std::filesystem::exists(std::string(INVAR_BINARY_DIR "/lib/libinvar_") + kind + ".so") &&
               std::system(("command -v mpirun." + kind + " >/dev/null").c_str()) == 0;
    }
    // A script's words: the program as so many ranks, each of which leaves its process number in pid.RANK.
    std::string ranks(int size, const std::string& words, const std::string& kind = "openmpi") const {
        const char* const rank = kind == "mpich" ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK";
        return fmt::format("timeout 120 mpirun.{} -n {} sh -c 'echo $$ > pid.${}; exec invar \"$@\"' invar {}", kind,
                           size, rank, words);
    }
    std::string train(const Words& more = {}) const {
        return "train trainer.device=cpu trainer.max_epochs=3" + small_words(more);
    }
    // All tensors of a run's checkpoint.
    std::map<std::string, std::vector<float>> tensors(const std::string& run, std::int64_t step) const {
        const Checkpoint checkpoint =
            load_checkpoint(folder_ / "runs" / run / "checkpoints" / CheckpointFolder::name_of(step));
        std::map<std::string, std::vector<float>> values;
        for (const auto& [name, tensor] : checkpoint.tensors) values[name] = tensor.to_vector<float>();
        return values;
    }
    double last_loss(const std::string& run) const {
        double loss = -1;
        for (const std::string& line : lines("runs/" + run + "/metrics.jsonl"))
            if (const auto each = nlohmann::json::parse(line); each.contains("val_loss")) loss = each["val_loss"];
        return loss;
    }
    // Until rank r has started and the run has logged a few steps; then the signal.
    static std::string strike(int rank, const char* signal, const std::string& run, double seconds) {
        return fmt::format(
            "for i in $(seq 400); do [ -s runs/{1}/metrics.jsonl ] && break; sleep 0.05; done; sleep {3}; "
            "kill -{2} $(cat pid.{0}); ",
            rank, run, signal, seconds);
    }
};

TEST_F(Ranks, MakeTheRunOfOneProcess) {
    EXPECT_EQ(shell("invar " + train({"exp_name=one", "model.dropout=0"})).code, 0);
    for (const std::string kind : {"openmpi", "mpich"}) {
        if (!there(kind)) continue;
        const Result two = shell(ranks(2, train({"exp_name=" + kind, "model.dropout=0"}), kind));
        EXPECT_EQ(two.code, 0) << two.err;
        EXPECT_TRUE(has(two.out, "shared by 2 ranks")) << two.out;
        EXPECT_EQ(two.out.find("[AMP]"), two.out.rfind("[AMP]")) << "one rank speaks";
        EXPECT_NEAR(last_loss(kind), last_loss("one"), 1e-5);
        EXPECT_TRUE(has(slurp(folder_ / "runs" / kind / "logs/rank-1.log"), "finished"));
        EXPECT_FALSE(std::filesystem::exists(folder_ / "runs" / (kind + "_2")));
    }
}

TEST_F(Ranks, KeepTheSameWhateverIsShared) {
    for (const char* strategy : {"ddp", "zero1", "zero2"})
        EXPECT_EQ(shell(ranks(3, train({std::string("exp_name=") + strategy, std::string("trainer.strategy=") + strategy,
                                        "trainer.bucket_mb=0.001", "trainer.precision=bf16-mixed"})))
                      .code,
                  0);
    EXPECT_EQ(tensors("zero1", 30), tensors("ddp", 30));
    EXPECT_EQ(tensors("zero2", 30), tensors("ddp", 30));
}

TEST_F(Ranks, GoOnOnAnotherNumberOfThem) {
    const Words words{"trainer.checkpoint_every_n_steps=4", "trainer.keep_checkpoints=20", "trainer.strategy=zero1"};
    ASSERT_EQ(shell(ranks(2, train(words))).code, 0);
    const auto whole = tensors("run", 30);
    for (const int size : {1, 2, 3, 4}) {
        const std::string copy = fmt::format("again{}", size);
        ASSERT_EQ(shell(fmt::format("cp -r runs/run runs/{0}; rm runs/{0}/checkpoints/step_000000{{16,20,24,28,30}}.*",
                                    copy))
                      .code,
                  0);
        const Result resumed = shell(ranks(size, "train --resume runs/" + copy));
        ASSERT_EQ(resumed.code, 0) << resumed.err;
        const auto again = tensors(copy, 30);
        if (size == 2) EXPECT_EQ(again, whole) << "on as many ranks to the bit";
        for (const auto& [name, values] : whole)
            for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(again.at(name)[i], values[i], 1e-5) << name;
    }
}

TEST_F(Ranks, LoseNothingWhenOneIsKilled) {
    const Words words{"trainer.checkpoint_every_n_steps=3", "data.size=3200", "trainer.strategy=zero2"};
    ASSERT_EQ(shell(ranks(2, train(words))).code, 0);
    const std::int64_t steps = 600;
    const auto whole = tensors("run", steps);
    std::mt19937 random(7);
    for (int i = 0; i < 3; ++i) {
        const std::string run = fmt::format("killed{}", i);
        const int rank = i % 2;
        const double delay = 0.05 + 0.1 * double(random() % 5);
        const Result killed = shell(ranks(2, train(words) + " exp_name=" + run) + " & " +
                                    strike(rank, "KILL", run, delay) + "wait $!");
        EXPECT_NE(killed.code, 0);
        const Result resumed = shell(ranks(2, "train --resume runs/" + run));
        ASSERT_EQ(resumed.code, 0) << resumed.err;
        EXPECT_EQ(tensors(run, steps), whole) << "rank " << rank << " killed after " << delay << " s";
    }
}

TEST_F(Ranks, NoticeOneThatHangs) {
    const Result result = shell(
        ranks(3, train({"trainer.max_epochs=100000", "trainer.rank_timeout=1"})) + " & " + strike(1, "STOP", "run", 0.2) +
        "wait $!");
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(result.err, "rank 1 gives no answer at step ")) << result.err;
    EXPECT_FALSE(has(result.err, "rank 2 failed")) << "who tells of another is not to blame";
}

TEST_F(Ranks, StopTogetherWhenOneIsAsked) {
    const Result result = shell(ranks(2, train({"trainer.max_epochs=100000"})) + " & " + strike(1, "USR1", "run", 0.2) +
                                "wait $!");
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(result.err, "interrupted by SIGUSR1 at step ")) << result.err;
    const auto summary = nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json"));
    EXPECT_EQ(summary["status"], "interrupted");
    const std::string last = CheckpointFolder::name_of(summary["steps"].get<std::int64_t>());
    EXPECT_TRUE(std::filesystem::exists(folder_ / "runs/run/checkpoints" / last));
}

TEST_F(Ranks, SayWhatTheyCannotDo) {
    const Result different = shell("timeout 60 mpirun.openmpi -n 1 invar " + train() + " : -n 1 invar " +
                                   train({"optimizer.lr=0.5"}));
    EXPECT_NE(different.code, 0);
    EXPECT_TRUE(has(different.err, "the configurations of the ranks differ: ")) << different.err;
    EXPECT_TRUE(has(different.err, "lr: 0.5")) << different.err;
    const Result alone = shell("timeout 60 mpirun.openmpi -n 2 invar ops");
    EXPECT_TRUE(has(alone.err, "invar ops is for one process, and mpirun started 2")) << alone.err;
    const Result few = shell(ranks(2, train({"data.batch_size=1"})));
    EXPECT_TRUE(has(few.err, "data.batch_size=1 is less than the 2 ranks")) << few.err;
    const Result wrong = shell(ranks(2, train({"trainer.strategy=fsdp"})));
    EXPECT_TRUE(has(wrong.err, "strategy 'fsdp' is not known")) << wrong.err;
}

}  // namespace
}  // namespace invar::cli
