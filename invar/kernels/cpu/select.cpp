// Picks the CPU kernels compiled for the best instruction set this machine runs.
#include "invar/kernels/cpu/select.h"

#include <fmt/format.h>

#include <string>

#include "invar/core/cpu_features.h"
#include "invar/kernels/cpu/onednn.h"

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
    return cpu_features().x86_v3;
#else
    return false;
#endif
}

}  // namespace

Kernels& best_cpu_kernels() {
#ifdef INVAR_HAS_X86_V3
    if (runs_x86_v3()) return x86_v3::cpu_kernels();
#endif
    return baseline::cpu_kernels();
}

const char* cpu_description() {
    static const std::string text =
        fmt::format("{}, {}", runs_x86_v3() ? "AVX2" : "baseline instructions", onednn::description());
    return text.c_str();
}

}  // namespace invar
