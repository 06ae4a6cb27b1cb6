// Elementwise kernels from functors. A functor names how many operands it reads (kIn) and writes (kOut) and computes
// one element, f(in, out). Dense operands of one 16- or 32-bit type take the fast kernel, all others the general one.
#pragma once

#include <array>

#include "invar/kernels/cuda/brief.cuh"
#include "invar/kernels/cuda/vector.cuh"

namespace invar::cuda {

// Several views of one shape, walked together: dimensions that are dense in all of them are merged; the innermost is 0.
template <int N>
struct Walk {
    int rank = 0;
    std::int64_t size[View::kRank] = {};
    std::int64_t stride[N][View::kRank] = {};
    Dense operand[N];

    // Views after the first may be absent (no data); they take part with stride 0.
    explicit Walk(const std::array<const View*, N>& views) {
        const View& shaped = *views[0];
        for (int k = 0; k < N; ++k) operand[k] = *views[k];
        for (int d = shaped.rank - 1; d >= 0; --d) {
            if (shaped.size[d] == 1) continue;
            std::int64_t step[N];
            for (int k = 0; k < N; ++k) step[k] = *views[k] ? views[k]->stride[d] : 0;
            bool merges = rank > 0;
            for (int k = 0; k < N && merges; ++k) merges = step[k] == stride[k][rank - 1] * size[rank - 1];
            if (merges) {
                size[rank - 1] *= shaped.size[d];
            } else {
                size[rank] = shaped.size[d];
                for (int k = 0; k < N; ++k) stride[k][rank] = step[k];
                ++rank;
            }
        }
        if (rank == 0) size[0] = 1, rank = 1;
    }

    std::int64_t rows() const {
        std::int64_t count = 1;
        for (int d = 1; d < rank; ++d) count *= size[d];
        return count;
    }

    __device__ void offsets(std::int64_t row, std::int64_t column, std::int64_t* at) const {
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] = column * stride[k][0];
#pragma unroll
        for (int d = 1; d < View::kRank; ++d) {
            if (d >= rank) break;
            const Quotient q = d + 1 < rank ? divide(row, size[d]) : Quotient{0, row};
            row = q.whole;
#pragma unroll
            for (int k = 0; k < N; ++k) at[k] += q.rest * stride[k][d];
        }
    }
};

// --- any dtypes, any strides: four neighbours a thread ---

inline constexpr int kGroup = 4;

template <class C>
__device__ inline void load_group(const Dense& from, std::int64_t at, std::int64_t stride, int n, C* values) {
    const std::size_t bytes = from.dtype == Dtype::f32 ? 16 : 8;
    const bool fast = from.dtype == Dtype::f32 || from.dtype == Dtype::f16 || from.dtype == Dtype::bf16;
    const char* address = static_cast<const char*>(from.data) + at * std::int64_t(bytes / kGroup);
    if (std::is_same_v<C, float> && fast && stride == 1 && n == kGroup &&
        reinterpret_cast<std::uintptr_t>(address) % bytes == 0) {
        load_pack<kGroup>(from, at, values);
    } else if (stride == 0) {
        const C value = from.get<C>(at);
#pragma unroll
        for (int i = 0; i < kGroup; ++i) values[i] = value;
    } else {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) values[i] = i < n ? from.get<C>(at + i * stride) : C(0);
    }
}

template <class C>
__device__ inline void store_group(const C* values, const Dense& to, std::int64_t at, std::int64_t stride, int n) {
    const std::size_t bytes = to.dtype == Dtype::f32 ? 16 : 8;
    const bool fast = to.dtype == Dtype::f32 || to.dtype == Dtype::f16 || to.dtype == Dtype::bf16;
    const char* address = static_cast<const char*>(to.data) + at * std::int64_t(bytes / kGroup);
    if (std::is_same_v<C, float> && fast && stride == 1 && n == kGroup &&
        reinterpret_cast<std::uintptr_t>(address) % bytes == 0) {
        store_pack<kGroup>(values, to, at);
    } else {
#pragma unroll
        for (int i = 0; i < kGroup; ++i)
            if (i < n) to.put<C>(at + i * stride, values[i]);
    }
}

template <class C, class F>
__global__ __launch_bounds__(kThreads) void pointwise_general(const F f, const Walk<F::kIn + F::kOut> walk,
                                                              const std::int64_t groups_a_row,
                                                              const std::int64_t groups) {
    for (std::int64_t g = global_thread(); g < groups; g += grid_threads()) {
        const Quotient place = walk.rank == 1 ? Quotient{0, g} : divide(g, groups_a_row);
        const std::int64_t column = place.rest * kGroup;
        const int n = int(smaller<std::int64_t>(kGroup, walk.size[0] - column));
        std::int64_t at[F::kIn + F::kOut];
        walk.offsets(place.whole, column, at);
        C in[F::kIn][kGroup], out[F::kOut ? F::kOut : 1][kGroup];
#pragma unroll
        for (int k = 0; k < F::kIn; ++k) {
            if (k > 0 && walk.operand[k].data == nullptr) {
#pragma unroll
                for (int i = 0; i < kGroup; ++i) in[k][i] = in[0][i];
            } else {
                load_group<C>(walk.operand[k], at[k], walk.stride[k][0], n, in[k]);
            }
        }
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
            C from[F::kIn], to[F::kOut ? F::kOut : 1];
#pragma unroll
            for (int k = 0; k < F::kIn; ++k) from[k] = in[k][i];
            if (i < n) f(from, to);
#pragma unroll
            for (int k = 0; k < F::kOut; ++k) out[k][i] = to[k];
        }
#pragma unroll
        for (int k = 0; k < F::kOut; ++k) {
            const Dense& to = walk.operand[F::kIn + k];
            if (to.data != nullptr) store_group<C>(out[k], to, at[F::kIn + k], walk.stride[F::kIn + k][0], n);
        }
    }
}

// --- dense operands of type In, results of type Out: several packs in flight a thread ---

template <int kIn, int kOut>
struct Pointers {
    const void* in[kIn];
    void* out[kOut ? kOut : 1];
};

// Packs by the wider type: with more than 16 bytes a thread, neighbours would write half sectors. A thread's
// packs are all on their way before the first is looked at.
template <class In, class Out>
inline constexpr int kDensePack = kPack<std::conditional_t<(sizeof(In) > sizeof(Out)), In, Out>>;
template <class In, class Out, class F>
inline constexpr int kDenseUnroll = F::kIn == 1   ? 64 / (kDensePack<In, Out> * int(sizeof(In)))
                                    : F::kIn == 2 ? 4
                                                  : 2;

// What one element is computed in: Brief where a functor says so (InBrief) and nothing wider than 16 bits takes part.
template <class In, class Out, class F>
constexpr auto dense_compute() {
    if constexpr (requires { typename F::InBrief; } && sizeof(In) == 2 && sizeof(Out) == 2)
        return TypeTag<Brief>{};
    else
        return TypeTag<float>{};
}

template <class In, class Out, class F>
__global__ __launch_bounds__(kThreads) void pointwise_dense(const F f, const Pointers<F::kIn, F::kOut> p,
                                                            const std::int64_t n) {
    using C = typename decltype(dense_compute<In, Out, F>())::type;
    constexpr int kCount = kDensePack<In, Out>, kUnroll = kDenseUnroll<In, Out, F>;
    constexpr int kOuts = F::kOut ? F::kOut : 1;
    const std::int64_t first = std::int64_t(blockIdx.x) * (kThreads * kCount * kUnroll) + threadIdx.x * kCount;
    Pack<In, kCount> raw[kUnroll][F::kIn];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t at = first + u * (kThreads * kCount);
        if (at + kCount <= n) {
#pragma unroll
            for (int k = 0; k < F::kIn; ++k) raw[u][k].read(static_cast<const In*>(p.in[k]) + at);
        }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t at = first + u * (kThreads * kCount);
        if (at + kCount <= n) {
            float in[F::kIn][kCount], out[kOuts][kCount];
#pragma unroll
            for (int k = 0; k < F::kIn; ++k) raw[u][k].unpack(in[k]);
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                C from[F::kIn], to[kOuts];
#pragma unroll
                for (int k = 0; k < F::kIn; ++k) from[k] = C(in[k][i]);
                f(from, to);
#pragma unroll
                for (int k = 0; k < F::kOut; ++k) out[k][i] = float(to[k]);
            }
#pragma unroll
            for (int k = 0; k < F::kOut; ++k) {
                if (F::kOut > 1 && p.out[k] == nullptr) continue;
                Pack<Out, kCount> result;
                result.pack(out[k]);
                result.write(static_cast<Out*>(p.out[k]) + at);
            }
        } else {
            for (std::int64_t i = at; i < n; ++i) {  // the last few elements
                C from[F::kIn], to[kOuts];
#pragma unroll
                for (int k = 0; k < F::kIn; ++k) from[k] = C(widen(static_cast<const In*>(p.in[k])[i]));
                f(from, to);
#pragma unroll
                for (int k = 0; k < F::kOut; ++k)
                    if (p.out[k] != nullptr) static_cast<Out*>(p.out[k])[i] = narrow<Out>(float(to[k]));
            }
        }
    }
}

// True where all present views are dense, on 16 bytes, and of that dtype.
inline bool dense_of(Dtype dtype, std::initializer_list<const View*> views) {
    for (const View* view : views)
        if (*view && (view->dtype != dtype || !view->contiguous() || !aligned(view->data))) return false;
    return true;
}

template <class In, class Out, class F>
void launch_dense(const F& f, const std::array<const View*, F::kIn + F::kOut>& views, cudaStream_t stream) {
    constexpr int kCount = kDensePack<In, Out>, kUnroll = kDenseUnroll<In, Out, F>;
    Pointers<F::kIn, F::kOut> p{};
    // An operand that is absent is one that f ignores: the first stands in, for a branch would hold up the loads.
    for (int k = 0; k < F::kIn; ++k) p.in[k] = *views[k] ? views[k]->data : views[0]->data;
    for (int k = 0; k < F::kOut; ++k) p.out[k] = views[F::kIn + k]->data;
    const std::int64_t n = views[0]->numel();
    pointwise_dense<In, Out><<<grid_for(n, kThreads * kCount * kUnroll), kThreads, 0, stream>>>(f, p, n);
}

template <class C, class F>
void launch_general(const F& f, const std::array<const View*, F::kIn + F::kOut>& views, cudaStream_t stream) {
    const Walk<F::kIn + F::kOut> walk(views);
    const std::int64_t groups_a_row = divide_up(walk.size[0], kGroup), groups = groups_a_row * walk.rows();
    pointwise_general<C><<<grid_for(groups, kThreads, 1 << 20), kThreads, 0, stream>>>(f, walk, groups_a_row, groups);
}

// Runs f over the views, inputs first; `wide` asks for double.
template <class F>
void run_pointwise(const F& f, const std::array<const View*, F::kIn + F::kOut>& views, bool wide, cudaStream_t stream) {
    if (views[0]->numel() == 0) return;
    if (wide) return launch_general<double>(f, views, stream);
    bool dense = true;
    for (const View* view : views) dense = dense && dense_of(views[0]->dtype, {view});
    const bool fast = dense && with_fast_type(views[0]->dtype, [&](auto tag) {
                          using T = typename decltype(tag)::type;
                          launch_dense<T, T>(f, views, stream);
                      });
    if (!fast) launch_general<float>(f, views, stream);
}

}  // namespace invar::cuda
