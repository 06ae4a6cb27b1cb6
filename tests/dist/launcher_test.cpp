#include "invar/dist/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "invar/core/error.h"
#include "invar/dist/strategy.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

// Sets what a launcher sets, and nothing else of the kind, until it ends.
class Environment {
  public:
    explicit Environment(const std::map<std::string, std::string>& set) {
        clear();
        for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
    }
    ~Environment() { clear(); }
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;

  private:
    static void clear() {
        for (const char* name : {"OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE",
                                 "OMPI_COMM_WORLD_LOCAL_RANK",
                                 "OMPI_COMM_WORLD_LOCAL_SIZE",
                                 "PMI_RANK",
                                 "PMI_SIZE",
                                 "PMI_FD",
                                 "PMI_PORT",
                                 "SLURM_JOB_ID",
                                 "PMIX_RANK",
                                 "MPI_LOCALRANKID",
                                 "MPI_LOCALNRANKS",
                                 "SLURM_PROCID",
                                 "SLURM_STEP_NUM_TASKS",
                                 "SLURM_STEP_ID",
                                 "SLURM_LOCALID",
                                 "SLURM_NTASKS",
                                 "SLURM_NTASKS_PER_NODE",
                                 "TORCHELASTIC_RUN_ID",
                                 "RANK",
                                 "WORLD_SIZE"})
            ::unsetenv(name);
    }
};

TEST(Launcher, IsAloneWithoutOne) {
    const Environment none({});
    const Launch launch = launch_from_environment();
    EXPECT_EQ(launch.size, 1);
    EXPECT_EQ(launch.rank, 0);
}

TEST(Launcher, KnowsOpenMpi) {
    const Environment mpirun({{"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
    const Launch launch = launch_from_environment();
    EXPECT_EQ(launch.rank, 3);
    EXPECT_EQ(launch.size, 4);
    EXPECT_EQ(launch.local_rank, 1);
    EXPECT_EQ(launch.local_size, 2);
    EXPECT_EQ(launch.library, "openmpi");
}

TEST(Launcher, SaysHowToStartAsManyAgain) {
    const Environment mpirun({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
    EXPECT_EQ(words_of(launch_from_environment()), "mpirun -n 4 ");
    EXPECT_EQ(words_of({}), "");
}

TEST(Launcher, RefusesProcessesThatWouldTrainApart) {
    const Environment torchrun({{"TORCHELASTIC_RUN_ID", "none"}, {"WORLD_SIZE", "2"}});
    EXPECT_ERROR(launch_from_environment(), UsageError, "torchrun started 2 processes");
}

TEST(Launcher, KnowsMpich) {
    {
        const Environment nobody({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
        EXPECT_ERROR(launch_from_environment(), UsageError, "one of 2 processes, but no launcher is there (PMI_FD)");
    }
    const Environment hydra({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "5"}});
    EXPECT_EQ(launch_from_environment().library, "mpich");
    EXPECT_EQ(launch_from_environment().rank, 1);
}

// Its daemon is the one task of a step of Slurm, and what it starts inherits that task's variables.
TEST(Launcher, KnowsMpichInAJobOfSlurm) {
    const Environment hydra({{"PMI_RANK", "1"},
                             {"PMI_SIZE", "2"},
                             {"PMI_FD", "5"},
                             {"MPI_LOCALRANKID", "1"},
                             {"MPI_LOCALNRANKS", "2"},
                             {"SLURM_JOB_ID", "7"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_STEP_NUM_TASKS", "1"},
                             {"SLURM_STEP_ID", "0"}});
    const Launch launch = launch_from_environment();
    EXPECT_EQ(launch.size, 2);
    EXPECT_EQ(launch.rank, 1);
    EXPECT_EQ(words_of(launch), "mpirun -n 2 ");
    EXPECT_EQ(launcher_forgotten(), "");
}

TEST(Launcher, KnowsTasksOfSlurmFromItsBatchScripts) {
    {
        const Environment script({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
        EXPECT_EQ(launch_from_environment().size, 1);
    }
    std::map<std::string, std::string> task{
        {"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "2"}};
    {
        const Environment deaf(task);
        EXPECT_ERROR(launch_from_environment(), UsageError, "srun --mpi=pmix");
    }
    task["PMIX_RANK"] = "2";
    const Environment pmix(task);
    EXPECT_EQ(launch_from_environment().library, "openmpi");
    EXPECT_EQ(launch_from_environment().rank, 2);
    EXPECT_EQ(launch_from_environment().size, 4);
    EXPECT_EQ(words_of(launch_from_environment()), "srun --mpi=pmix -n 4 ");
}

TEST(Launcher, IsMissedInABatchJobOfSeveralTasks) {
    {
        const Environment job({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}});
        EXPECT_EQ(launcher_forgotten(),
                  "this is one process, and the Slurm job has 2 tasks: srun --mpi=pmix starts it as so many");
    }
    {
        const Environment step({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}});
        EXPECT_EQ(launcher_forgotten(), "");
    }
    {
        const Environment single({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "1"}});
        EXPECT_EQ(launcher_forgotten(), "");
    }
    {
        const Environment alone({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
        EXPECT_EQ(launcher_forgotten(), "");
    }
    const Environment torch({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
    EXPECT_EQ(launcher_forgotten(),
              "this is one process; RANK and WORLD_SIZE=2 are PyTorch's, and are not heeded: mpirun -n N starts it as "
              "several");
}

TEST(Launcher, RefusesWhatCannotBe) {
    {
        const Environment odd({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
        EXPECT_ERROR(launch_from_environment(), UsageError, "rank 4 of 4");
    }
    const Environment words({{"OMPI_COMM_WORLD_RANK", "first"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
    EXPECT_ERROR(launch_from_environment(), UsageError, "OMPI_COMM_WORLD_RANK is 'first'");
}

TEST(Launcher, GivesEachRankOfAMachineACardOfItsOwn) {
    Launch launch{5, 8, 1, 4, "mpirun", "openmpi"};
    EXPECT_EQ(gpu_for(launch, "", 4), "1");
    EXPECT_EQ(gpu_for(launch, "", 1), "") << "one card for all";
    EXPECT_EQ(gpu_for(launch, "2,6", 8), "6");
    EXPECT_EQ(gpu_for(launch, "3", 8), "") << "as the launcher chose";
    launch.local_rank = 3;
    EXPECT_EQ(gpu_for(launch, "2,6", 8), "6");
    EXPECT_EQ(gpu_for({}, "", 8), "");
}

TEST(Strategy, ReadsWhatOthersWrite) {
    EXPECT_EQ(parse_strategy("auto"), Strategy::ddp);
    EXPECT_EQ(parse_strategy("deepspeed_stage_1"), Strategy::zero1);
    EXPECT_EQ(parse_strategy("deepspeed_stage_2"), Strategy::zero2);
    for (const Strategy each : {Strategy::ddp, Strategy::zero1, Strategy::zero2})
        EXPECT_EQ(parse_strategy(name_of(each)), each);
    for (const char* each : {"ZeRO-2", "ZERO2", "zero_stage_2"}) EXPECT_EQ(parse_strategy(each), Strategy::zero2);
    EXPECT_EQ(parse_strategy("DDP"), Strategy::ddp);
    EXPECT_ERROR(parse_strategy("horovod"), UsageError, "strategy 'horovod' is not known; there are ddp");
    EXPECT_ERROR(parse_strategy("fsdp"), UsageError,
                 "strategy 'fsdp' is not there: the weights that operations read are on every rank");
}

}  // namespace
}  // namespace invar
