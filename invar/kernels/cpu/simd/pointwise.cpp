// The pointwise kernels, generated from the lists of kernels/pointwise.h.
#include "invar/kernels/pointwise.h"

#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/inline_float.h"
#include "invar/kernels/cpu/simd/iteration.h"

namespace invar::INVAR_ISA {

namespace {

template <class C, class F>
void run_unary(const View& x, const View& y, F functor) {
    const Iteration<2> it({&x, &y});
    it.for_blocks([&](const auto& at, std::int64_t n) {
        alignas(64) C in[kBlock], out[kBlock];
        const C* px = load<C>(byte_at(x.data, x.dtype, at[0]), x.dtype, it.stride[0][0], n, in);
        void* to = byte_at(y.data, y.dtype, at[1]);
        C* py = target<C>(to, y.dtype, it.stride[1][0], out);
        for (std::int64_t i = 0; i < n; ++i) py[i] = functor(px[i]);
        store<C>(py, to, y.dtype, it.stride[1][0], n);
    });
}

// Two operands in, one out; the second operand may be absent.
template <class C, class F>
void run_binary(const View& a, const View& b, const View& y, F functor) {
    const Iteration<3> it({&a, &b, &y});
    it.for_blocks([&](const auto& at, std::int64_t n) {
        alignas(64) C in_a[kBlock], in_b[kBlock], out[kBlock];
        const C* pa = load<C>(byte_at(a.data, a.dtype, at[0]), a.dtype, it.stride[0][0], n, in_a);
        const C* pb = b ? load<C>(byte_at(b.data, b.dtype, at[1]), b.dtype, it.stride[1][0], n, in_b) : pa;
        void* to = byte_at(y.data, y.dtype, at[2]);
        C* py = target<C>(to, y.dtype, it.stride[2][0], out);
        for (std::int64_t i = 0; i < n; ++i) py[i] = functor(pa[i], pb[i]);
        store<C>(py, to, y.dtype, it.stride[2][0], n);
    });
}

// One gradient of a binary op: gy, a, b in; a and b may be absent together.
template <class C, class F>
void run_gradient(const View& gy, const View& a, const View& b, const View& out, F functor) {
    const Iteration<4> it({&gy, &a, &b, &out});
    it.for_blocks([&](const auto& at, std::int64_t n) {
        alignas(64) C in_g[kBlock], in_a[kBlock], in_b[kBlock], result[kBlock];
        const C* pg = load<C>(byte_at(gy.data, gy.dtype, at[0]), gy.dtype, it.stride[0][0], n, in_g);
        const C* pa = a ? load<C>(byte_at(a.data, a.dtype, at[1]), a.dtype, it.stride[1][0], n, in_a) : pg;
        const C* pb = b ? load<C>(byte_at(b.data, b.dtype, at[2]), b.dtype, it.stride[2][0], n, in_b) : pg;
        void* to = byte_at(out.data, out.dtype, at[3]);
        C* po = target<C>(to, out.dtype, it.stride[3][0], result);
        for (std::int64_t i = 0; i < n; ++i) po[i] = functor(pg[i], pa[i], pb[i]);
        store<C>(po, to, out.dtype, it.stride[3][0], n);
    });
}

// Calls f with a float or a double, whichever the values need.
template <class F>
void with_compute_type(bool wide, F&& f) {
    wide ? f(double{}) : f(float{});
}

// What a functor computes in, for values of type C.
template <class C>
using Inlined = std::conditional_t<std::is_same_v<C, float>, InlineFloat, C>;

}  // namespace

void CpuKernels::unary(UnaryOp op, const View& x, const View& y, Scalars s) {
    with_compute_type(needs_double(x.dtype), [&](auto zero) {
        using C = decltype(zero);
        using T = Inlined<C>;
        switch (op) {
#define INVAR_CASE(Name, ...) \
    case UnaryOp::Name:       \
        return run_unary<C>(x, y, [s](C v) { return C(pointwise::Name::forward(T(v), s)); });
            INVAR_UNARY_OPS(INVAR_CASE)
#undef INVAR_CASE
        }
    });
}

void CpuKernels::unary_backward(UnaryOp op, const View& gy, const View& saved, const View& gx, Scalars s) {
    with_compute_type(needs_double(gy.dtype), [&](auto zero) {
        using C = decltype(zero);
        using T = Inlined<C>;
        switch (op) {
#define INVAR_CASE(Name, ...) \
    case UnaryOp::Name:       \
        return run_binary<C>(gy, saved, gx, [s](C g, C v) { return C(pointwise::Name::backward(T(g), T(v), s)); });
            INVAR_UNARY_OPS(INVAR_CASE)
#undef INVAR_CASE
        }
    });
}

void CpuKernels::binary(BinaryOp op, const View& a, const View& b, const View& y, Scalars s) {
    if (!is_floating(y.dtype))
        return run_binary<std::int64_t>(a, b, y,
                                        [op](std::int64_t u, std::int64_t v) { return whole_result(op, u, v); });
    with_compute_type(needs_double(a.dtype) || needs_double(b.dtype), [&](auto zero) {
        using C = decltype(zero);
        using T = Inlined<C>;
        switch (op) {
#define INVAR_CASE(Name, ...) \
    case BinaryOp::Name:      \
        return run_binary<C>(a, b, y, [s](C u, C v) { return C(pointwise::Name::forward(T(u), T(v), s)); });
            INVAR_BINARY_OPS(INVAR_CASE)
#undef INVAR_CASE
        }
    });
}

void CpuKernels::binary_backward(BinaryOp op, const View& gy, const View& a, const View& b, const View& ga,
                                 const View& gb, Scalars s) {
    with_compute_type(needs_double(gy.dtype), [&](auto zero) {
        using C = decltype(zero);
        using T = Inlined<C>;
        switch (op) {
#define INVAR_CASE(Name, ...)                                                                                    \
    case BinaryOp::Name:                                                                                         \
        if (ga)                                                                                                  \
            run_gradient<C>(gy, a, b, ga,                                                                        \
                            [s](C g, C u, C v) { return C(pointwise::Name::backward_a(T(g), T(u), T(v), s)); }); \
        if (gb)                                                                                                  \
            run_gradient<C>(gy, a, b, gb,                                                                        \
                            [s](C g, C u, C v) { return C(pointwise::Name::backward_b(T(g), T(u), T(v), s)); }); \
        return;
            INVAR_BINARY_OPS(INVAR_CASE)
#undef INVAR_CASE
        }
    });
}

void CpuKernels::where(const View& condition, const View& a, const View& b, const View& y) {
    const auto select = [&](auto zero) {
        using C = decltype(zero);
        run_gradient<C>(condition, a, b, y, [](C c, C u, C v) { return c != C(0) ? u : v; });
    };
    // Nothing is computed: whole numbers stay what they are, however large.
    y.dtype == Dtype::i64 ? select(std::int64_t{}) : with_compute_type(needs_double(y.dtype), select);
}

namespace {

// The first or the second half of the last dimension.
View half_of(const View& x, int which) {
    View half = x;
    const std::int64_t n = x.size[x.rank - 1] / 2;
    half.size[x.rank - 1] = n;
    half.data = byte_at(x.data, x.dtype, which * n);
    return half;
}

}  // namespace

void CpuKernels::swiglu(const View& x, const View& y) {
    using pointwise::Silu;
    with_compute_type(needs_double(y.dtype), [&](auto zero) {
        using C = decltype(zero);
        using T = Inlined<C>;
        run_binary<C>(half_of(x, 0), half_of(x, 1), y, [](C gate, C up) { return C(Silu::forward(T(gate), {})) * up; });
    });
}

void CpuKernels::swiglu_backward(const View& gy, const View& x, const View& gx, const View& again) {
    using pointwise::Silu;
    if (again) swiglu(x, again);
    with_compute_type(needs_double(gy.dtype), [&](auto zero) {
        using C = decltype(zero);
        using T = Inlined<C>;
        const View gate = half_of(x, 0), up = half_of(x, 1);
        run_gradient<C>(gy, gate, up, half_of(gx, 0),
                        [](C g, C a, C b) { return C(Silu::backward(T(g * b), T(a), {})); });
        run_gradient<C>(gy, gate, up, half_of(gx, 1), [](C g, C a, C) { return g * C(Silu::forward(T(a), {})); });
    });
}

void CpuKernels::scaled(const View& x, const View& factor, const View& y, bool accumulate) {
    with_compute_type(needs_double(y.dtype), [&](auto zero) {
        using C = decltype(zero);
        C buffer;
        const C by = *load(factor.data, factor.dtype, 1, 1, &buffer);
        if (accumulate)
            run_binary<C>(x, y, y, [by](C u, C v) { return by * u + v; });
        else
            run_binary<C>(x, x, y, [by](C u, C) { return by * u; });
    });
}

void CpuKernels::compare(const CompareSpec& spec, const View& a, const View& b, const View& y) {
    const auto run = [&](auto zero) {
        using C = decltype(zero);
        const auto each = [&](auto fixed) {  // known when this is compiled, so that loops have no branch
            constexpr CompareOp kOp = decltype(fixed)::value;
            if (b)
                run_binary<C>(a, b, y, [](C u, C v) { return C(holds(kOp, u, v)); });
            else
                run_unary<C>(a, y, [c = spec.constant<C>()](C u) { return C(holds(kOp, u, c)); });
        };
        switch (spec.op) {
#define INVAR_CASE(name)  \
    case CompareOp::name: \
        return each(std::integral_constant<CompareOp, CompareOp::name>{});
            INVAR_CASE(eq)
            INVAR_CASE(ne)
            INVAR_CASE(lt)
            INVAR_CASE(le)
            INVAR_CASE(gt)
            INVAR_CASE(ge)
            INVAR_CASE(logical_and)
            INVAR_CASE(logical_or)
            INVAR_CASE(logical_xor)
#undef INVAR_CASE
        }
    };
    is_floating(spec.in) ? with_compute_type(spec.in == Dtype::f64, run) : run(std::int64_t{});
}

void CpuKernels::add_into(const View& x, const View& y) {
    with_compute_type(needs_double(y.dtype), [&](auto zero) {
        using C = decltype(zero);
        run_binary<C>(x, y, y, [](C u, C v) { return u + v; });
    });
}

}  // namespace invar::INVAR_ISA
