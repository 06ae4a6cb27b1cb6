// The CPU's kernels. This folder is compiled once for each instruction set (namespace INVAR_ISA) and the best one that
// the machine runs is picked at start-up: plain loops, vectorised by the compiler for that set.
#pragma once

#include "invar/kernels/kernels.h"

namespace invar::INVAR_ISA {

class CpuKernels final : public Kernels {
  public:
#define INVAR_KERNEL(result, name, parameters) result name parameters override;
#define INVAR_OPTIONAL_KERNEL(result, name, parameters)
#include "invar/kernels/kernel_list.inc"

    void synchronize() override {}
};

}  // namespace invar::INVAR_ISA
