// Kernels: what a device must be able to do, as one interface. A device is a folder below this one.
// Kernels check nothing: shapes and dtypes were checked by the op that calls them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "invar/core/device.h"
#include "invar/core/memory.h"
#include "invar/core/rng.h"
#include "invar/core/view.h"
#include "invar/kernels/pointwise.h"
#include "invar/kernels/specs.h"
#include "invar/kernels/step.h"

namespace invar {

// How a device that has several ways to compute the same thing chooses among them.
struct KernelOptions {
    bool benchmark = true;      // try them and keep the fastest ...
    bool deterministic = true;  // ... but only where the choice cannot change from run to run: same seed, same bytes
};

// Work that a device was shown once and can repeat as a whole, without the host going through it again.
class Recording {
  public:
    virtual ~Recording() = default;
    // Once more, with the values that its tensors hold now. Random numbers go on from where the default generator is,
    // and move it on, as if the host had done the work.
    virtual void replay() = 0;
    virtual std::int64_t parts() const = 0;  // kernels, copies and the like in it
};

// Copies to a device that run beside its computations.
class CopyQueue {
  public:
    virtual ~CopyQueue() = default;  // waits for its copies
    // Begins when everything given to the device so far is done; does not hold up what is given to it later.
    virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
    // Stands for all uploads so far. Tickets count up by one.
    virtual std::uint64_t ticket() = 0;
    virtual void join(std::uint64_t ticket) = 0;  // what is given to the device from now on waits for those uploads
    virtual bool done(std::uint64_t ticket) = 0;
    virtual void wait(std::uint64_t ticket) = 0;
};

class Kernels {
  public:
    virtual ~Kernels() = default;

    virtual void configure(const KernelOptions&) {}
    // What the device is, for start-up lines, and how many bytes of its memory are taken by anyone; 0: not known.
    virtual std::string description() const { return {}; }
    virtual std::int64_t memory_used() const { return 0; }

    // --- moving and making values ---
    virtual void copy(const View& from, const View& to) = 0;  // same shape, any dtypes and strides
    virtual void upload(void* device, const void* host, std::size_t bytes) = 0;
    virtual void download(void* host, const void* device, std::size_t bytes) = 0;
    virtual void fill(const View& out, double value) = 0;
    virtual void uniform(const View& out, double low, double high, RngState rng) = 0;
    virtual void normal(const View& out, double mean, double deviation, RngState rng) = 0;
    virtual bool all_finite(const View& x) = 0;

    // --- pointwise: operands of the output's shape, broadcast by zero strides ---
    virtual void unary(UnaryOp op, const View& x, const View& y, Scalars scalars) = 0;
    virtual void unary_backward(UnaryOp op, const View& gy, const View& saved, const View& gx, Scalars scalars) = 0;
    virtual void binary(BinaryOp op, const View& a, const View& b, const View& y, Scalars scalars) = 0;
    // Either of ga and gb may be absent; both have the output's shape, reduction to a broadcast operand comes after.
    virtual void binary_backward(BinaryOp op, const View& gy, const View& a, const View& b, const View& ga,
                                 const View& gb, Scalars scalars) = 0;
    virtual void where(const View& condition, const View& a, const View& b, const View& y) = 0;
    // Zeroes each element with probability p, scales the rest by 1/(1-p). The same call on the gradient is its
    // backward.
    virtual void dropout(const View& x, const View& y, double p, RngState rng) = 0;
    virtual void add_into(const View& x, const View& y) = 0;  // y += x, y contiguous f32 or x's dtype

    // --- products ---
    // out[b] = a[b] b[b] (+ bias over the last dimension) (+ out[b]); rank-3 views, any strides of which one is 1.
    virtual void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) = 0;
    // The same with an epilogue, and an activation's gradient with that of the bias before it (gb may be absent).
    // A device that has no better way does them in steps.
    virtual void matmul_with(const Epilogue& epilogue, const View& a, const View& b, const View& out, bool accumulate);
    virtual void activation_backward(Activation activation, const View& gy, const View& saved, const View& gx,
                                     const View& gb, bool accumulate);
    virtual void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) = 0;
    // Gradients that are absent are not computed; gw and gb are added into when `accumulate`. y is the forward result,
    // for a convolution with an activation.
    virtual void conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx,
                               const View& gw, const View& gb, bool accumulate, const View& y = {}) = 0;

    // --- windows ---
    virtual void max_pool(const PoolSpec& spec, const View& x, const View& y, const View& winners) = 0;
    virtual void max_pool_backward(const PoolSpec& spec, const View& gy, const View& winners, const View& gx) = 0;
    virtual void avg_pool(const PoolSpec& spec, const View& x, const View& y) = 0;
    virtual void avg_pool_backward(const PoolSpec& spec, const View& gy, const View& gx) = 0;
    virtual void upsample(const UpsampleSpec& spec, const View& x, const View& y) = 0;
    virtual void upsample_backward(const UpsampleSpec& spec, const View& gy, const View& gx) = 0;

    // --- reductions over the middle of [outer, n, inner], contiguous ---
    // The sum over n, divided: a mean that was multiplied by 1 / n would be rounded twice.
    virtual void sum(const Span3& span, const View& x, const View& y, double divisor, bool accumulate) = 0;
    virtual void max(const Span3& span, const View& x, const View& y,
                     const View& index) = 0;  // either output may be absent
    virtual void softmax(const Span3& span, const View& x, const View& y, bool log) = 0;
    virtual void softmax_backward(const Span3& span, const View& gy, const View& y, const View& gx, bool log) = 0;
    // Negative log-likelihood a row: losses f32 or f64 [rows]. What backward needs of each row, in `kept` [2, rows]:
    // its largest logit, and the sum of the exponentials of what the others are below it. Their logarithm, log-sum-exp,
    // would lose the digits of the sum behind those of a large logit.
    virtual void cross_entropy(const CrossEntropySpec& spec, const View& logits, const View& target, const View& losses,
                               const View& kept) = 0;
    // glosses: one a row, or one for all; divided by the scalar `count` where that is there.
    virtual void cross_entropy_backward(const CrossEntropySpec& spec, const View& logits, const View& target,
                                        const View& kept, const View& glosses, const View& count,
                                        const View& glogits) = 0;
    // The mean of the losses whose target is not `ignore_index`, and how many they are; scalars of the losses' dtype.
    virtual void mean_loss(const View& losses, const View& target, std::int64_t ignore_index, const View& mean,
                           const View& count) = 0;

    // --- normalisation: x as [rows, columns]; statistics in f32 (f64 for f64) ---
    virtual void layer_norm(const View& x, const View& gamma, const View& beta, const View& y, const View& mean,
                            const View& rstd, double eps) = 0;
    virtual void layer_norm_backward(const View& gy, const View& x, const View& gamma, const View& mean,
                                     const View& rstd, const View& gx, const View& ggamma, const View& gbeta) = 0;
    virtual void batch_norm_stats(const View& x, const View& mean,
                                  const View& variance) = 0;  // over rows; biased variance
    virtual void batch_norm(const View& x, const View& mean, const View& rstd, const View& gamma, const View& beta,
                            const View& y) = 0;
    // `batch_statistics`: mean and rstd came from this batch, so gradients flow through them too.
    virtual void batch_norm_backward(const View& gy, const View& x, const View& mean, const View& rstd,
                                     const View& gamma, const View& gx, const View& ggamma, const View& gbeta,
                                     bool batch_statistics) = 0;

    // --- indexing ---
    virtual void embedding(const View& table, const View& ids, const View& y) = 0;
    virtual void embedding_backward(const View& gy, const View& ids, const View& gtable) = 0;  // adds into gtable
    virtual void gather(const Span3& span, std::int64_t picks, const View& x, const View& index, const View& y) = 0;
    virtual void scatter_add(const Span3& span, std::int64_t picks, const View& gy, const View& index,
                             const View& gx) = 0;

    // --- the optimizer, over flat stores ---
    // Sum of squares, largest magnitude and count of non-finite values of the f32 gradients, into `state`.
    virtual void grad_stats(const View& gradients, StepState* state) = 0;
    // The same of each segment by itself, into states[0], states[1], ...
    virtual void segment_stats(const View& gradients, std::span<const Segment> segments, StepState* states);
    // grad_stats, and from them what the step does. `scale` is what the gradients are still multiplied by; nullptr
    // where they are not. `loss`, a scalar, may be absent; where it is not finite the step is skipped.
    virtual void plan(const View& gradients, StepState* state, const ScaleState* scale, const ClipSpec& clip,
                      const ScheduleSpec& schedule, const View& loss = {}) = 0;
    virtual void optimizer_step(const FlatStore& store, std::span<const Segment> segments,
                                std::span<const OptimizerSpec> groups, const StepState* state) = 0;
    // `loss`, a scalar, goes into the report; it may be absent where there is none.
    virtual void conclude(const StepEnd& end, const View& loss) = 0;
    // The explicit calls of people who write the step by hand: gradients *= factor, clamped to +-limit where limit > 0.
    virtual void scale_gradients(const View& gradients, float factor, float limit) = 0;

    // --- time: a device may be behind what it was given ---
    virtual void synchronize() = 0;
    // Whether all that was given is done; throws what went wrong.
    virtual bool idle() { return true; }
    // Has `work` recorded, and runs the recording for the first time. nullptr, with nothing done, on a device that is
    // never behind. Throws, with nothing run, where the work cannot be recorded, such as for an op that reads a value
    // back. What it allocates comes from `pool` and stays reserved while the pool lives.
    virtual std::unique_ptr<Recording> record(const MemoryPool& /*pool*/, const std::function<void()>& /*work*/) {
        return nullptr;
    }
    // Both nullptr where the device's memory is the host's: host memory for fast copies, which the device can also
    // write, and a queue for them.
    virtual std::unique_ptr<RawMemory> host_memory() { return nullptr; }
    virtual std::unique_ptr<CopyQueue> copy_queue() { return nullptr; }
};

// The kernels of a device; throws where the build or the machine has no such device.
Kernels& kernels_for(Device device);

// How many threads CPU kernels use. 0 asks for OMP_NUM_THREADS where it is set, otherwise for one per core that this
// process may use: those of its affinity, and no more than its control group has a quota for (threads.h).
void set_threads(int count);
int threads();
// What the CPU offers, for start-up lines: "AVX2, 16-bit widened to FP32" or "AMX, native BF16".
const char* cpu_description();

}  // namespace invar
