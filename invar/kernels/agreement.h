// What ranks tell each other of a step, and what all of them make of it: written once, for a host that gathers it and for
// a device that does so by itself. Added up in rank order, so that every rank decides the same, and to the bit.
#pragma once

#include "invar/kernels/step.h"

namespace invar {

// Where a piece of a rank's share lies in the flat arrays, and in arrays that hold the share alone.
struct SharePiece {
    std::int64_t begin, count, share;
};

// Where the element at `place` of a share lies in the flat arrays; -1: nowhere.
INVAR_HD inline std::int64_t flat_place(std::int64_t place, const SharePiece* pieces, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
        if (place >= pieces[i].share && place < pieces[i].share + pieces[i].count)
            return pieces[i].begin + (place - pieces[i].share);
    return -1;
}

struct RankFindings {
    double squares, largest, loss;
    std::int64_t nonfinite, first;  // where in the flat arrays the first value is that is not finite; -1: nowhere
    std::int32_t first_rank;        // whose part of that was not; -1: nobody's
    std::int32_t bad_loss, stop, padding;
};

INVAR_HD inline RankFindings findings_of(const StepState& state, double loss, std::int32_t first_rank,
                                         const SharePiece* pieces, std::int64_t count) {
    RankFindings mine{state.sum_squares, state.max_abs, loss, state.nonfinite, -1, first_rank, state.bad_loss, 0, 0};
    if (state.nonfinite > 0) mine.first = flat_place(state.first_nonfinite, pieces, count);
    return mine;
}

// Returns the loss of all.
INVAR_HD inline double agree_on(const RankFindings* all, int ranks, StepState& state) {
    state.sum_squares = 0.0, state.max_abs = 0.0, state.nonfinite = 0, state.first_nonfinite = -1, state.bad_loss = 0;
    state.bad_rank = -1;
    double loss = 0.0;
    for (int r = 0; r < ranks; ++r) {
        const RankFindings& each = all[r];
        state.sum_squares += each.squares;
        if (state.max_abs < each.largest) state.max_abs = each.largest;
        state.nonfinite += each.nonfinite;
        loss += each.loss;
        if (each.first >= 0 && (state.first_nonfinite < 0 || each.first < state.first_nonfinite))
            state.first_nonfinite = each.first, state.bad_rank = each.first_rank;
    }
    for (int r = ranks; r-- > 0;)
        if (all[r].bad_loss) state.bad_loss = 1, state.bad_rank = r;
    return loss;
}

}  // namespace invar
