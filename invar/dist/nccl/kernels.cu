#include "invar/dist/nccl/kernels.h"
#include "invar/dist/rank_sum.h"

namespace invar::nccl {

namespace {

constexpr unsigned kThreads = 256, kMaxBlocks = 1024;  // few enough to leave room for what is computed meanwhile

unsigned blocks_for(std::int64_t count) {
    const std::int64_t blocks = (count + kThreads - 1) / kThreads;
    return blocks < 1 ? 1u : blocks < kMaxBlocks ? unsigned(blocks) : kMaxBlocks;
}

__device__ std::int64_t first_element() {
    return std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::int64_t stride() {
    return std::int64_t(gridDim.x) * blockDim.x;
}

// One writer each, one exchange after the other.
__device__ void count_up(std::uint64_t* mark) {
    volatile std::uint64_t* const value = mark;
    *value = *value + 1;
    __threadfence_system();
}

__global__ void mark_kernel(std::uint64_t* mark) {
    count_up(mark);
}

__global__ void round_kernel(const float* from, std::uint16_t* to, std::int64_t count) {
    for (std::int64_t i = first_element(); i < count; i += stride()) to[i] = to_bf16_bits(from[i]);
}

__device__ float part_of(const RankSum& sum, int rank, std::int64_t i) {
    if (rank == sum.rank) return sum.bf16 ? from_bf16_bits(to_bf16_bits(sum.own[i])) : sum.own[i];
    const std::int64_t at = std::int64_t(rank < sum.rank ? rank : rank - 1) * sum.count + i;
    return sum.bf16 ? from_bf16_bits(static_cast<const std::uint16_t*>(sum.others)[at])
                    : static_cast<const float*>(sum.others)[at];
}

__global__ void sum_kernel(const RankSum sum) {
    if (sum.marks != nullptr && first_element() == 0) count_up(&sum.marks->left);
    for (std::int64_t i = first_element(); i < sum.count; i += stride()) {
        float total = part_of(sum, 0, i);
        for (int r = 1; r < sum.ranks; ++r) total += part_of(sum, r, i);
        if (sum.key != nullptr && is_bad(total)) {
            int whose = -1;
            for (int r = sum.ranks; r-- > 0;)
                if (is_bad(part_of(sum, r, i))) whose = r;
            atomicMin(reinterpret_cast<unsigned long long*>(sum.key),
                      static_cast<unsigned long long>(FindingKey::of(sum.round, sum.place + i, whose)));
        }
        sum.share[i] = total;  // last: it may lie where this rank's part was
    }
}

__global__ void tell_kernel(const StepState* state, const double* loss, const std::uint64_t* key,
                            const SharePiece* pieces, std::int64_t count, RankFindings* mine) {
    *mine = findings_of(*state, loss != nullptr ? *loss : 0.0, FindingKey::rank(*key), pieces, count);
}

__global__ void agree_kernel(const RankFindings* all, int ranks, StepState* state, double* whole_loss) {
    const double loss = agree_on(all, ranks, *state);
    if (whole_loss != nullptr) *whole_loss = loss;
}

}  // namespace

void mark_entered(Marks* marks, cudaStream_t stream) {
    mark_kernel<<<1, 1, 0, stream>>>(&marks->entered);
}

void mark_left(Marks* marks, cudaStream_t stream) {
    mark_kernel<<<1, 1, 0, stream>>>(&marks->left);
}

void round_to_bf16(const float* from, std::uint16_t* to, std::int64_t count, cudaStream_t stream) {
    round_kernel<<<blocks_for(count), kThreads, 0, stream>>>(from, to, count);
}

void sum_in_rank_order(const RankSum& sum, cudaStream_t stream) {
    sum_kernel<<<blocks_for(sum.count), kThreads, 0, stream>>>(sum);
}

void tell_findings(const StepState* state, const double* loss, const std::uint64_t* key, const SharePiece* pieces,
                   std::int64_t count, RankFindings* mine, cudaStream_t stream) {
    tell_kernel<<<1, 1, 0, stream>>>(state, loss, key, pieces, count, mine);
}

void agree(const RankFindings* all, int ranks, StepState* state, double* whole_loss, cudaStream_t stream) {
    agree_kernel<<<1, 1, 0, stream>>>(all, ranks, state, whole_loss);
}

}  // namespace invar::nccl
