// What a kernel would have had to do: its arithmetic, and the bytes that have to cross the memory's bus at least.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "invar/core/dtype.h"
#include "invar/kernels/specs.h"

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

constexpr bool is_convolution(WorkKind kind) {
    return kind == WorkKind::convolution || kind == WorkKind::data_gradient || kind == WorkKind::weight_gradient;
}

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
    ConvSpec convolution{};     // of one: what was asked for, without what is noted by itself
    bool bias = false;          // of a convolution: it has one, or its gradient, in the same pass
    std::int64_t channels = 0;  // of a convolution: of its input or its result, whichever has fewer
    bool own = false;           // of attention: by kernels of our own where cuDNN has none
    bool timed = false;         // of a convolution: its engine is the fastest of several, not the first proposed
    double seconds = 0;         // that it was seen to take; 0: nobody has looked
};

// What a convolution was seen to take on a device, with the memory beside its operands.
struct ConvCost {
    ConvSpec convolution{};
    WorkKind kind = WorkKind::convolution;
    Dtype dtype = Dtype::f32;
    bool tf32 = false, bias = false;
    double seconds = 0, scratch = 0;
    bool is_of(const Work& w) const {
        return convolution == w.convolution && kind == w.kind && dtype == w.dtype && tf32 == w.tf32 && bias == w.bias;
    }
};
using ConvCosts = std::vector<ConvCost>;
inline const ConvCost* find_cost(const ConvCosts& costs, const Work& w) {
    for (const ConvCost& cost : costs)
        if (cost.is_of(w)) return &cost;
    return nullptr;
}

using WorkList = std::vector<Work>;

}  // namespace invar::dry
