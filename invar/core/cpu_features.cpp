#include "invar/core/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace invar {

namespace {

#if defined(__x86_64__)

constexpr bool bit(unsigned word, int n) {
    return ((word >> n) & 1u) != 0;
}

// Whether the system keeps the wide registers when it switches threads; to be asked only where OSXSAVE is set.
bool keeps_ymm() {
    unsigned low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 6u) == 6u;
}

CpuFeatures ask() {
    CpuFeatures found;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0) return found;
    found.sse42 = bit(c, 20);
    const bool avx = bit(c, 27) && bit(c, 28) && keeps_ymm();
    const bool fma_movbe_f16c = bit(c, 12) && bit(c, 22) && bit(c, 29);
    if (!avx || !fma_movbe_f16c || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return found;
    const bool bmi1_avx2_bmi2 = bit(b, 3) && bit(b, 5) && bit(b, 8);
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d) == 0) return found;
    const bool lzcnt = bit(c, 5);
    found.x86_v3 = bmi1_avx2_bmi2 && lzcnt;
    return found;
}

#else

CpuFeatures ask() {
    return {};
}

#endif

}  // namespace

const CpuFeatures& cpu_features() {
    static const CpuFeatures features = ask();
    return features;
}

}  // namespace invar
