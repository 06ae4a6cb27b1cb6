// Number: a constant as it was written, whole or not. That decides in which dtype a tensor of whole numbers meets it:
// as in PyTorch, 3 leaves it what it is, and 3.0 makes it floating.
#pragma once

#include <concepts>
#include <string>

#include "invar/core/tensor.h"

namespace invar {

struct Number {
    template <std::integral T>
    constexpr Number(T value)  // NOLINT(google-explicit-constructor): x > 0
        : real(double(value)), whole(std::int64_t(value)), is_whole(true) {}
    template <std::floating_point T>
    constexpr Number(T value) : real(double(value)) {}  // NOLINT(google-explicit-constructor): x > 0.5

    double real;
    std::int64_t whole = 0;
    bool is_whole = false;

    std::string str() const;
};

namespace ops {

// What a tensor of dtype `x` and this constant are together computed in: x's own dtype, but for a fraction beside
// whole numbers, which makes f32, and a whole number beside booleans, which makes i64.
Dtype promote(Dtype x, Number constant);

// A tensor of no dimensions that holds this constant, to the last digit where `dtype` has it. Throws where a dtype of
// whole numbers has no place for it, naming the op.
Tensor constant(const char* op, Number value, Dtype dtype, Device device);
void check_fits(const char* op, Number value, Dtype dtype);

}  // namespace ops

}  // namespace invar
