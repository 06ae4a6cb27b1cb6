// Rotary positions: pairs across the halves of a head's width are turned by the angles of the row's position.
#include <limits>

#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {
namespace {

template <class C>
void turn(const RotarySpec& s, const View& x, const View& table, const View& positions, const View& y) {
    const std::int64_t row_size = s.heads * s.width, half = s.turned / 2, held = table.size[0];
    const std::int64_t given = positions ? positions.numel() : 1;
    ThreadRows<C> scratch(2 * row_size + s.turned);
    parallel_for(s.rows, s.rows * row_size, [&](std::int64_t row) {
        C* buffer = scratch.mine();
        const C* v = load(byte_at(x.data, x.dtype, row * row_size), x.dtype, 1, row_size, buffer);
        void* to = byte_at(y.data, y.dtype, row * row_size);
        C* out = target(to, y.dtype, 1, buffer + row_size);
        const std::int64_t at = positions ? positions.as<const std::int64_t>()[row % given] : row % s.length;
        const std::int64_t place = at + s.offset;
        C* angles = buffer + 2 * row_size;
        if (place >= 0 && place < held) {
            const C* loaded =
                load(byte_at(table.data, table.dtype, place * s.turned), table.dtype, 1, s.turned, angles);
            if (loaded != angles) std::copy_n(loaded, s.turned, angles);
        } else {
            std::fill_n(angles, s.turned, std::numeric_limits<C>::quiet_NaN());
        }
        if (s.back)
            for (std::int64_t i = half; i < s.turned; ++i) angles[i] = -angles[i];
        for (std::int64_t head = 0; head < s.rotated; ++head) {
            const C *a = v + head * s.width, *b = a + half, *cosines = angles, *sines = angles + half;
            C *u = out + head * s.width, *w = u + half;
            for (std::int64_t i = 0; i < half; ++i) {
                const C first = a[i] * cosines[i] - b[i] * sines[i], second = b[i] * cosines[i] + a[i] * sines[i];
                u[i] = first;
                w[i] = second;
            }
            std::copy(a + s.turned, a + s.width, u + s.turned);
        }
        std::copy(v + s.rotated * s.width, v + row_size, out + s.rotated * s.width);
        store(out, to, y.dtype, 1, row_size);
    });
}

}  // namespace

void CpuKernels::rotary(const RotarySpec& spec, const View& x, const View& table, const View& positions,
                        const View& y) {
    if (spec.rows * spec.heads * spec.width == 0) return;
    compute_as(x.dtype, [&](auto tag) { turn<typename decltype(tag)::type>(spec, x, table, positions, y); });
}

}  // namespace invar::INVAR_ISA
