// What the GPU does itself in an exchange: rounds what travels, adds up in rank order, and agrees on a step.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "invar/kernels/agreement.h"

namespace invar::nccl {

// Exchanges that the device has come to, and that it has behind it; in host memory that it writes.
struct Marks {
    std::uint64_t entered = 0, left = 0;
};
void mark_entered(Marks* marks, cudaStream_t stream);
void mark_left(Marks* marks, cudaStream_t stream);

void round_to_bf16(const float* from, std::uint16_t* to, std::int64_t count, cudaStream_t stream);

// share[i] = the sum of all ranks' parts, the first rank's first. This rank's own lies apart from the others', which
// are one after the other, as f32 or bf16; own is f32, and rounded here where the others were.
struct RankSum {
    const float* own = nullptr;  // may be `share`
    const void* others = nullptr;
    float* share = nullptr;
    std::int64_t count = 0;
    int rank = 0, ranks = 1;
    bool bf16 = false;
    std::uint64_t* key = nullptr;  // of a FindingKey; nullptr: nobody asks
    std::int64_t place = 0;        // of share[0]
    int round = 0;
    Marks* marks = nullptr;  // left behind when this begins
};
void sum_in_rank_order(const RankSum& sum, cudaStream_t stream);

// What this rank found, to be told to all; then what all make of it.
void tell_findings(const StepState* state, const double* loss, const std::uint64_t* key, const SharePiece* pieces,
                   std::int64_t count, RankFindings* mine, cudaStream_t stream);
void agree(const RankFindings* all, int ranks, StepState* state, double* whole_loss, cudaStream_t stream);

}  // namespace invar::nccl
