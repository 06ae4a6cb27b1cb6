// CastClass: what autocast does with an operation. It stands in core because every op definition carries one.
#pragma once

#include <cstdint>
#include <string_view>

namespace invar {

enum class CastClass : std::uint8_t {
    low,     // runs in the low precision: matrix products, convolutions, attention
    fp32,    // runs in FP32: exponentials, logarithms, powers, softmax, losses, large sums
    // Takes what it gets, computes in FP32 inside, and gives the low precision: norms, whose results feed products.
    // Its parameters are the FP32 masters.
    wide_inside,
    widest,  // promotes to the widest of its inputs: add, mul, where, cat
    keep,    // runs in what it gets: views, indexing, relu, pooling
    refuse,  // not allowed under autocast: its FP16 form cannot be made safe
};

constexpr std::string_view name_of(CastClass cast) {
    constexpr std::string_view kName[] = {"low", "fp32", "wide_inside", "widest", "keep", "refuse"};
    return kName[static_cast<int>(cast)];
}

}  // namespace invar
