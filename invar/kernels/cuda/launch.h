// The CUDA kernels as plain functions, one for each method of the Kernels interface that is not a library call.
// All are asynchronous on `stream`, allocate nothing and can be captured in a graph; views hold device pointers.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "invar/core/rng.h"
#include "invar/core/view.h"
#include "invar/kernels/pointwise.h"
#include "invar/kernels/specs.h"
#include "invar/kernels/step.h"

namespace invar::cuda {

// Where a function takes `scratch`, it is device memory, aligned to 256 bytes, of at least X_scratch_bytes(same
// arguments) bytes; nullptr will do where that is 0. Its contents are free again once the launch has run.
// Launch errors are left for the caller to take with cudaGetLastError.

// --- moving and making values ---
void copy(const View& from, const View& to, cudaStream_t stream);
void fill(const View& out, double value, cudaStream_t stream);
void uniform(const View& out, double low, double high, RngState rng, cudaStream_t stream);
void normal(const View& out, double mean, double deviation, RngState rng, cudaStream_t stream);
// *found becomes 1 where some value is not finite, else 0; the host reads it when it likes.
void find_nonfinite(const View& x, std::int32_t* found, cudaStream_t stream);

// --- pointwise ---
void unary(UnaryOp op, const View& x, const View& y, Scalars scalars, cudaStream_t stream);
void unary_backward(UnaryOp op, const View& gy, const View& saved, const View& gx, Scalars scalars,
                    cudaStream_t stream);
void binary(BinaryOp op, const View& a, const View& b, const View& y, Scalars scalars, cudaStream_t stream);
void binary_backward(BinaryOp op, const View& gy, const View& a, const View& b, const View& ga, const View& gb,
                     Scalars scalars, cudaStream_t stream);
void where(const View& condition, const View& a, const View& b, const View& y, cudaStream_t stream);
void add_into(const View& x, const View& y, cudaStream_t stream);
void dropout(const View& x, const View& y, double p, RngState rng, cudaStream_t stream);
// For graphs: the numbers start at rng.offset + *base, read when the kernel runs, so that each replay draws its own.
void dropout(const View& x, const View& y, double p, RngState rng, const std::uint64_t* base, cudaStream_t stream);
// *counter += by: moves `base` on at the end of a captured step.
void advance(std::uint64_t* counter, std::uint64_t by, cudaStream_t stream);

// gx = gy times the activation's derivative at `saved`, and gb (+)= its sums over rows; gb is there.
std::size_t activation_backward_scratch_bytes(const View& gy, const View& gb);
void activation_backward(Activation activation, const View& gy, const View& saved, const View& gx, const View& gb,
                         bool accumulate, void* scratch, cudaStream_t stream);

// --- windows ---
void max_pool(const PoolSpec& spec, const View& x, const View& y, const View& winners, cudaStream_t stream);
void max_pool_backward(const PoolSpec& spec, const View& gy, const View& winners, const View& gx, cudaStream_t stream);
void avg_pool(const PoolSpec& spec, const View& x, const View& y, cudaStream_t stream);
void avg_pool_backward(const PoolSpec& spec, const View& gy, const View& gx, cudaStream_t stream);
void upsample(const UpsampleSpec& spec, const View& x, const View& y, cudaStream_t stream);
void upsample_backward(const UpsampleSpec& spec, const View& gy, const View& gx, cudaStream_t stream);

// --- reductions ---
std::size_t sum_scratch_bytes(const Span3& span);
void sum(const Span3& span, const View& x, const View& y, double divisor, bool accumulate, void* scratch,
         cudaStream_t stream);
std::size_t max_scratch_bytes(const Span3& span);
void max(const Span3& span, const View& x, const View& y, const View& index, void* scratch, cudaStream_t stream);
void softmax(const Span3& span, const View& x, const View& y, bool log, cudaStream_t stream);
void softmax_backward(const Span3& span, const View& gy, const View& y, const View& gx, bool log, cudaStream_t stream);
void cross_entropy(const CrossEntropySpec& spec, const View& logits, const View& target, const View& losses,
                   const View& kept, cudaStream_t stream);
void cross_entropy_backward(const CrossEntropySpec& spec, const View& logits, const View& target, const View& kept,
                            const View& glosses, const View& count, const View& glogits, cudaStream_t stream);
void mean_loss(const View& losses, const View& target, std::int64_t ignore_index, const View& mean, const View& count,
               cudaStream_t stream);

// --- normalisation ---
void layer_norm(const View& x, const View& gamma, const View& beta, const View& y, const View& mean, const View& rstd,
                double eps, cudaStream_t stream);
std::size_t layer_norm_backward_scratch_bytes(const View& x);
void layer_norm_backward(const View& gy, const View& x, const View& gamma, const View& mean, const View& rstd,
                         const View& gx, const View& ggamma, const View& gbeta, void* scratch, cudaStream_t stream);
std::size_t batch_norm_stats_scratch_bytes(const View& x);
void batch_norm_stats(const View& x, const View& mean, const View& variance, void* scratch, cudaStream_t stream);
void batch_norm(const View& x, const View& mean, const View& rstd, const View& gamma, const View& beta, const View& y,
                cudaStream_t stream);
std::size_t batch_norm_backward_scratch_bytes(const View& x);
void batch_norm_backward(const View& gy, const View& x, const View& mean, const View& rstd, const View& gamma,
                         const View& gx, const View& ggamma, const View& gbeta, bool batch_statistics, void* scratch,
                         cudaStream_t stream);

// --- indexing ---
void embedding(const View& table, const View& ids, const View& y, cudaStream_t stream);
std::size_t embedding_backward_scratch_bytes(const View& gy, const View& ids);
void embedding_backward(const View& gy, const View& ids, const View& gtable, void* scratch, cudaStream_t stream);
void gather(const Span3& span, std::int64_t picks, const View& x, const View& index, const View& y,
            cudaStream_t stream);
std::size_t scatter_add_scratch_bytes(const Span3& span, std::int64_t picks);
void scatter_add(const Span3& span, std::int64_t picks, const View& gy, const View& index, const View& gx,
                 void* scratch, cudaStream_t stream);

// --- the optimizer: states are device memory ---
std::size_t grad_stats_scratch_bytes(const View& gradients);
void grad_stats(const View& gradients, StepState* state, const View& loss, void* scratch, cudaStream_t stream);
std::size_t segment_stats_scratch_bytes(std::span<const Segment> segments);
void segment_stats(const View& gradients, std::span<const Segment> segments, StepState* states, void* scratch,
                   cudaStream_t stream);
void plan(StepState* state, const ScaleState* scale, const ClipSpec& clip, const ScheduleSpec& schedule,
          cudaStream_t stream);
// Segments and groups are host memory and travel as kernel arguments: they may be gone when this returns.
void optimizer_step(const FlatStore& store, std::span<const Segment> segments, std::span<const OptimizerSpec> groups,
                    const StepState* state, cudaStream_t stream);
// *drawn += by, where it is not nullptr: as advance(), without a launch of its own.
void conclude(const StepEnd& end, const View& loss, std::uint64_t* drawn, std::uint64_t by, cudaStream_t stream);
void scale_gradients(const View& gradients, float factor, float limit, cudaStream_t stream);

}  // namespace invar::cuda
