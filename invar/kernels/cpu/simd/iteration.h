// Walks several views of one shape together, in the order in which the last one, the output, lies in memory: dimensions
// that are dense in all of them are merged, and the work is cut into blocks of one row that threads share.
#pragma once

#include <algorithm>
#include <array>

#include "invar/kernels/cpu/simd/rows.h"

namespace invar::INVAR_ISA {

template <int N>
struct Iteration {
    int rank = 0;
    std::array<std::int64_t, View::kRank> size{};
    std::array<std::array<std::int64_t, View::kRank>, N> stride{};

    // Views after the first may be absent (no data); they take part with stride 0.
    explicit Iteration(const std::array<const View*, N>& views) {
        const View& shaped = *views[0];
        const View& out = *views[N - 1] ? *views[N - 1] : shaped;
        std::array<int, View::kRank> order{};
        for (int i = 0; i < shaped.rank; ++i) order[i] = shaped.rank - 1 - i;
        std::stable_sort(order.begin(), order.begin() + shaped.rank,
                         [&](int a, int b) { return out.stride[a] < out.stride[b]; });
        for (int i = 0; i < shaped.rank; ++i) {
            const int d = order[i];
            if (shaped.size[d] == 1) continue;
            std::array<std::int64_t, N> step{};
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

    // Calls f(offsets, n) for every block: offsets are in elements, one a view; n elements follow at stride[k][0].
    template <class F>
    void for_blocks(F&& f) const {
        std::int64_t rows = 1;
        for (int d = 1; d < rank; ++d) rows *= size[d];
        const std::int64_t blocks = (size[0] + kBlock - 1) / kBlock;
        const std::int64_t total = rows * blocks;
#pragma omp parallel for schedule(static) if (rows * size[0] > 4 * kBlock)
        for (std::int64_t unit = 0; unit < total; ++unit) {
            const std::int64_t begin = unit % blocks * kBlock;
            std::array<std::int64_t, N> offset{};
            std::int64_t row = unit / blocks;
            for (int d = 1; d < rank; ++d) {
                const std::int64_t at = row % size[d];
                row /= size[d];
                for (int k = 0; k < N; ++k) offset[k] += at * stride[k][d];
            }
            for (int k = 0; k < N; ++k) offset[k] += begin * stride[k][0];
            f(offset, std::min(kBlock, size[0] - begin));
        }
    }
};

}  // namespace invar::INVAR_ISA
