// The batch scripts for Slurm: saved before the time limit, queued again after a lost rank, and not where no restart
// mends it. With a stand-in for Slurm, and on a real one where it answers.
#include "tests/cli/slurm.h"

#include <nlohmann/json.hpp>

#include "tests/cli/ranks.h"

namespace invar::cli {
namespace {

class Slurm : public RanksTest {
  protected:
    static std::string script(const char* name = "train.sbatch") {
        return std::string(INVAR_SOURCE_DIR "/scripts/slurm/") + name;
    }
    // Long enough to be struck on the way.
    static std::string words() {
        return small_words({"data.size=3200", "trainer.max_epochs=10", "trainer.checkpoint_every_n_steps=5",
                            "trainer.rank_timeout=5", "trainer.device=cpu"});
    }
    // Once there are steps beyond the last ones that were counted: what `strike` says.
    static std::string strike(const std::string& run, const std::string& what) {
        return fmt::format(
            "seen=$(cat {0}/metrics.jsonl 2>/dev/null | wc -l); for i in $(seq 5000); do "
            "[ $(cat {0}/metrics.jsonl 2>/dev/null | wc -l) -gt $((seen + 20)) ] && break; sleep 0.1; done\n{1}\n",
            run, what);
    }
    Result job(const std::string& meanwhile, const std::string& variables = "",
               const char* name = "train.sbatch") const {
        return shell(fmt::format("{}export INVAR=invar\n{} timeout 200 sbatch {} {} &\njob=$!\n{}wait $job",
                                 with_slurm_stand_in(folder_, 2), variables, script(name), words(), meanwhile));
    }
    nlohmann::json summary(const std::string& run) const {
        return nlohmann::json::parse(slurp(folder_ / run / "summary.json"));
    }
    std::string log() const { return slurp(folder_ / "job.log"); }
};

TEST_F(Slurm, JobsTrainWithTheVariablesOfTheirScript) {
    const Result result = job("", "PRECISION=bf16 BATCH_SIZE=32 STRATEGY=zero1");
    EXPECT_EQ(result.code, 0) << log();
    const std::string config = slurp(folder_ / "runs/job-7/config.yaml");
    for (const char* told : {"precision: bf16-mixed", "batch_size: 32", "strategy: zero1"})
        EXPECT_TRUE(has(config, told)) << told;
    EXPECT_EQ(summary("runs/job-7")["status"], "finished");
    EXPECT_EQ(summary("runs/job-7")["ranks"], 2);
}

TEST_F(Slurm, JobsSaveBeforeTheirTimeIsOverAndGoOn) {
    const Result result = job(strike("runs/job-7", "kill -USR1 $(cat pid.0) $(cat pid.1)"));
    EXPECT_EQ(result.code, 0) << log();
    EXPECT_TRUE(has(log(), "saved after USR1, as before a time limit; queued again\nUSR1 came within ")) << log();
    EXPECT_TRUE(has(log(), "restart 1: going on with runs/job-7")) << log();
    EXPECT_EQ(summary("runs/job-7")["status"], "finished");
    EXPECT_EQ(summary("runs/job-7")["steps"], 2000);
}

TEST_F(Slurm, JobsGoOnAfterALostRank) {
    const Result result = job(strike("runs/job-7", "kill -KILL $(cat pid.1)"));
    EXPECT_EQ(result.code, 0) << log();
    EXPECT_TRUE(has(log(), "queued again from the last checkpoint")) << log();
    EXPECT_EQ(summary("runs/job-7")["status"], "finished");
    EXPECT_EQ(summary("runs/job-7")["steps"], 2000);
}

TEST_F(Slurm, JobsOfSeveralNodesFindTheScriptBesideTheirs) {
    EXPECT_EQ(job("", "BATCH_SIZE=160", "train_nodes.sbatch").code, 0) << log();
    EXPECT_EQ(summary("runs/job-7")["status"], "finished");
}

TEST_F(Slurm, JobsEndWhereNoRestartMendsThem) {
    const Result wrong = job("", "PRECISION=fp17");
    EXPECT_EQ(wrong.code, 2) << log();
    EXPECT_FALSE(has(log(), "queued again")) << log();
    const Result often = job(strike("runs/job-7", "kill -KILL $(cat pid.0)"), "RESTARTS=0");
    EXPECT_NE(often.code, 0);
    EXPECT_TRUE(has(log(), "not queued again (RESTARTS=0). To go on: this script with --resume runs/job-7")) << log();
    EXPECT_FALSE(has(log(), "going on with")) << log();
}

// Time limits are no failures, and a run that diverged will do so again.
TEST_F(Slurm, JobsCountWhatARestartMayMend) {
    const Result limited = job(
        strike("runs/job-7", "kill -USR1 $(cat pid.0) $(cat pid.1)") + strike("runs/job-7", "kill -KILL $(cat pid.1)"),
        "RESTARTS=1");
    EXPECT_EQ(limited.code, 0) << log();
    EXPECT_TRUE(has(log(), "queued again from the last checkpoint (1 of 1 times)")) << log();
    EXPECT_TRUE(has(log(), "restart 2: going on")) << log();
    std::filesystem::remove(folder_ / "job.log");
    std::filesystem::remove_all(folder_ / "runs");
    const Result diverged = shell(with_slurm_stand_in(folder_, 1) + "export INVAR=invar\nsbatch " + script() + words() +
                                  " optimizer=sgd optimizer.lr=1e30 trainer.on_instability=stop");
    EXPECT_EQ(diverged.code, 1) << log();
    EXPECT_TRUE(has(log(), "which no restart mends; more: invar diagnose runs/job-7")) << log();
}

TEST_F(Slurm, JobsThatWentToTheirEndAreNotQueuedAgain) {
    const Result result = shell(with_slurm_stand_in(folder_, 1) + "export INVAR=invar\nsbatch " + script() +
                                small_words() + " optimizer=sgd optimizer.lr=1e30 trainer.on_instability=skip");
    EXPECT_EQ(result.code, 1) << log();
    EXPECT_EQ(summary("runs/job-7")["status"], "finished");
    EXPECT_TRUE(has(log(), "which no restart mends; more: invar diagnose runs/job-7")) << log();
    EXPECT_FALSE(has(log(), "queued again")) << log();
}

// By USR1, too, where it comes before anybody heeds it.
TEST_F(Slurm, JobsThatEndBeforeThereIsARunAreQueuedAgain) {
    const std::string start =
        with_slurm_stand_in(folder_, 1) +
        "printf '#!/bin/sh\\n[ -f once ] || { touch once; kill -$STRUCK $$; }\\nexec invar \"$@\"\\n' "
        "> struck; chmod +x struck\nexport INVAR=./struck STRUCK=KILL\n";
    EXPECT_EQ(shell(start + "sbatch " + script() + small_words()).code, 0) << log();
    EXPECT_TRUE(has(log(), "ended with exit code 137 before there was a run; queued again (1 of 3 times)")) << log();
    EXPECT_EQ(summary("runs/job-7")["status"], "finished");
    EXPECT_EQ(shell(start + "rm once; STRUCK=USR1 sbatch " + script() + small_words({"exp_name=early"})).code, 0);
    EXPECT_TRUE(has(log(), "ended with exit code 138 before there was a run; queued again (1 of 3 times)")) << log();
    EXPECT_FALSE(has(log(), "saved after USR1")) << log();
    EXPECT_EQ(shell(start + "rm once; RESTARTS=0 sbatch " + script() + small_words({"exp_name=other"})).code, 137);
    EXPECT_EQ(shell(start + "RESTARTS=often sbatch " + script() + small_words()).code, 2);
    EXPECT_TRUE(has(log(), "RESTARTS=often: it takes a whole number, such as 3")) << log();
}

// Under its own name, with more epochs than it had; a lost rank then counts as in any other job.
TEST_F(Slurm, JobsGoOnWithAnOlderRun) {
    ASSERT_EQ(shell("invar train" + words() + " trainer.max_epochs=1 exp_name=older").code, 0);
    const Result result =
        shell(fmt::format("{}export INVAR=invar\ntimeout 200 sbatch {} --resume runs/older trainer.max_epochs=10 &\n"
                          "job=$!\n{}wait $job",
                          with_slurm_stand_in(folder_, 2), script(), strike("runs/older", "kill -KILL $(cat pid.1)")));
    EXPECT_EQ(result.code, 0) << log();
    EXPECT_TRUE(has(log(), "queued again from the last checkpoint (1 of 3 times)")) << log();
    EXPECT_TRUE(has(log(), "restart 1: going on with runs/older")) << log();
    EXPECT_EQ(summary("runs/older")["exp_name"], "older");
    EXPECT_EQ(summary("runs/older")["steps"], 2000);
}

TEST_F(Slurm, TasksOfAnArrayHaveRunsOfTheirOwn) {
    const std::string start = with_slurm_stand_in(folder_, 1) + "export INVAR=invar SLURM_ARRAY_JOB_ID=5\n";
    for (const char* task : {"0", "1"})
        EXPECT_EQ(shell(start + "SLURM_ARRAY_TASK_ID=" + task + " sbatch " + script() + small_words() +
                        " exp_name=swept output_dir=of-mine")
                      .code,
                  0)
            << log();
    for (const char* run : {"of-mine/swept-5-0", "of-mine/swept-5-1"}) EXPECT_EQ(summary(run)["status"], "finished");
}

// As root of a machine: slurm-wlm and munge with this machine as the only node. A job that is queued again waits for
// two minutes there.
TEST_F(Slurm, OfThisMachineQueuesJobsAgain) {
    if (shell("sbatch --version && timeout 10 sinfo -h | grep -q .").code != 0)
        GTEST_SKIP() << "no Slurm answers on this machine";
    ASSERT_EQ(shell("INVAR=$(command -v invar) sbatch --parsable --time=10 " + script() + words() +
                    " trainer.max_epochs=50 > id")
                  .code,
              0);
    const std::string id = lines("id").at(0), run = "runs/job-" + id, log = "invar-" + id + ".log";
    const auto done = [&] { return fmt::format("grep -q finished {}/summary.json 2>/dev/null", run); };
    const Result struck = shell(strike(run, "scancel --signal=USR1 " + id) +
                                fmt::format("until grep -q 'going on' {0} || {1}; do sleep 1; done\n", log, done()) +
                                strike(run, "kill -KILL $(pgrep -n -f '^[^ ]*invar train --resume " + run + "')") +
                                fmt::format("for i in $(seq 300); do {} && exit 0; sleep 1; done; exit 1", done()));
    const std::string told = slurp(folder_ / log);
    EXPECT_EQ(struck.code, 0) << told << shell("scancel " + id).err;
    EXPECT_TRUE(has(told, "saved after USR1, as before a time limit; queued again")) << told;
    EXPECT_TRUE(has(told, "restart 1: going on with " + run)) << told;
    EXPECT_TRUE(has(told, "queued again from the last checkpoint")) << told;
    EXPECT_TRUE(has(told, "restart 2: going on with " + run)) << told;
    EXPECT_EQ(summary(run)["steps"], 10000);
}

}  // namespace
}  // namespace invar::cli
