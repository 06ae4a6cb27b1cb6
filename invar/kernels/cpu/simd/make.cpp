// The one object of this instruction set's kernels.
#include "invar/kernels/cpu/simd/cpu_kernels.h"

namespace invar::INVAR_ISA {

Kernels& cpu_kernels() {
    static CpuKernels kernels;
    return kernels;
}

}  // namespace invar::INVAR_ISA
