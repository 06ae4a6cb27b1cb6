// The binary operations and their gradients, generated from the list of kernels/pointwise.h; where, compare, add_into.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/pointwise.cuh"
#include "invar/kernels/pointwise.h"

namespace invar::cuda {
namespace {

template <class Op>
struct Forward {
    static constexpr int kIn = 2, kOut = 1;
    using InBrief = void;
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
    using InBrief = void;
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

struct WholeResult {
    static constexpr int kIn = 2, kOut = 1;
    BinaryOp op;
    __device__ void operator()(const std::int64_t* in, std::int64_t* out) const {
        out[0] = whole_result(op, in[0], in[1]);
    }
};

struct Compare {
    static constexpr int kIn = 2, kOut = 1;
    CompareSpec spec;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = C(holds(spec.op, in[0], in[1]));
    }
};

struct CompareConstant {
    static constexpr int kIn = 1, kOut = 1;
    CompareSpec spec;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = C(holds(spec.op, in[0], spec.constant<C>()));
    }
};

struct AddInto {
    static constexpr int kIn = 2, kOut = 1;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = in[0] + in[1];
    }
};

// 16 bits into FP32, as gradients are added up: packs of four, several in flight.
template <class T>
__global__ __launch_bounds__(kThreads) void add_low(const T* x, float* y, const std::int64_t n) {
    constexpr int kCount = 4, kUnroll = 4;
    const std::int64_t first = std::int64_t(blockIdx.x) * (kThreads * kCount * kUnroll) + threadIdx.x * kCount;
    Pack<T, kCount> raw[kUnroll];
    Pack<float, kCount> sums[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t at = first + u * (kThreads * kCount);
        if (at + kCount <= n) raw[u].read(x + at), sums[u].read(y + at);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t at = first + u * (kThreads * kCount);
        if (at + kCount <= n) {
            float a[kCount], b[kCount];
            raw[u].unpack(a);
            sums[u].unpack(b);
#pragma unroll
            for (int i = 0; i < kCount; ++i) b[i] += a[i];
            sums[u].pack(b);
            sums[u].write(y + at);
        } else {
            for (std::int64_t i = at; i < n; ++i) y[i] += widen(x[i]);
        }
    }
}

// factor x, or that added to what was there; the factor is read where it is.
template <bool kAdds>
struct Scaled {
    static constexpr int kIn = kAdds ? 2 : 1, kOut = 1;
    using InBrief = void;
    Dense factor;
    explicit Scaled(const View& view) : factor(view) {}
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        const C by = factor.get<C>(0);
        if constexpr (kAdds)
            out[0] = by * in[0] + in[1];
        else
            out[0] = by * in[0];
    }
};

template <class T>
void launch_add_low(const View& x, const View& y, cudaStream_t stream) {
    const std::int64_t n = x.numel();
    add_low<T><<<grid_for(n, kThreads * 16), kThreads, 0, stream>>>(x.as<const T>(), y.as<float>(), n);
}

}  // namespace

void CudaKernels::binary(BinaryOp op, const View& a, const View& b, const View& y, Scalars s) {
    const Launch stream("binary");
    if (!is_floating(y.dtype)) {
        if (y.numel() > 0) launch_general<std::int64_t>(WholeResult{op}, {&a, &b, &y}, stream);
        return;
    }
    const bool wide = needs_double(a.dtype) || needs_double(b.dtype);
    switch (op) {
#define INVAR_CASE(Name, ...) \
    case BinaryOp::Name:      \
        return run_pointwise(Forward<pointwise::Name>{s}, {&a, &b, &y}, wide, stream);
        INVAR_BINARY_OPS(INVAR_CASE)
#undef INVAR_CASE
    }
}

void CudaKernels::binary_backward(BinaryOp op, const View& gy, const View& a, const View& b, const View& ga,
                                  const View& gb, Scalars s) {
    const Launch stream("binary_backward");
    switch (op) {
#define INVAR_CASE(Name, ...) \
    case BinaryOp::Name:      \
        return run_pointwise(Backward<pointwise::Name>{s}, {&gy, &a, &b, &ga, &gb}, needs_double(gy.dtype), stream);
        INVAR_BINARY_OPS(INVAR_CASE)
#undef INVAR_CASE
    }
}

void CudaKernels::where(const View& condition, const View& a, const View& b, const View& y) {
    const Launch stream("where");
    // Nothing is computed: whole numbers stay what they are, however large.
    if (y.dtype == Dtype::i64 && y.numel() > 0)
        return launch_general<std::int64_t>(Where{}, {&condition, &a, &b, &y}, stream);
    run_pointwise(Where{}, {&condition, &a, &b, &y}, needs_double(y.dtype), stream);
}

void CudaKernels::scaled(const View& x, const View& factor, const View& y, bool accumulate) {
    const Launch stream("scaled");
    const bool wide = needs_double(y.dtype);
    if (accumulate)
        run_pointwise(Scaled<true>{factor}, {&x, &y, &y}, wide, stream);
    else
        run_pointwise(Scaled<false>{factor}, {&x, &y}, wide, stream);
}

void CudaKernels::compare(const CompareSpec& spec, const View& a, const View& b, const View& y) {
    const Launch stream("compare");
    if (y.numel() == 0) return;
    const auto run = [&](auto tag) {
        using C = typename decltype(tag)::type;
        if (b)
            launch_general<C>(Compare{spec}, {&a, &b, &y}, stream);
        else
            launch_general<C>(CompareConstant{spec}, {&a, &y}, stream);
    };
    if (!is_floating(spec.in))
        run(TypeTag<std::int64_t>{});
    else if (spec.in == Dtype::f64)
        run(TypeTag<double>{});
    else
        run(TypeTag<float>{});
}

void CudaKernels::add_into(const View& x, const View& y) {
    const Launch stream("add_into");
    if (x.numel() > 0 && dense_of(Dtype::f32, {&y})) {
        if (dense_of(Dtype::f16, {&x})) return launch_add_low<f16>(x, y, stream);
        if (dense_of(Dtype::bf16, {&x})) return launch_add_low<bf16>(x, y, stream);
    }
    run_pointwise(AddInto{}, {&x, &y, &y}, needs_double(y.dtype), stream);
}

}  // namespace invar::cuda
