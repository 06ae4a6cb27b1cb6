// Moving values: copies between any dtypes and strides, fills, and the search for values that are not finite.
#include <cstring>

#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/pointwise.cuh"

namespace invar::cuda {
namespace {

struct Identity {
    static constexpr int kIn = 1, kOut = 1;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        out[0] = in[0];
    }
};

struct NonFinite {
    static constexpr int kIn = 1, kOut = 0;
    std::int32_t* found;
    __device__ void operator()(const float* in, float*) const {
        if (!(fabsf(in[0]) <= 3.402823466e38f)) *found = 1;
    }
    __device__ void operator()(const double* in, double*) const {
        if (!(fabs(in[0]) <= 1.7976931348623157e308)) *found = 1;
    }
};

// Elements as units of 1 to 16 bytes: neighbours that every view keeps side by side are joined, so that rows of small
// elements move in large pieces. Returns the bytes of a unit.
template <int N>
std::size_t join_units(Walk<N>& walk, std::size_t bytes) {
    const auto joins = [&] {
        if (bytes == 16 || walk.size[0] % 2 != 0) return false;
        for (int k = 0; k < N; ++k) {
            if (walk.stride[k][0] != 1 || !aligned(walk.operand[k].data, 2 * bytes)) return false;
            for (int d = 1; d < walk.rank; ++d)
                if (walk.stride[k][d] % 2 != 0) return false;
        }
        return true;
    };
    for (; joins(); bytes *= 2) {
        walk.size[0] /= 2;
        for (int k = 0; k < N; ++k)
            for (int d = 1; d < walk.rank; ++d) walk.stride[k][d] /= 2;
    }
    return bytes;
}

template <class F>
void with_unit(std::size_t bytes, const F& f) {
    switch (bytes) {
        case 16:
            return f(TypeTag<uint4>{});
        case 8:
            return f(TypeTag<uint2>{});
        case 4:
            return f(TypeTag<std::uint32_t>{});
        case 2:
            return f(TypeTag<std::uint16_t>{});
        default:
            return f(TypeTag<std::uint8_t>{});
    }
}

inline constexpr int kInFlight = 4;

// Same dtype: elements move as bits, so that NaN payloads and 64-bit integers arrive untouched.
template <class Unit>
__global__ __launch_bounds__(kThreads) void move(const Walk<2> walk, const std::int64_t n) {
    const std::int64_t first = std::int64_t(blockIdx.x) * (kThreads * kInFlight) + threadIdx.x;
    Unit value[kInFlight];
    std::int64_t to[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
        const std::int64_t i = first + u * kThreads;
        if (i >= n) break;
        const Quotient q = walk.rank == 1 ? Quotient{0, i} : divide(i, walk.size[0]);
        std::int64_t at[2];
        walk.offsets(q.whole, q.rest, at);
        value[u] = static_cast<const Unit*>(walk.operand[0].data)[at[0]];
        to[u] = at[1];
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u)
        if (first + u * kThreads < n) static_cast<Unit*>(walk.operand[1].data)[to[u]] = value[u];
}

// A matrix laid the other way round goes through shared memory in tiles, so that reads and writes both run along rows.
inline constexpr int kTile = 32, kTileRows = 8;

template <class Unit>
__global__ __launch_bounds__(kTile* kTileRows) void transpose(
    const Unit* from, Unit* to, const std::int64_t rows, const std::int64_t columns, const std::int64_t from_stride,
    const std::int64_t to_stride, const std::int64_t from_batch, const std::int64_t to_batch,
    const std::int64_t row_tiles) {
    __shared__ Unit tile[kTile][kTile + 1];
    const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
    from += std::int64_t(blockIdx.y) * from_batch;
    to += std::int64_t(blockIdx.y) * to_batch;
    const Quotient q = divide(blockIdx.x, row_tiles);
    const std::int64_t column = q.whole * kTile, row = q.rest * kTile;
#pragma unroll
    for (int i = y; i < kTile; i += kTileRows)  // `from` runs along rows
        if (column + i < columns && row + x < rows) tile[i][x] = from[(column + i) * from_stride + row + x];
    __syncthreads();
#pragma unroll
    for (int i = y; i < kTile; i += kTileRows)
        if (row + i < rows && column + x < columns) to[(row + i) * to_stride + column + x] = tile[x][i];
}

// Handles [batch, rows, columns] with `to` dense along columns and `from` dense along rows; false for anything else.
bool move_transposed(const Walk<2>& walk, std::size_t bytes, cudaStream_t stream) {
    if (walk.rank < 2 || walk.rank > 3 || walk.stride[1][0] != 1 || walk.stride[0][1] != 1 || bytes == 16) return false;
    const std::int64_t columns = walk.size[0], rows = walk.size[1], batch = walk.rank == 3 ? walk.size[2] : 1;
    const std::int64_t row_tiles = divide_up(rows, kTile), tiles = row_tiles * divide_up(columns, kTile);
    if (batch > 65535 || tiles > 0x7fffffff || rows < 8 || columns < 8) return false;
    with_unit(bytes, [&](auto tag) {
        using Unit = typename decltype(tag)::type;
        transpose<Unit><<<dim3(unsigned(tiles), unsigned(batch)), kTile * kTileRows, 0, stream>>>(
            static_cast<const Unit*>(walk.operand[0].data), static_cast<Unit*>(walk.operand[1].data), rows, columns,
            walk.stride[0][0], walk.stride[1][1], walk.stride[0][2], walk.stride[1][2], row_tiles);
    });
    return true;
}

template <class Unit>
__global__ __launch_bounds__(kThreads) void fill_units(const Walk<1> walk, const std::int64_t n, const Unit value) {
    const std::int64_t first = std::int64_t(blockIdx.x) * (kThreads * kInFlight) + threadIdx.x;
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
        const std::int64_t i = first + u * kThreads;
        if (i >= n) return;
        const Quotient q = walk.rank == 1 ? Quotient{0, i} : divide(i, walk.size[0]);
        std::int64_t at;
        walk.offsets(q.whole, q.rest, &at);
        static_cast<Unit*>(walk.operand[0].data)[at] = value;
    }
}

template <class To>
bool cast_from(const View& from, const View& to, cudaStream_t stream) {
    return with_fast_type(from.dtype, [&](auto tag) {
        launch_dense<typename decltype(tag)::type, To>(Identity{}, {&from, &to}, stream);
    });
}

__global__ __launch_bounds__(kThreads) void count_up(const Dense out, const std::int64_t n, const std::int64_t first) {
    for (std::int64_t i = global_thread(); i < n; i += grid_threads()) out.put<std::int64_t>(i, first + i);
}

}  // namespace

void CudaKernels::copy(const View& from, const View& to) {
    const Launch stream("copy");
    const std::int64_t n = from.numel();
    if (n == 0) return;
    if (from.dtype == to.dtype) {
        Walk<2> walk({&from, &to});
        const std::size_t size = size_of(from.dtype);
        if (walk.rank == 1 && walk.stride[0][0] == 1 && walk.stride[1][0] == 1) {
            cudaMemcpyAsync(to.data, from.data, std::size_t(n) * size, cudaMemcpyDeviceToDevice, stream);
            return;
        }
        if (move_transposed(walk, size, stream)) return;
        const std::size_t bytes = join_units(walk, size);
        const std::int64_t units = walk.size[0] * walk.rows();
        with_unit(bytes, [&](auto tag) {
            using Unit = typename decltype(tag)::type;
            move<Unit><<<grid_for(units, kThreads * kInFlight), kThreads, 0, stream>>>(walk, units);
        });
        return;
    }
    const std::array<const View*, 2> views{&from, &to};
    // Double would lose the last digits of large ones.
    if (from.dtype == Dtype::i64) return launch_general<std::int64_t>(Identity{}, views, stream);
    if (needs_double(from.dtype) || needs_double(to.dtype)) return launch_general<double>(Identity{}, views, stream);
    bool fast = false;
    if (dense_of(from.dtype, {&from}) && dense_of(to.dtype, {&to}))
        with_fast_type(to.dtype, [&](auto tag) { fast = cast_from<typename decltype(tag)::type>(from, to, stream); });
    if (!fast) launch_general<float>(Identity{}, views, stream);
}

void CudaKernels::fill(const View& out, double value) {
    const Launch stream("fill");
    if (out.numel() == 0) return;
    unsigned char pattern[16];
    if (out.dtype == Dtype::boolean) value = as_boolean(value);
    dispatch(out.dtype, [&](auto tag) {
        const auto bits = converted<typename decltype(tag)::type>(value);
        for (std::size_t at = 0; at < sizeof(pattern); at += sizeof(bits))
            std::memcpy(pattern + at, &bits, sizeof(bits));
    });
    Walk<1> walk({&out});
    const std::size_t bytes = join_units(walk, size_of(out.dtype));
    const std::int64_t units = walk.size[0] * walk.rows();
    with_unit(bytes, [&](auto tag) {
        using Unit = typename decltype(tag)::type;
        Unit unit;
        std::memcpy(&unit, pattern, sizeof(unit));
        fill_units<Unit><<<grid_for(units, kThreads * kInFlight), kThreads, 0, stream>>>(walk, units, unit);
    });
}

void CudaKernels::arange(const View& out, std::int64_t first) {
    const Launch stream("arange");
    const std::int64_t n = out.numel();
    if (n > 0) count_up<<<grid_for(n, kThreads, 1 << 20), kThreads, 0, stream>>>(out, n, first);
}

bool CudaKernels::all_finite(const View& x) {
    const Scratch memory(sizeof(std::int32_t));
    auto* const found = static_cast<std::int32_t*>(memory.data());
    {
        const Launch stream("all_finite");
        cudaMemsetAsync(found, 0, sizeof(*found), stream);
        run_pointwise(NonFinite{found}, {&x}, x.dtype == Dtype::f64, stream);
    }
    std::int32_t bad = 0;
    download(&bad, found, sizeof bad);
    return bad == 0;
}

}  // namespace invar::cuda
