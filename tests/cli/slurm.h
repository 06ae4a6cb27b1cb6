// What stands in for Slurm where there is none: sbatch runs the script at once, and again as often as it is queued
// again; srun starts its tasks by mpirun, or the one task by itself. What the job prints is in job.log.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace invar::cli {

// The words for a script behind which sbatch, srun and scontrol are these.
inline std::string with_slurm_stand_in(const std::filesystem::path& folder, int tasks) {
    const std::filesystem::path bin = folder / "slurm";
    std::filesystem::create_directories(bin);
    const auto write = [&](const char* name, const std::string& text) {
        std::ofstream(bin / name) << "#!/usr/bin/env bash\n" << text;
        std::filesystem::permissions(bin / name, std::filesystem::perms::owner_all);
    };
    write("sbatch", R"(
export SLURM_JOB_ID=7 SLURM_SUBMIT_DIR=$PWD COMMAND=$1
while :; do
  rm -f requeued
  bash "$@" >>job.log 2>&1
  code=$?
  [ -f requeued ] || exit $code
  export SLURM_RESTART_COUNT=$((${SLURM_RESTART_COUNT:-0} + 1))
done
)");
    write("scontrol", R"(
case $1 in
requeue) [ "$2" = 7 ] && touch requeued ;;
show) echo "   Command=$COMMAND" ;;
esac
)");
    const std::string launch =
        tasks == 1
            ? ""
            : fmt::format("mpirun.openmpi -n {} sh -c 'echo $$ > pid.$OMPI_COMM_WORLD_RANK; exec \"$@\"' srun", tasks);
    write("srun", "[ \"$1\" = --mpi=pmix ] || exit 97\nshift\nexec " + launch + " \"$@\"\n");
    return fmt::format("export PATH={}:$PATH\n", bin.string());
}

}  // namespace invar::cli
