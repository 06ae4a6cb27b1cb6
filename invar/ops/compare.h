// Comparisons and the logic of their results: boolean tensors, with NumPy's broadcasting, without a gradient. Operands
// are compared in the dtype that they promote to; NaN is equal to nothing, and neither smaller nor larger.
#pragma once

#include "invar/core/tensor.h"
#include "invar/ops/number.h"

namespace invar::ops {

Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Number b);
Tensor ne(const Tensor& a, Number b);
Tensor lt(const Tensor& a, Number b);
Tensor le(const Tensor& a, Number b);
Tensor gt(const Tensor& a, Number b);
Tensor ge(const Tensor& a, Number b);

// Of tensors of any dtype: what is not zero is true, NaN too.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);

// x with `value` wherever the mask, boolean and broadcast with x, is true; no gradient flows there.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value);

}  // namespace invar::ops

namespace invar {

// What the operators below give: as many answers as the tensors have elements. `if (a == b)` does not compile, since
// it would ask whether there is a tensor at all; ops::all(a == b).item() is one answer.
class Mask : public Tensor {
  public:
    explicit Mask(Tensor tensor) : Tensor(std::move(tensor)) {}
    explicit operator bool() const = delete;
};

#define INVAR_COMPARISON(op, name, reversed)                    \
    inline Mask operator op(const Tensor& a, const Tensor& b) { \
        return Mask(ops::name(a, b));                           \
    }                                                           \
    inline Mask operator op(const Tensor& a, Number b) {        \
        return Mask(ops::name(a, b));                           \
    }                                                           \
    inline Mask operator op(Number a, const Tensor& b) {        \
        return Mask(ops::reversed(b, a));                       \
    }
INVAR_COMPARISON(==, eq, eq)
INVAR_COMPARISON(!=, ne, ne)
INVAR_COMPARISON(<, lt, gt)
INVAR_COMPARISON(<=, le, ge)
INVAR_COMPARISON(>, gt, lt)
INVAR_COMPARISON(>=, ge, le)
#undef INVAR_COMPARISON

// Of boolean tensors alone: of whole numbers people expect the bits.
Mask operator&(const Tensor& a, const Tensor& b);
Mask operator|(const Tensor& a, const Tensor& b);
Mask operator^(const Tensor& a, const Tensor& b);
Mask operator~(const Tensor& x);

}  // namespace invar
