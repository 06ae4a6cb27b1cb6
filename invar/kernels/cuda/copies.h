// Batches on their way to the GPU: pinned host memory, and a stream of its own that copies from it beside the
// computations.
#pragma once

#include <memory>

#include "invar/kernels/kernels.h"

namespace invar::cuda {

std::unique_ptr<RawMemory> pinned_memory();
std::unique_ptr<CopyQueue> copy_queue();

}  // namespace invar::cuda
