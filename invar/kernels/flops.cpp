#include "invar/kernels/flops.h"

namespace invar {

namespace {
thread_local FlopCount* innermost = nullptr;
}

FlopCount::FlopCount() : outer_(innermost) {
    innermost = this;
}
FlopCount::~FlopCount() {
    innermost = outer_;
}

UncountedFlops::UncountedFlops() : outer_(innermost) {
    innermost = nullptr;
}
UncountedFlops::~UncountedFlops() {
    innermost = outer_;
}

void count_flops(double flops) {
    for (FlopCount* scope = innermost; scope != nullptr; scope = scope->outer_) scope->count_ += flops;
}

}  // namespace invar
