// ColumnPlan: how a GPU's sums down the columns of [outer, rows, columns] are cut into blocks. By sizes alone: the same
// bits on every run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace invar {

struct ColumnPlan {
    static constexpr int kThreads = 256, kWarp = 32;

    std::int64_t outer, rows, columns;
    int across;  // threads side by side on a row of a block, each with one pack; a power of two
    std::int64_t column_blocks, rows_each, chunks;

    ColumnPlan(std::int64_t outer_, std::int64_t rows_, std::int64_t columns_, int width)
        : outer(outer_), rows(rows_), columns(columns_), across(1) {
        const auto parts = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
        const std::int64_t packs = parts(columns, width);
        while (across < kWarp && across < packs) across *= 2;
        column_blocks = parts(packs, across);
        // Enough blocks to fill a large GPU, but eight rows at least for each thread.
        const std::int64_t most = 528 / (outer * column_blocks), useful = rows / (8 * (kThreads / across));
        chunks = std::max<std::int64_t>(1, std::min(most, useful));
        rows_each = parts(rows, chunks);
        if (rows > 0) chunks = parts(rows, rows_each);
    }
    std::int64_t blocks() const { return outer * chunks * column_blocks; }

    // What the two stages keep between them, whichever width packs have; 0: one stage does.
    static std::size_t scratch_bytes(std::int64_t outer, std::int64_t rows, std::int64_t columns, int kinds) {
        std::size_t most = 0;
        for (const int width : {1, 4, 8}) {
            const ColumnPlan plan(outer, rows, columns, width);
            if (plan.chunks > 1)
                most = std::max(most, std::size_t(outer * plan.chunks * kinds * columns) * sizeof(double));
        }
        return most;
    }
};

}  // namespace invar
