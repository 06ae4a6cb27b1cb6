// Several processes of the program under mpirun.
#pragma once

#include <fmt/format.h>

#include "tests/cli/program.h"

namespace invar::cli {

class RanksTest : public CliTest {
  protected:
    void SetUp() override {
#ifdef INVAR_SANITIZED
        GTEST_SKIP()
            << "under sanitizers ranks are tested as threads of one process: tests/dist, tests/train/ranks_test.cpp";
#endif
        if (!there("openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed, or this build is without it";
        ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        ::setenv("OMPI_MCA_plm", "isolated", 1);  // one machine: nothing to log in with is needed
        ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
        ::setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 1);  // the same for Open MPI 5
        ::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
        ::setenv("ASAN_OPTIONS", "detect_leaks=0", 0);  // what MPI leaves behind is its own
    }
    static bool there(const std::string& kind) {
        return std::filesystem::exists(std::string(INVAR_BINARY_DIR "/lib/libinvar_") + kind + ".so") &&
               std::system(("command -v mpirun." + kind + " >/dev/null").c_str()) == 0;
    }
    // A script's words: the program as so many ranks, each of which leaves its process number in pid.RANK and then does
    // what `before` says, where $RANK is its own.
    static std::string ranks(int size, const std::string& words, const std::string& kind = "openmpi",
                             const std::string& before = "") {
        const char* const rank = kind == "mpich" ? "PMI_RANK" : "OMPI_COMM_WORLD_RANK";
        return fmt::format(
            "timeout 120 mpirun.{} -n {} sh -c 'RANK=${}; echo $$ > pid.$RANK; {} exec invar \"$@\"' invar {}", kind,
            size, rank, before, words);
    }
    // Who waits to be joined listens under a name; once it is gone, the rank has been joined. The name holds the
    // launcher's word for this launch, since others may run beside it: what a rank says of it before it begins, and a
    // script's words that put the ranks aside and go on when one waits. `waits` then tells whether it still does.
    static std::string tell_launch() {
        return "if [ $RANK = 0 ]; then echo $PMIX_NAMESPACE > launch; fi;";
    }
    static std::string until_waits(int rank) {
        return fmt::format(
            " & ranks=$!; waits() {{ [ -s launch ] && grep -qF /$(cat launch)/{} /proc/net/unix; }};"
            " until waits; do kill -0 $ranks || break; sleep 0.01; done;",
            rank);
    }
};

}  // namespace invar::cli
