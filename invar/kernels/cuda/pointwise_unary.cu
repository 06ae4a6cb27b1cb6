// The unary operations and their gradients, generated from the list of kernels/pointwise.h.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/pointwise.cuh"
#include "invar/kernels/pointwise.h"

namespace invar::cuda {
namespace {

template <class Op>
struct Forward {
    static constexpr int kIn = 1, kOut = 1;
    using InBrief = void;
    Scalars s;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = Op::template forward<C>(in[0], s);
    }
};

template <class Op>
struct Backward {
    static constexpr int kIn = 2, kOut = 1;  // the gradient and what was saved, if anything
    using InBrief = void;
    Scalars s;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = Op::template backward<C>(in[0], in[1], s);
    }
};

}  // namespace

void CudaKernels::unary(UnaryOp op, const View& x, const View& y, Scalars s) {
    const Launch stream("unary");
    switch (op) {
#define INVAR_CASE(Name, ...) \
    case UnaryOp::Name:       \
        return run_pointwise(Forward<pointwise::Name>{s}, {&x, &y}, needs_double(x.dtype), stream);
        INVAR_UNARY_OPS(INVAR_CASE)
#undef INVAR_CASE
    }
}

void CudaKernels::unary_backward(UnaryOp op, const View& gy, const View& saved, const View& gx, Scalars s) {
    const Launch stream("unary_backward");
    switch (op) {
#define INVAR_CASE(Name, ...) \
    case UnaryOp::Name:       \
        return run_pointwise(Backward<pointwise::Name>{s}, {&gy, &saved, &gx}, needs_double(gy.dtype), stream);
        INVAR_UNARY_OPS(INVAR_CASE)
#undef INVAR_CASE
    }
}

}  // namespace invar::cuda
