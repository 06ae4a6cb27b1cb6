// Picks, once, the CPU kernels compiled for the best instruction set this machine runs, and says who serves a device.
#include <omp.h>

#include "invar/core/error.h"
#include "invar/kernels/cpu/onednn.h"
#include "invar/kernels/kernels.h"

namespace invar {

// Each instruction set's copy of kernels/cpu/simd/make.cpp defines one of these.
namespace baseline {
Kernels& cpu_kernels();
}
namespace x86_v3 {
Kernels& cpu_kernels();
}

namespace {

bool runs_x86_v3() {
#ifdef INVAR_HAS_X86_V3
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#else
    return false;
#endif
}

Kernels& best_cpu_kernels() {
#ifdef INVAR_HAS_X86_V3
    if (runs_x86_v3()) return x86_v3::cpu_kernels();
#endif
    return baseline::cpu_kernels();
}

}  // namespace

Kernels& kernels_for(Device device) {
    check<UsageError>(device.is_cpu(), "this build of Invar has no kernels for {}; use --device cpu", device.str());
    static Kernels& kernels = best_cpu_kernels();
    return kernels;
}

void set_threads(int count) {
    omp_set_num_threads(count > 0 ? count : omp_get_num_procs());
}
int threads() {
    return omp_get_max_threads();
}

const char* cpu_description() {
    static const std::string text =
        fmt::format("{}, {}", runs_x86_v3() ? "AVX2" : "baseline instructions", onednn::description());
    return text.c_str();
}

}  // namespace invar
