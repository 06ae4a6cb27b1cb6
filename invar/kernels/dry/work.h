// What a kernel would have had to do: its arithmetic, and the bytes that have to cross the memory's bus at least.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "invar/core/dtype.h"

namespace invar::dry {

// By what a kernel's time is bound to be found.
enum class WorkKind : std::uint8_t {
    product,
    convolution,
    data_gradient,
    weight_gradient,
    attention,
    attention_backward,
    memory
};

// The part of a step in which a kernel ran.
enum class Phase : std::uint8_t { forward, backward, update };

struct Work {
    std::string_view kernel;
    WorkKind kind = WorkKind::memory;
    Phase phase = Phase::forward;
    Dtype dtype = Dtype::f32;  // of what is multiplied, or read first
    bool tf32 = false;
    double flops = 0;
    double bytes = 0;
    int launches = 1;  // where one follows another at once
    // Of a product: rows, columns and inner dimension of each of `batch`; of attention the width of a head is `inner`.
    std::int64_t batch = 0, rows = 0, columns = 0, inner = 0;
    std::int64_t channels = 0;  // of a convolution: of its input or its result, whichever has fewer
    bool own = false;           // of attention: by kernels of our own where cuDNN has none
    bool timed = false;         // of a convolution: its engine is the fastest of several, not the first proposed
};

using WorkList = std::vector<Work>;

}  // namespace invar::dry
