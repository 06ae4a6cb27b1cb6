// Which of how many processes this one is, as the launcher says: mpirun of Open MPI or MPICH, or Slurm's srun.
#pragma once

#include <functional>
#include <string>

namespace invar {

struct Launch {
    int rank = 0;
    int size = 1;
    int local_rank = 0;  // among those on this machine
    int local_size = 1;
    std::string by;       // "mpirun", "srun"; "" where nobody launched us
    std::string library;  // whose processes they are to be joined by: "openmpi", "mpich"
};

// The words that start as many again, with a space behind them: "mpirun -n 4 "; "" for one process.
std::string words_of(const Launch& launch);
// Where a batch job of several tasks starts this process without its launcher, or one that is no launcher of ours
// started several: what to say of it; else "".
std::string launcher_forgotten();
// Whether those that were launched have been joined, as join_world() does.
bool world_joined() noexcept;
// What this process was started for: ranks that were started for different things are told so when they are joined.
void set_world_command(const std::string& command);
// Called on the first rank, once, where others are waited for to be joined: with what to say of it.
void on_world_wait(std::function<void(const std::string&)> told);

// From the environment. Throws a UsageError where a launcher started several processes that cannot be joined.
Launch launch_from_environment();

// Which GPU this process should see, as a value for CUDA_VISIBLE_DEVICES: ranks of a machine take its cards in turn, of
// those that `visible` (the variable's value now, "" for all) leaves. "" where there is nothing to choose.
std::string gpu_for(const Launch& launch, const std::string& visible, int cards_of_machine);
// Sets it, before anything asks for a GPU.
void choose_gpu(const Launch& launch);

}  // namespace invar
