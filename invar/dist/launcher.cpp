#include "invar/dist/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "invar/core/error.h"

namespace invar {

namespace {

bool is_set(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0';
}

int number(const char* name, int otherwise) {
    if (!is_set(name)) return otherwise;
    const char* const text = std::getenv(name);
    const char* const end = text + std::strlen(text);
    int value = 0;
    const auto [stop, error] = std::from_chars(text, end, value);
    check<UsageError>(error == std::errc() && stop == end && value >= 0,
                      "the launcher's variable {} is '{}', expected a number; unset it where nobody launched this",
                      name, text);
    return value;
}

struct Names {
    const char *by, *library, *rank, *size, *local_rank, *local_size;
};

Launch launch_of(const Names& names) {
    Launch launch;
    launch.by = names.by;
    launch.library = names.library;
    launch.rank = number(names.rank, 0);
    launch.size = number(names.size, 1);
    launch.local_rank = number(names.local_rank, launch.rank);
    launch.local_size = number(names.local_size, launch.size);
    check<UsageError>(launch.size >= 1 && launch.rank < launch.size,
                      "the launcher says that this is rank {} of {}, which cannot be ({} and {})", launch.rank,
                      launch.size, names.rank, names.size);
    return launch;
}

constexpr Names kOpenMpi{"mpirun",
                         "openmpi",
                         "OMPI_COMM_WORLD_RANK",
                         "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK",
                         "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kHydra{"mpirun", "mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names kSlurm{"srun", "", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""};

}  // namespace

std::string gpu_for(const Launch& launch, const std::string& visible, int cards_of_machine) {
    if (launch.size == 1) return "";
    std::vector<std::string> cards;
    for (std::size_t begin = 0, end = 0; begin < visible.size(); begin = end + 1) {
        end = std::min(visible.find(',', begin), visible.size());
        cards.push_back(visible.substr(begin, end - begin));
    }
    if (visible.empty())
        for (int i = 0; i < cards_of_machine; ++i) cards.push_back(std::to_string(i));
    return cards.size() < 2 ? "" : cards[std::size_t(launch.local_rank) % cards.size()];
}

void choose_gpu(const Launch& launch) {
    constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";
    std::error_code error;
    int cards = 0;
    for (std::filesystem::directory_iterator entry("/proc/driver/nvidia/gpus", error), end; !error && entry != end;
         entry.increment(error))
        ++cards;
    const std::string chosen = gpu_for(launch, is_set(kVariable) ? std::getenv(kVariable) : "", cards);
    if (!chosen.empty()) ::setenv(kVariable, chosen.c_str(), 1);
}

std::string words_of(const Launch& launch) {
    if (launch.size == 1) return "";
    // Slurm's own choice may be none that joins them.
    const char* const joined = launch.by != kSlurm.by ? "" : launch.library == "mpich" ? " --mpi=pmi2" : " --mpi=pmix";
    return fmt::format("{}{} -n {} ", launch.by, joined, launch.size);
}

std::string launcher_forgotten() {
    if (is_set("SLURM_STEP_ID") || is_set(kOpenMpi.size) || is_set(kHydra.size)) return "";
    const int tasks = is_set("SLURM_JOB_ID") ? number("SLURM_NTASKS", 1) : 1;
    if (tasks >= 2)
        return fmt::format("this is one process, and the Slurm job has {} tasks: srun --mpi=pmix starts it as so many",
                           tasks);
    // Of PyTorch's launchers, and set by hand for them.
    if (is_set("RANK") && is_set("WORLD_SIZE") && std::string(std::getenv("WORLD_SIZE")) != "1")
        return fmt::format(
            "this is one process; RANK and WORLD_SIZE={} are PyTorch's, and are not heeded: mpirun -n N "
            "starts it as several",
            std::getenv("WORLD_SIZE"));
    return "";
}

Launch launch_from_environment() {
    // A batch script has Slurm's variables too, but only what srun starts has a task of a step.
    const bool task = is_set("SLURM_STEP_NUM_TASKS") && is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID");
    // Both kinds of mpirun start their daemons by srun, each of them a task of a step: asked first.
    const bool hydra = is_set(kHydra.size) && is_set(kHydra.local_size);
    if (is_set(kOpenMpi.size)) return launch_of(kOpenMpi);
    if (task && !hydra) {
        Launch launch = launch_of(kSlurm);
        launch.local_size = number("SLURM_NTASKS_PER_NODE", launch.size);
        if (is_set("PMIX_RANK"))
            launch.library = "openmpi";
        else if (is_set("PMI_FD") || is_set("PMI_RANK"))
            launch.library = "mpich";
        check<UsageError>(launch.size == 1 || !launch.library.empty(),
                          "srun started {} tasks that know nothing of each other; start them with srun --mpi=pmix "
                          "(Open MPI) or --mpi=pmi2 (MPICH), as srun --mpi=list names them",
                          launch.size);
        return launch;
    }
    if (is_set(kHydra.size)) {
        const Launch launch = launch_of(kHydra);
        check<UsageError>(
            launch.size == 1 || is_set("PMI_FD") || is_set("PMI_PORT"),
            "PMI_SIZE says that this is one of {} processes, but no launcher is there (PMI_FD); unset it, or start "
            "them with mpirun",
            launch.size);
        return launch;
    }
    check<UsageError>(!is_set("TORCHELASTIC_RUN_ID") || number("WORLD_SIZE", 1) == 1,
                      "torchrun started {} processes, and they would train apart; start them with mpirun -n {} or srun",
                      number("WORLD_SIZE", 1), number("WORLD_SIZE", 1));
    return {};
}

}  // namespace invar
