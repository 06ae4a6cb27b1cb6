// Several processes of the program under mpirun: the same run as one makes, and what becomes of it when a rank is lost.
#include "tests/cli/ranks.h"

#include <nlohmann/json.hpp>
#include <random>

#include "invar/io/checkpoint.h"

namespace invar::cli {
namespace {

class Ranks : public RanksTest {
  protected:
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
    std::map<std::string, std::string> files_in(const std::string& folder) const {
        std::map<std::string, std::string> files;
        for (const auto& entry : std::filesystem::directory_iterator(folder_ / folder))
            files[entry.path().filename().string()] = slurp(entry.path());
        return files;
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

// The verdict of ranks is that of one process on the same batches, up to rounding; one of them writes the report.
TEST_F(Ranks, ValidateTogether) {
    const std::string words = "validate trainer.device=cpu trainer.max_epochs=6 --candidates bf16-mixed --json" +
                              small_words({"exp_name=judged", "trainer.strategy=zero1", "model.dropout=0"});
    const Result two = shell(ranks(2, words)), one = shell("invar " + words);
    EXPECT_EQ(two.code, one.code) << two.out << two.err;
    const std::string report = slurp(folder_ / "runs/judged/report.md");
    EXPECT_TRUE(has(report, "\nmpirun -n 2 invar train ")) << "the way back is theirs, too: " << report;
    const auto verdict = [](const Result& result) {
        const std::size_t line = result.out.rfind("{", result.out.rfind("\"verdict\""));
        return nlohmann::json::parse(result.out.substr(line, result.out.find('\n', line) - line));
    };
    ASSERT_TRUE(has(two.out, "\"verdict\"")) << two.out << two.err;
    EXPECT_EQ(verdict(two)["verdict"], verdict(one)["verdict"]);
    EXPECT_TRUE(std::filesystem::exists(folder_ / "runs/judged/report.html"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/judged_3")) << "one folder for both ranks";
}

// What broke on ranks is told once, with its rank, and one process can replay it.
TEST_F(Ranks, KeepAStepThatFailed) {
    for (const char* strategy : {"ddp", "zero2"}) {
        const std::string name = fmt::format("exp_name={}", strategy);
        const Result broken =
            shell(ranks(2, train({name, std::string("trainer.strategy=") + strategy, "trainer.precision=bf16-mixed",
                                  "optimizer=sgd", "optimizer.lr=1e30", "trainer.on_instability=stop"})));
        EXPECT_NE(broken.code, 0);
        EXPECT_TRUE(has(broken.err, "on rank ")) << broken.err;
        EXPECT_TRUE(has(broken.err, fmt::format("more: invar diagnose runs/{}", strategy))) << broken.err;
        const Result replayed = shell(fmt::format("invar diagnose runs/{}", strategy));
        EXPECT_EQ(replayed.code, 1) << replayed.err;
        EXPECT_TRUE(has(replayed.out, "the part of rank ")) << replayed.out;
        EXPECT_TRUE(has(replayed.out, "to blame") || has(replayed.out, "remedy")) << replayed.out;
    }
}

// Finite, and far off: the whole step is what one process can train again, and no rank's part.
TEST_F(Ranks, LeadToTheWholeStepWhereTheyDiverge) {
    const Result broken = shell(
        "timeout 120 mpirun.openmpi -n 2 invar train lesson_exp_loss trainer.device=cpu "
        "trainer.max_steps=40 exp_name=far");
    EXPECT_NE(broken.code, 0);
    EXPECT_TRUE(has(broken.err, "more: invar diagnose runs/far --step 2)")) << broken.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/far/failure"));
    const Result found = shell("invar diagnose runs/far --step 2");
    EXPECT_TRUE(has(found.out, "the step is finite, its loss is 25205")) << found.out << found.err;
    EXPECT_TRUE(has(broken.err, "loss 25205")) << broken.err;
}

// Gradients overflow from the sixth step on: all go back to the last checkpoint, and on in a safer precision.
TEST_F(Ranks, RecoverTogether) {
    const Result run = shell(ranks(
        2, train({"exp_name=saved", "trainer.strategy=zero1", "trainer.precision_schedule={0: bf16-mixed, 6: 16-mixed}",
                  "scaler.dynamic=false", "scaler.init_scale=1e30", "trainer.checkpoint_every_n_steps=2",
                  "trainer.on_instability=recover", "stability.streak=3"})));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_TRUE(has(run.out, "recovered at step")) << run.out << run.err;
    EXPECT_TRUE(has(run.out, "on in bf16-mixed instead of 16-mixed")) << run.out;
}

TEST_F(Ranks, KeepTheSameWhateverIsShared) {
    for (const char* strategy : {"ddp", "zero1", "zero2"})
        EXPECT_EQ(shell(ranks(3, train({std::string("exp_name=") + strategy,
                                        std::string("trainer.strategy=") + strategy, "trainer.bucket_mb=0.001",
                                        "trainer.precision=bf16-mixed", "monitor.gradients_every_n_steps=5"})))
                      .code,
                  0);
    const auto norms = [&](const char* run) {
        std::map<std::pair<std::int64_t, std::string>, double> all;
        for (const std::string& line : lines(fmt::format("runs/{}/metrics.jsonl", run)))
            if (const auto each = nlohmann::json::parse(line); each.contains("grad_norms"))
                for (const auto& [module, norm] : each["grad_norms"].items()) all[{each["step"], module}] = norm;
        return all;
    };
    const auto of_all = norms("ddp");
    EXPECT_GE(of_all.size(), 12u);
    for (const char* run : {"zero1", "zero2"}) {
        const auto of_shares = norms(run);
        EXPECT_EQ(of_shares.size(), of_all.size());
        for (const auto& [which, norm] : of_all) EXPECT_NEAR(of_shares.at(which), norm, 1e-6 * norm) << which.second;
    }
    EXPECT_EQ(tensors("zero1", 30), tensors("ddp", 30));
    EXPECT_EQ(tensors("zero2", 30), tensors("ddp", 30));
}

TEST_F(Ranks, GoOnOnAnotherNumberOfThem) {
    const Words words{"trainer.checkpoint_every_n_steps=4", "trainer.keep_checkpoints=20", "trainer.strategy=zero1"};
    ASSERT_EQ(shell(ranks(2, train(words))).code, 0);
    const auto whole = tensors("run", 30);
    for (const int size : {1, 2, 3, 4}) {
        const std::string copy = fmt::format("again{}", size);
        ASSERT_EQ(
            shell(fmt::format("cp -r runs/run runs/{0}; rm runs/{0}/checkpoints/step_000000{{16,20,24,28,30}}.*", copy))
                .code,
            0);
        const Result resumed = shell(ranks(size, "train --resume runs/" + copy));
        ASSERT_EQ(resumed.code, 0) << resumed.err;
        const auto again = tensors(copy, 30);
        if (size == 2) {
            EXPECT_EQ(again, whole) << "on as many ranks to the bit";
        }
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
        const Result killed =
            shell(ranks(2, train(words) + " exp_name=" + run) + " & " + strike(rank, "KILL", run, delay) + "wait $!");
        EXPECT_NE(killed.code, 0);
        const Result resumed = shell(ranks(2, "train --resume runs/" + run));
        ASSERT_EQ(resumed.code, 0) << resumed.err;
        EXPECT_EQ(tensors(run, steps), whole) << "rank " << rank << " killed after " << delay << " s";
    }
}

TEST_F(Ranks, NameTheOneWhoseDiskIsFull) {
    const Words words{"model.hidden=[800,800]", "trainer.checkpoint_every_n_steps=4", "trainer.strategy=zero1"};
    ASSERT_EQ(shell(ranks(2, train(words) + " trainer.max_steps=8")).code, 0);
    const auto before = files_in("runs/run/checkpoints");
    ASSERT_EQ(before.size(), 2u);
    // No file of rank 1 may reach 2 MiB; a checkpoint does.
    const Result full = shell(
        "timeout 120 mpirun.openmpi -n 2 sh -c '[ $OMPI_COMM_WORLD_RANK = 0 ] || ulimit -f 4096; exec invar \"$@\"' "
        "invar train --resume runs/run trainer.max_steps=30");
    EXPECT_EQ(full.code, 1);
    EXPECT_TRUE(has(full.err, "error: rank 1: cannot write runs/run/checkpoints/step_000000")) << full.err;
    EXPECT_TRUE(has(full.err, "File too large; free space or choose another folder")) << full.err;
    EXPECT_TRUE(files_in("runs/run/checkpoints") == before) << "the earlier ones, and nothing temporary";
    EXPECT_EQ(shell(ranks(2, "train --resume runs/run trainer.max_steps=30")).code, 0);
}

TEST_F(Ranks, KeepAFailedStepForDiagnosis) {
    const Result failed = shell(ranks(2, train({"data.std=1e-7", "trainer.precision=16-mixed", "scaler.init_scale=1",
                                                "trainer.on_instability=stop", "trainer.strategy=zero2"})));
    EXPECT_EQ(failed.code, 1);
    EXPECT_TRUE(has(failed.err, "rank 0's part of the step is kept; more: invar diagnose runs/run")) << failed.err;
    const Result found = shell("invar diagnose runs/run");
    EXPECT_TRUE(has(found.out, "first bad operation: ")) << found.out << found.err;
    EXPECT_TRUE(has(found.out, "f32[8, ")) << "a part of 16 samples: " << found.out;
}

// A library that ends the program, and a launcher that leaves the others waiting.
TEST_F(Ranks, NoticeOneThatEndsBeforeItIsJoined) {
    if (!there("mpich")) GTEST_SKIP() << "mpirun.mpich is not installed, or this build is without it";
    const Result result =
        shell(ranks(2, train({"trainer.rank_timeout=2"}), "mpich", "if [ $RANK = 1 ]; then export PMI_FD=99; fi;"));
    EXPECT_NE(result.code, 0) << "MPICH's or ours";
    EXPECT_NE(result.code, 124) << "of its time limit: " << result.err;
    EXPECT_TRUE(has(result.err, "error: rank 1 on host ")) << result.err;
    EXPECT_TRUE(has(result.err, "have not come together: rank 1 has ended, as seen from host ")) << result.err;
}

TEST_F(Ranks, NoticeOneThatHangs) {
    const Result result = shell(ranks(3, train({"trainer.max_epochs=100000", "trainer.rank_timeout=1"})) + " & " +
                                strike(1, "STOP", "run", 0.2) + "wait $!");
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(result.err, "rank 1 gives no answer at step ")) << result.err;
    EXPECT_FALSE(has(result.err, "rank 2 failed")) << "who tells of another is not to blame";
}

// A bench counts no steps of training.
TEST_F(Ranks, NoticeOneThatHangsInABench) {
    const std::string words =
        "bench --steps 1000000 --precisions 32-true trainer.device=cpu" + small_words({"trainer.rank_timeout=1"});
    const Result result = shell(ranks(2, words, "openmpi", tell_launch()) + until_waits(1) +
                                " while waits; do sleep 0.01; done; sleep 0.5; kill -STOP $(cat pid.1); wait $ranks");
    EXPECT_EQ(result.code, 1);
    EXPECT_TRUE(has(result.err, "error: rank 1 gives no answer: it has ended, hangs or was stopped")) << result.err;
}

TEST_F(Ranks, AreHeardWhereTheFirstOneHangs) {
    const Result result = shell(ranks(3, train({"trainer.max_epochs=100000", "trainer.rank_timeout=1"})) + " & " +
                                strike(0, "STOP", "run", 0.2) + "wait $!");
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(result.err, "error: rank 0 gives no answer at step ")) << result.err;
    EXPECT_TRUE(has(result.err, "from the last checkpoint on: mpirun -n 3 invar train --resume runs/run\n"))
        << result.err;
}

TEST_F(Ranks, StopTogetherWhenOneIsAsked) {
    const Result result =
        shell(ranks(2, train({"trainer.max_epochs=100000"})) + " & " + strike(1, "USR1", "run", 0.2) + "wait $!");
    EXPECT_NE(result.code, 0);
    EXPECT_TRUE(has(result.err, "interrupted by SIGUSR1 at step ")) << result.err;
    const auto summary = nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json"));
    EXPECT_EQ(summary["status"], "interrupted");
    EXPECT_EQ(summary["ranks"], 2);
    const std::string last = CheckpointFolder::name_of(summary["steps"].get<std::int64_t>());
    EXPECT_TRUE(std::filesystem::exists(folder_ / "runs/run/checkpoints" / last));
}

TEST_F(Ranks, MeasureTheStepOfAllOfThem) {
    const std::string words = "bench --steps 2 --warmup 1 --precisions 32-true trainer.device=cpu" + small_words();
    const Result json = shell(ranks(3, words + " --json"));
    ASSERT_EQ(json.code, 0) << json.err;
    const auto line = nlohmann::json::parse(json.out);  // one rank speaks
    EXPECT_EQ(line.at("ranks"), 3);
    EXPECT_EQ(line.at("samples_per_step"), 16) << "the batch of all ranks";
    EXPECT_GT(line.at("exchange_ms"), 0);
    EXPECT_GE(line.at("exposed_share"), 0);
    EXPECT_LE(line.at("exposed_share"), 1);
    const Result alone = shell("invar " + words + " --json");
    EXPECT_FALSE(nlohmann::json::parse(alone.out).contains("exchange_ms"));
    EXPECT_EQ(line.at("flops_per_step"), nlohmann::json::parse(alone.out).at("flops_per_step"))
        << "all ranks do the arithmetic of one process together";
    const Result table = shell(ranks(2, words + " trainer.strategy=zero1"));
    EXPECT_TRUE(has(table.out, "by 2 ranks (zero1), each on cpu with 1 thread")) << table.out;
    EXPECT_TRUE(has(table.out, "not hidden")) << table.out;
}

TEST_F(Ranks, SayWhatTheyCannotDo) {
    const Result different =
        shell("timeout 60 mpirun.openmpi -n 1 invar " + train() + " : -n 1 invar " + train({"optimizer.lr=0.5"}));
    EXPECT_NE(different.code, 0);
    EXPECT_TRUE(has(different.err, "the configurations of the ranks differ: ")) << different.err;
    EXPECT_TRUE(has(different.err, "'optimizer.lr: 0.5' on rank 1")) << different.err;
    const Result mixed = shell("timeout 60 mpirun.openmpi -n 1 invar " + train() + " : -n 1 invar bench model=mlp");
    EXPECT_EQ(mixed.code, 2);
    EXPECT_TRUE(has(mixed.err, "the commands differ between ranks: 'train' on rank 0 and 'bench' on rank 1"))
        << mixed.err;
    const Result alone = shell("timeout 60 mpirun.openmpi -n 2 invar ops");
    EXPECT_TRUE(has(alone.err, "invar ops is for one process, and mpirun started 2")) << alone.err;
    const Result few = shell(ranks(2, train({"data.batch_size=1"})));
    EXPECT_TRUE(has(few.err, "data.batch_size=1 is less than the 2 ranks")) << few.err;
    const Result wrong = shell(ranks(2, train({"trainer.strategy=fsdp"})));
    EXPECT_TRUE(has(wrong.err, "strategy 'fsdp' is not there")) << wrong.err;
    EXPECT_FALSE(has(wrong.err, "error: rank ")) << "what all have done wrong is said once: " << wrong.err;
    const Result mistyped = shell("timeout 60 mpirun.openmpi -n 2 invar trian");
    EXPECT_TRUE(has(mistyped.err, "unknown command 'trian' (did you mean 'train'?)")) << mistyped.err;
}

// One name, and on a machine without a shared disk other bytes behind it.
TEST_F(Ranks, RefuseOtherFilesOfOneName) {
    ASSERT_EQ(shell("invar " + train()).code, 0);
    ASSERT_EQ(shell("mkdir elsewhere && cd elsewhere && invar " + train({"seed=2"})).code, 0);
    const std::string elsewhere = "if [ $RANK = 1 ]; then cd elsewhere; fi;";
    const Result weights = shell(ranks(2, train({"exp_name=tuned", "init_from=runs/run"}), "openmpi", elsewhere));
    EXPECT_EQ(weights.code, 2);
    EXPECT_TRUE(has(weights.err, "error: init_from=runs/run: the weights differ between ranks: 'checksum "))
        << weights.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/tuned"));
    ASSERT_EQ(shell("cp runs/run/config.yaml elsewhere/runs/run").code, 0);
    const auto before = files_in("runs/run/checkpoints");
    const std::string resume = "train --resume runs/run trainer.max_epochs=4";
    const Result resumed = shell(ranks(2, resume, "openmpi", elsewhere));
    EXPECT_EQ(resumed.code, 2);
    EXPECT_TRUE(has(resumed.err, "error: --resume: the checkpoints differ between ranks: 'step_00000030."))
        << resumed.err;
    EXPECT_TRUE(files_in("runs/run/checkpoints") == before);
    ASSERT_EQ(shell("rm elsewhere/runs/run/checkpoints/*").code, 0);
    const Result without = shell(ranks(2, resume, "openmpi", elsewhere));
    EXPECT_NE(without.code, 0);
    EXPECT_TRUE(has(without.err, "and 'none' on rank 1")) << without.err;
    EXPECT_EQ(shell(ranks(2, resume)).code, 0) << "nothing was lost";
}

TEST_F(Ranks, HearOneThatCannotEvenBegin) {
    const Result result =
        shell("timeout 60 mpirun.openmpi -n 1 invar " + train() + " : -n 1 invar " + train({"optimizer.lrr=0.5"}));
    EXPECT_EQ(result.code, 2);
    EXPECT_TRUE(has(result.err, "error: rank 1 on host ")) << result.err;
    EXPECT_TRUE(has(result.err, "optimizer.lrr")) << result.err;
}

TEST_F(Ranks, NeedNotWaitForOneThatNeverComesWhenTheyAreAskedToStop) {
    const std::string absent = "if [ $RANK = 1 ]; then exec sleep 100; fi;";
    const Result result = shell(ranks(2, train(), "openmpi", tell_launch() + absent) + until_waits(0) +
                                " kill -TERM $(cat pid.0); wait $ranks");
    EXPECT_EQ(result.code, 143);
    EXPECT_TRUE(
        has(result.err, "interrupted by SIGTERM: the 2 ranks that mpirun started have not come together: rank 1"))
        << result.err;
}

TEST_F(Ranks, DrawNothingForAFile) {
    const Result result = shell(ranks(2, train({"exp_name=drawn"})) + " > out.txt");
    EXPECT_EQ(result.code, 0) << result.err << result.out;
    const std::string text = slurp(folder_ / "out.txt");
    EXPECT_TRUE(has(text, "finished")) << text;
    EXPECT_FALSE(has(text, "\033")) << text;
}

}  // namespace
}  // namespace invar::cli
