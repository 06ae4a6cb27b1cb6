// The binary operations and their gradients, generated from the list of kernels/pointwise.h; where and add_into.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/pointwise.cuh"

namespace invar::cuda {
namespace {

template <class Op>
struct Forward {
    static constexpr int kIn = 2, kOut = 1;
    Scalars s;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = Op::template forward<C>(in[0], in[1], s);
    }
};

// Both gradients in one pass over gy, a and b; the kernel drops the one that nobody wants.
template <class Op>
struct Backward {
    static constexpr int kIn = 3, kOut = 2;
    Scalars s;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = Op::template backward_a<C>(in[0], in[1], in[2], s);
        out[1] = Op::template backward_b<C>(in[0], in[1], in[2], s);
    }
};

struct Where {
    static constexpr int kIn = 3, kOut = 1;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = in[0] != C(0) ? in[1] : in[2];
    }
};

struct AddInto {
    static constexpr int kIn = 2, kOut = 1;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = in[0] + in[1];
    }
};

}  // namespace

void binary(BinaryOp op, const View& a, const View& b, const View& y, Scalars s, cudaStream_t stream) {
    const bool wide = needs_double(a.dtype) || needs_double(b.dtype);
    switch (op) {
#define INVAR_CASE(Name) \
    case BinaryOp::Name: \
        return run_pointwise(Forward<pointwise::Name>{s}, {&a, &b, &y}, wide, stream);
        INVAR_BINARY_OPS(INVAR_CASE)
#undef INVAR_CASE
    }
}

void binary_backward(BinaryOp op, const View& gy, const View& a, const View& b, const View& ga, const View& gb,
                     Scalars s, cudaStream_t stream) {
    switch (op) {
#define INVAR_CASE(Name) \
    case BinaryOp::Name: \
        return run_pointwise(Backward<pointwise::Name>{s}, {&gy, &a, &b, &ga, &gb}, needs_double(gy.dtype), stream);
        INVAR_BINARY_OPS(INVAR_CASE)
#undef INVAR_CASE
    }
}

void where(const View& condition, const View& a, const View& b, const View& y, cudaStream_t stream) {
    run_pointwise(Where{}, {&condition, &a, &b, &y}, needs_double(y.dtype), stream);
}

void add_into(const View& x, const View& y, cudaStream_t stream) {
    run_pointwise(AddInto{}, {&x, &y, &y}, needs_double(y.dtype), stream);
}

}  // namespace invar::cuda
