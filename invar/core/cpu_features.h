// What this processor can run, asked of the processor itself: compilers know different names for the same instructions.
#pragma once

namespace invar {

struct CpuFeatures {
    bool sse42 = false;   // crc32 among others
    bool x86_v3 = false;  // all that -march=x86-64-v3 may use: AVX2, FMA, F16C, BMI1, BMI2, LZCNT, MOVBE
};

// Everything false where this is no x86.
const CpuFeatures& cpu_features();

}  // namespace invar
