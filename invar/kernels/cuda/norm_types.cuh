// What the norms read and write: a stream of type X (what is normalised, the residual sum, their gradients) and results
// of type Y (what is normalised, the branch, their gradients), in packs as wide as 16 bytes of the wider one are; or
// single elements of any dtypes.
#pragma once

#include "invar/kernels/cuda/source.cuh"

namespace invar::cuda {

inline std::int64_t columns_of(const View& x) {
    return x.size[x.rank - 1];
}
inline std::int64_t rows_of(const View& x) {
    return columns_of(x) > 0 ? x.numel() / columns_of(x) : 0;
}

template <class X, class Y>
struct PackedNorm {
    using C = float;
    static constexpr int kWidth = kPack<std::conditional_t<(sizeof(X) > sizeof(Y)), X, Y>>;
    static constexpr bool kPacked = true, kOneType = std::is_same_v<X, Y>;
    using XRaw = Pack<X, kWidth>;
    using YRaw = Pack<Y, kWidth>;
};

template <class Compute>
struct AnyNorm {
    using C = Compute;
    static constexpr int kWidth = 1;
    static constexpr bool kPacked = false, kOneType = false;
    using XRaw = Compute;
    using YRaw = Compute;
};

template <class T, int kWidth>
__device__ inline void read_raw(const Dense& from, std::int64_t at, Pack<T, kWidth>& raw) {
    raw.read(static_cast<const T*>(from.data) + at);
}
template <class C>
__device__ inline void read_raw(const Dense& from, std::int64_t at, C& raw) {
    raw = from.get<C>(at);
}
template <class T, int kWidth>
__device__ inline void unpack_raw(const Pack<T, kWidth>& raw, float* values) {
    raw.unpack(values);
}
template <class C>
__device__ inline void unpack_raw(const C& raw, C* values) {
    values[0] = raw;
}
// As a Raw of the types above, to a tensor that holds it.
template <class Raw, class C>
__device__ inline void write_raw(const C* values, const Dense& to, std::int64_t at) {
    if constexpr (std::is_same_v<Raw, C>) {
        to.put<C>(at, values[0]);
    } else {
        Raw raw;
        raw.pack(values);
        raw.write(static_cast<typename Raw::Element*>(to.data) + at);
    }
}

// The values as the tensor that they belong to keeps them.
template <class Raw, class C>
__device__ inline void round_as(Dtype dtype, C* values) {
    if constexpr (std::is_same_v<Raw, C>) {
        if (dtype == Dtype::f16)
            values[0] = C(converted<float>(converted<f16>(values[0])));
        else if (dtype == Dtype::bf16)
            values[0] = C(converted<float>(converted<bf16>(values[0])));
        else if (dtype == Dtype::f32)
            values[0] = C(converted<float>(values[0]));
    } else {
        Raw raw;
        raw.pack(values);
        raw.unpack(values);
    }
}

// Never contracted with the product that made an operand: the bits of a sum that is made by itself.
__device__ inline float plain_sum(float a, float b) {
    return __fadd_rn(a, b);
}
__device__ inline double plain_sum(double a, double b) {
    return __dadd_rn(a, b);
}

// The norm's last step, of a value that is centered and scaled: one rounding for product and sum, wherever it is taken.
__device__ inline float affine(float hat, float gamma, float beta) {
    return __fmaf_rn(hat, gamma, beta);
}
__device__ inline double affine(double hat, double gamma, double beta) {
    return __fma_rn(hat, gamma, beta);
}

// A vector of f32 parameters (any, for AnyNorm) from `at`, or a constant where there is none.
template <class Types>
__device__ inline void parameters_at(const Dense& from, std::int64_t at, typename Types::C otherwise,
                                     typename Types::C* values) {
    if (from.data == nullptr) {
#pragma unroll
        for (int i = 0; i < Types::kWidth; ++i) values[i] = otherwise;
    } else if constexpr (Types::kPacked) {
        Pack<float, Types::kWidth> raw;
        raw.read(static_cast<const float*>(from.data) + at);
        raw.unpack(values);
    } else {
        values[0] = from.get<typename Types::C>(at);
    }
}

// Calls f(TypeTag<Types>{}) with the fastest types for rows of n elements. `stream` and `results` are tensors of X and
// of Y, the first of each there; `parameters` are f32. Y is X, or 16 bits beside a stream of f32.
template <class F>
void with_norm_types(std::int64_t n, std::initializer_list<const View*> stream,
                     std::initializer_list<const View*> results, std::initializer_list<const View*> parameters,
                     const F& f) {
    const Dtype x = (*stream.begin())->dtype, y = (*results.begin())->dtype;
    bool fast = true, wide = false;
    const auto look = [&](std::initializer_list<const View*> views, Dtype dtype) {
        for (const View* view : views) {
            fast = fast && (!*view || (view->dtype == dtype && aligned(view->data)));
            wide = wide || (*view && needs_double(view->dtype));
        }
    };
    look(stream, x), look(results, y), look(parameters, Dtype::f32);
    const std::size_t larger = size_of(x) > size_of(y) ? size_of(x) : size_of(y);
    if (fast && n % std::int64_t(16 / larger) == 0) {
        if (x == Dtype::f32 && y == Dtype::f32) return f(TypeTag<PackedNorm<float, float>>{});
        if (x == Dtype::f32 && y == Dtype::f16) return f(TypeTag<PackedNorm<float, f16>>{});
        if (x == Dtype::f32 && y == Dtype::bf16) return f(TypeTag<PackedNorm<float, bf16>>{});
        if (x == Dtype::f16 && y == Dtype::f16) return f(TypeTag<PackedNorm<f16, f16>>{});
        if (x == Dtype::bf16 && y == Dtype::bf16) return f(TypeTag<PackedNorm<bf16, bf16>>{});
    }
    if (wide)
        f(TypeTag<AnyNorm<double>>{});
    else
        f(TypeTag<AnyNorm<float>>{});
}

}  // namespace invar::cuda
