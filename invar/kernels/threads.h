// How CPU kernels share a machine with others: what they may take of it, and how threads wait for each other.
#pragma once

#include <filesystem>
#include <optional>

namespace invar {

// The cores' worth of time that the control group (of a container, a job, a service) grants, where it sets a limit.
// `root`: where /proc and /sys are found.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// As many threads as are used where nobody says how many: OMP_NUM_THREADS, or the cores that this process may use.
int available_threads();

// Lets threads that wait for others spin for microseconds and then sleep, so that a busy neighbour costs its share of
// the machine and no more: threads that spin for milliseconds use up the time which the one they wait for needs. The
// OpenMP runtime decides this when it is loaded, so the process starts its program anew, once, with GOMP_SPINCOUNT set.
// Call it first in main(), before anything is opened. Returns where the user has chosen (OMP_WAIT_POLICY or
// GOMP_SPINCOUNT), where there is only one thread, and where it cannot be done.
void spin_briefly(char** argv);

}  // namespace invar
