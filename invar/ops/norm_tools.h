// What the norms share: rows of what is normalised, the gradients of gamma and beta, and checks of what is given.
#pragma once

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

inline Tensor rows_of(const Tensor& x, std::int64_t columns) {
    return dense(x).window(0, {columns > 0 ? x.numel() / columns : 0, columns});
}

// The gradients of gamma and beta as a kernel writes them, f32 (f64), then in the parameter's own dtype.
struct AffineGradients {
    Tensor gamma, beta;
    AffineGradients(const Context& ctx, const Shape& shape, const Tensor& like) {
        const Dtype dtype = sum_dtype(like.dtype());
        if (ctx.needs(1)) gamma = Tensor::empty(shape, dtype, like.device());
        if (ctx.needs(2)) beta = Tensor::empty(shape, dtype, like.device());
    }
};

inline void check_floating(const char* op, const Tensor& x) {
    if (!is_floating(x.dtype())) fail("{}: needs a floating tensor, not {}", op, x.str());
}

inline void check_parameter(const char* op, const char* name, const Tensor& parameter, const Tensor& x,
                            const Shape& shape) {
    if (parameter && parameter.shape() != shape)
        fail("{}: {} {} for an input {}; it must be {}", op, name, parameter.shape().str(), x.shape().str(),
             shape.str());
}

}  // namespace invar::ops
