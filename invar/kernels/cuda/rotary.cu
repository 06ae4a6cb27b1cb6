// Rotary positions: a thread has a pack of each half of a head, turns the pairs across them or copies them as they are.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/vector.cuh"

namespace invar::cuda {
namespace {

struct Place {
    const std::int64_t* positions;
    std::int64_t given;  // how many there are; they repeat
    std::int64_t held;   // rows of the table
};

// The row of the table for a row of x; -1 where it holds none.
__device__ inline std::int64_t table_row(const RotarySpec& s, const Place& p, std::int64_t row) {
    const std::int64_t at =
        p.positions != nullptr ? p.positions[divide(row, p.given).rest] : divide(row, s.length).rest;
    const std::int64_t place = at + s.offset;
    return place >= 0 && place < p.held ? place : -1;
}

// Heads of whole packs, all of whose width is turned, and a table of f32.
template <class T>
__global__ __launch_bounds__(kThreads) void rotary_packs(const RotarySpec s, const T* x, const float* table,
                                                         const Place p, T* y) {
    constexpr int kWidth = kPack<T>;
    const int half = int(s.turned / 2), pairs = half / kWidth;
    const std::int64_t count = s.rows * s.heads * pairs;
    for (std::int64_t item = global_thread(); item < count; item += grid_threads()) {
        const Quotient by_pair = divide(item, pairs), by_head = divide(by_pair.whole, s.heads);
        const std::int64_t row = by_head.whole, head = by_head.rest, column = by_pair.rest * kWidth;
        const std::int64_t at = (row * s.heads + head) * s.width + column;
        Pack<T, kWidth> first, second;
        first.read(x + at);
        second.read(x + at + half);
        if (head < s.rotated) {
            const std::int64_t place = table_row(s, p, row);
            Pack<float, kWidth> packed;
            float cosines[kWidth], sines[kWidth], a[kWidth], b[kWidth];
            const float* angles = table + (place < 0 ? 0 : place) * s.turned + column;
            packed.read(angles);
            packed.unpack(cosines);
            packed.read(angles + half);
            packed.unpack(sines);
            first.unpack(a);
            second.unpack(b);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
                const float c = place < 0 ? NAN : cosines[k], d = s.back ? -sines[k] : sines[k], u = a[k];
                a[k] = u * c - b[k] * d;
                b[k] = b[k] * c + u * d;
            }
            first.pack(a);
            second.pack(b);
        }
        first.write(y + at);
        second.write(y + at + half);
    }
}

template <class C>
__global__ __launch_bounds__(kThreads) void rotary_any(const RotarySpec s, const Dense x, const Dense table,
                                                       const Place p, const Dense y) {
    const std::int64_t half = s.turned / 2, count = s.rows * s.heads * s.width;
    for (std::int64_t item = global_thread(); item < count; item += grid_threads()) {
        const Quotient by_head = divide(item, s.width), by_row = divide(by_head.whole, s.heads);
        const std::int64_t column = by_head.rest;
        C v = x.get<C>(item);
        if (by_row.rest < s.rotated && column < s.turned) {
            const std::int64_t place = table_row(s, p, by_row.whole);
            const bool lower = column < half;
            const std::int64_t pair = lower ? column : column - half;
            const C c = place < 0 ? C(NAN) : table.get<C>(place * s.turned + pair);
            const C d = place < 0 ? C(NAN) : table.get<C>(place * s.turned + half + pair);
            const C other = x.get<C>(lower ? item + half : item - half);
            v = v * c + (lower == s.back ? d : -d) * other;
        }
        y.put<C>(item, v);
    }
}

}  // namespace

void CudaKernels::rotary(const RotarySpec& spec, const View& x, const View& table, const View& positions,
                         const View& y) {
    const Launch stream("rotary");
    const std::int64_t count = spec.rows * spec.heads * spec.width;
    if (count == 0) return;
    const Place place{positions ? positions.as<const std::int64_t>() : nullptr, positions ? positions.numel() : 1,
                      table.size[0]};
    const std::int64_t width = std::int64_t(16 / size_of(x.dtype));
    const bool packs = spec.turned == spec.width && spec.turned % (2 * width) == 0 && table.dtype == Dtype::f32 &&
                       place.held > 0 && aligned(x.data) && aligned(y.data) && aligned(table.data);
    if (packs && with_fast_type(x.dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            const unsigned blocks = grid_for(count / (2 * width), kThreads);
            rotary_packs<T>
                <<<blocks, kThreads, 0, stream>>>(spec, x.as<const T>(), table.as<const float>(), place, y.as<T>());
        }))
        return;
    if (needs_double(x.dtype))
        rotary_any<double><<<grid_for(count, kThreads), kThreads, 0, stream>>>(spec, x, table, place, y);
    else
        rotary_any<float><<<grid_for(count, kThreads), kThreads, 0, stream>>>(spec, x, table, place, y);
}

}  // namespace invar::cuda
