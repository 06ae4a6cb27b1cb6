// Where row and column kernels read from: 16-byte packs of one fast type, or single elements of any dtype; and a row
// that stays in registers between the passes over it.
#pragma once

#include <initializer_list>

#include "invar/kernels/cuda/vector.cuh"

namespace invar::cuda {

template <class T>
struct PackSource {
    using C = float;
    using Raw = Pack<T, kPack<T>>;
    static constexpr int kWidth = kPack<T>;
    const T* data;
    explicit PackSource(const View& view) : data(view.as<const T>()) {}
    __device__ void read(std::int64_t at, Raw& raw) const { raw.read(data + at); }
    __device__ static void unpack(const Raw& raw, C* values) { raw.unpack(values); }
    // To a tensor of the same kind, kWidth elements from `at`.
    __device__ static void store(const C* values, const Dense& to, std::int64_t at) {
        Raw raw;
        raw.pack(values);
        raw.write(static_cast<T*>(to.data) + at);
    }
    // From a vector of f32 parameters.
    __device__ static void parameters(const Dense& from, std::int64_t at, C* values) {
        Pack<float, kWidth> raw;
        raw.read(static_cast<const float*>(from.data) + at);
        raw.unpack(values);
    }
};

template <class Compute>
struct AnySource {
    using C = Compute;
    using Raw = Compute;
    static constexpr int kWidth = 1;
    Dense data;
    explicit AnySource(const View& view) : data(view) {}
    __device__ void read(std::int64_t at, Raw& raw) const { raw = data.get<C>(at); }
    __device__ static void unpack(const Raw& raw, C* values) { values[0] = raw; }
    __device__ static void store(const C* values, const Dense& to, std::int64_t at) { to.put<C>(at, values[0]); }
    __device__ static void parameters(const Dense& from, std::int64_t at, C* values) { values[0] = from.get<C>(at); }
};

// A vector of parameters from `at`, or a constant where there is none.
template <class Source>
__device__ inline void parameters_or(const Dense& from, std::int64_t at, typename Source::C otherwise,
                                     typename Source::C* values) {
    if (from.data != nullptr) return Source::parameters(from, at, values);
#pragma unroll
    for (int i = 0; i < Source::kWidth; ++i) values[i] = otherwise;
}

// Calls f(TypeTag<Source>{}) with the fastest source for rows of n elements of all of `tensors`; the first names the
// dtype to compute for. Packs need tensors of one dtype on 16 bytes, and `others`, parameters or indices, there too.
template <class F>
void with_source(std::int64_t n, std::initializer_list<const View*> tensors, std::initializer_list<const View*> others,
                 const F& f) {
    const Dtype dtype = (*tensors.begin())->dtype;
    bool fast = true;
    for (const View* view : tensors) fast = fast && (!*view || (view->dtype == dtype && aligned(view->data)));
    for (const View* view : others)
        fast = fast && (!*view || (aligned(view->data) && (view->dtype == Dtype::f32 || !is_floating(view->dtype))));
    if (fast && n % std::int64_t(16 / size_of(dtype)) == 0) {
        if (with_fast_type(dtype, [&](auto tag) { f(TypeTag<PackSource<typename decltype(tag)::type>>{}); })) return;
    }
    if (needs_double(dtype))
        f(TypeTag<AnySource<double>>{});
    else
        f(TypeTag<AnySource<float>>{});
}

// One row of a tensor, shared by kGroup threads. What the first passes of the loop read stays in registers; the rest of
// a long row is read again, from the cache.
template <class From, int kGroup, int kHeld = 4>
struct Row {
    using Source = From;
    using C = typename Source::C;
    static constexpr int kWidth = Source::kWidth;
    const Source* source;
    std::int64_t base, n;
    typename Source::Raw held[kHeld];

    __device__ Row(const Source& from, std::int64_t at, std::int64_t count) : source(&from), base(at), n(count) {
#pragma unroll
        for (int k = 0; k < kHeld; ++k)
            if (place(k) < n) source->read(base + place(k), held[k]);
    }
    __device__ static std::int64_t place(int k) {
        return (std::int64_t(k) * kGroup + threadIdx.x % kGroup) * kWidth;
    }

    // f(i, values) for this thread's elements i ... i + kWidth.
    template <class F>
    __device__ void each(const F& f) const {
        C values[kWidth];
#pragma unroll
        for (int k = 0; k < kHeld; ++k) {
            if (place(k) >= n) return;
            source->unpack(held[k], values);
            f(place(k), values);
        }
        for (std::int64_t i = place(kHeld); i < n; i += kGroup * kWidth) {
            typename Source::Raw raw;
            source->read(base + i, raw);
            source->unpack(raw, values);
            f(i, values);
        }
    }
    // The same over two rows side by side.
    template <class F>
    __device__ void each_with(const Row& other, const F& f) const {
        C a[kWidth], b[kWidth];
#pragma unroll
        for (int k = 0; k < kHeld; ++k) {
            if (place(k) >= n) return;
            Source::unpack(held[k], a);
            Source::unpack(other.held[k], b);
            f(place(k), a, b);
        }
        for (std::int64_t i = place(kHeld); i < n; i += kGroup * kWidth) {
            typename Source::Raw first, second;
            source->read(base + i, first);
            other.source->read(other.base + i, second);
            Source::unpack(first, a);
            Source::unpack(second, b);
            f(i, a, b);
        }
    }
};

// A few values by halves, then one addition in double: short sums stay in float, long ones never do.
template <int kCount, class C>
__device__ inline double small_sum(C* values) {
#pragma unroll
    for (int half = kCount / 2; half > 0; half /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) values[i] += values[i + half];
    return double(values[0]);
}

// Warps share a block of kThreads; a larger group is a block, and no larger than it must be: threads with a single pack
// would wait for each other more than they load.
template <int kGroup>
inline constexpr int kBlock = kGroup == kWarp ? kThreads : kGroup;
// Rows a block works on at once, and this thread's.
template <int kGroup>
inline constexpr int kRowsABlock = kBlock<kGroup> / kGroup;
template <int kGroup>
__device__ inline std::int64_t first_row() {
    return std::int64_t(blockIdx.x) * kRowsABlock<kGroup> + threadIdx.x / kGroup;
}

// Calls f(std::integral_constant<int, kGroup>) with as many threads as a row of n elements keeps busy.
template <class Source, class F>
void with_group(std::int64_t n, const F& f) {
    const std::int64_t threads = divide_up(n, 4 * Source::kWidth);
    if (threads <= kWarp)
        f(std::integral_constant<int, kWarp>{});
    else if (threads <= 64)
        f(std::integral_constant<int, 64>{});
    else if (threads <= 128)
        f(std::integral_constant<int, 128>{});
    else
        f(std::integral_constant<int, kThreads>{});
}

}  // namespace invar::cuda
