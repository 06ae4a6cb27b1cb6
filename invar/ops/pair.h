// Sizes over an image: height and width. One number means both, as in PyTorch.
#pragma once

#include <concepts>
#include <cstdint>

namespace invar::ops {

struct Pair {
    std::int64_t height, width;

    // Whole numbers only: 1.5 does not compile, and is not cut to 1.
    template <std::integral T>
    constexpr Pair(T both) : Pair(both, both) {}  // NOLINT(google-explicit-constructor): `.padding = 1`
    template <std::integral T, std::integral U>
    constexpr Pair(T h, U w) : height(h), width(w) {}

    constexpr std::int64_t operator[](int i) const { return i == 0 ? height : width; }
    bool operator==(const Pair&) const = default;
};

}  // namespace invar::ops
