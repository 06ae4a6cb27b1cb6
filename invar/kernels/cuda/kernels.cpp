#include "invar/kernels/cuda/kernels.h"

#include "invar/core/error.h"
#include "invar/kernels/cuda/conv.h"
#include "invar/kernels/cuda/copies.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/products.h"
#include "invar/kernels/cuda/recording.h"

namespace invar::cuda {

namespace {

// A launch that was refused is reported by the call that made it, not by a later one.
void launched(const char* what) {
    check_call(cudaGetLastError(), what);
}

}  // namespace

void CudaKernels::configure(const KernelOptions& options) {
    set_options(options);
}
std::string CudaKernels::description() const {
    return cuda::description();
}
std::int64_t CudaKernels::memory_used() const {
    return cuda::memory_used();
}

void CudaKernels::copy(const View& from, const View& to) {
    cuda::copy(from, to, stream());
    launched("copy");
}
// Memory that is not pinned is staged before this returns, so the caller may let go of it.
void CudaKernels::upload(void* device, const void* host, std::size_t bytes) {
    refuse_recording("a copy of the host's memory");
    if (bytes > 0) INVAR_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream()));
}
void CudaKernels::download(void* host, const void* device, std::size_t bytes) {
    copy_to_host(Device::cuda(), host, device, bytes);
}
void CudaKernels::fill(const View& out, double value) {
    cuda::fill(out, value, stream());
    launched("fill");
}
void CudaKernels::uniform(const View& out, double low, double high, RngState rng) {
    refuse_recording("fresh random tensors");
    cuda::uniform(out, low, high, rng, stream());
    launched("uniform");
}
void CudaKernels::normal(const View& out, double mean, double deviation, RngState rng) {
    refuse_recording("fresh random tensors");
    cuda::normal(out, mean, deviation, rng, stream());
    launched("normal");
}
bool CudaKernels::all_finite(const View& x) {
    const Scratch found(sizeof(std::int32_t));
    find_nonfinite(x, static_cast<std::int32_t*>(found.data()), stream());
    launched("all_finite");
    std::int32_t bad = 0;
    download(&bad, found.data(), sizeof bad);
    return bad == 0;
}

void CudaKernels::unary(UnaryOp op, const View& x, const View& y, Scalars scalars) {
    cuda::unary(op, x, y, scalars, stream());
    launched("unary");
}
void CudaKernels::unary_backward(UnaryOp op, const View& gy, const View& saved, const View& gx, Scalars scalars) {
    cuda::unary_backward(op, gy, saved, gx, scalars, stream());
    launched("unary_backward");
}
void CudaKernels::binary(BinaryOp op, const View& a, const View& b, const View& y, Scalars scalars) {
    cuda::binary(op, a, b, y, scalars, stream());
    launched("binary");
}
void CudaKernels::binary_backward(BinaryOp op, const View& gy, const View& a, const View& b, const View& ga,
                                  const View& gb, Scalars scalars) {
    cuda::binary_backward(op, gy, a, b, ga, gb, scalars, stream());
    launched("binary_backward");
}
void CudaKernels::where(const View& condition, const View& a, const View& b, const View& y) {
    cuda::where(condition, a, b, y, stream());
    launched("where");
}
void CudaKernels::dropout(const View& x, const View& y, double p, RngState rng) {
    if (const RecordedRandom* random = recorded_random())
        cuda::dropout(x, y, p, random->from_counter(rng), random->counter(), stream());
    else
        cuda::dropout(x, y, p, rng, stream());
    launched("dropout");
}
void CudaKernels::add_into(const View& x, const View& y) {
    cuda::add_into(x, y, stream());
    launched("add_into");
}

void CudaKernels::matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) {
    cuda::matmul(a, b, bias, out, accumulate);
    launched("matmul");
}
void CudaKernels::matmul_with(const Epilogue& epilogue, const View& a, const View& b, const View& out,
                              bool accumulate) {
    if (!cuda::matmul_with(epilogue, a, b, out, accumulate))
        return Kernels::matmul_with(epilogue, a, b, out, accumulate);
    launched("matmul_with");
}
void CudaKernels::activation_backward(Activation activation, const View& gy, const View& saved, const View& gx,
                                      const View& gb, bool accumulate) {
    if (!gb) return Kernels::activation_backward(activation, gy, saved, gx, gb, accumulate);
    const Scratch scratch(activation_backward_scratch_bytes(gy, gb));
    cuda::activation_backward(activation, gy, saved, gx, gb, accumulate, scratch.data(), stream());
    launched("activation_backward");
}
void CudaKernels::conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) {
    cuda::conv_forward(spec, x, w, bias, y);
    launched("conv_forward");
}
void CudaKernels::conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx,
                                const View& gw, const View& gb, bool accumulate, const View& y) {
    cuda::conv_backward(spec, x, w, gy, gx, gw, gb, accumulate, y);
    launched("conv_backward");
}

void CudaKernels::max_pool(const PoolSpec& spec, const View& x, const View& y, const View& winners) {
    cuda::max_pool(spec, x, y, winners, stream());
    launched("max_pool");
}
void CudaKernels::max_pool_backward(const PoolSpec& spec, const View& gy, const View& winners, const View& gx) {
    cuda::max_pool_backward(spec, gy, winners, gx, stream());
    launched("max_pool_backward");
}
void CudaKernels::avg_pool(const PoolSpec& spec, const View& x, const View& y) {
    cuda::avg_pool(spec, x, y, stream());
    launched("avg_pool");
}
void CudaKernels::avg_pool_backward(const PoolSpec& spec, const View& gy, const View& gx) {
    cuda::avg_pool_backward(spec, gy, gx, stream());
    launched("avg_pool_backward");
}
void CudaKernels::upsample(const UpsampleSpec& spec, const View& x, const View& y) {
    cuda::upsample(spec, x, y, stream());
    launched("upsample");
}
void CudaKernels::upsample_backward(const UpsampleSpec& spec, const View& gy, const View& gx) {
    cuda::upsample_backward(spec, gy, gx, stream());
    launched("upsample_backward");
}

void CudaKernels::sum(const Span3& span, const View& x, const View& y, double divisor, bool accumulate) {
    const Scratch scratch(sum_scratch_bytes(span));
    cuda::sum(span, x, y, divisor, accumulate, scratch.data(), stream());
    launched("sum");
}
void CudaKernels::max(const Span3& span, const View& x, const View& y, const View& index) {
    const Scratch scratch(max_scratch_bytes(span));
    cuda::max(span, x, y, index, scratch.data(), stream());
    launched("max");
}
void CudaKernels::softmax(const Span3& span, const View& x, const View& y, bool log) {
    cuda::softmax(span, x, y, log, stream());
    launched("softmax");
}
void CudaKernels::softmax_backward(const Span3& span, const View& gy, const View& y, const View& gx, bool log) {
    cuda::softmax_backward(span, gy, y, gx, log, stream());
    launched("softmax_backward");
}
void CudaKernels::cross_entropy(const CrossEntropySpec& spec, const View& logits, const View& target,
                                const View& losses, const View& kept) {
    cuda::cross_entropy(spec, logits, target, losses, kept, stream());
    launched("cross_entropy");
}
void CudaKernels::cross_entropy_backward(const CrossEntropySpec& spec, const View& logits, const View& target,
                                         const View& kept, const View& glosses, const View& count,
                                         const View& glogits) {
    cuda::cross_entropy_backward(spec, logits, target, kept, glosses, count, glogits, stream());
    launched("cross_entropy_backward");
}
void CudaKernels::mean_loss(const View& losses, const View& target, std::int64_t ignore_index, const View& mean,
                            const View& count) {
    cuda::mean_loss(losses, target, ignore_index, mean, count, stream());
    launched("mean_loss");
}

void CudaKernels::layer_norm(const View& x, const View& gamma, const View& beta, const View& y, const View& mean,
                             const View& rstd, double eps) {
    cuda::layer_norm(x, gamma, beta, y, mean, rstd, eps, stream());
    launched("layer_norm");
}
void CudaKernels::layer_norm_backward(const View& gy, const View& x, const View& gamma, const View& mean,
                                      const View& rstd, const View& gx, const View& ggamma, const View& gbeta) {
    const Scratch scratch(layer_norm_backward_scratch_bytes(x));
    cuda::layer_norm_backward(gy, x, gamma, mean, rstd, gx, ggamma, gbeta, scratch.data(), stream());
    launched("layer_norm_backward");
}
void CudaKernels::batch_norm_stats(const View& x, const View& mean, const View& variance) {
    const Scratch scratch(batch_norm_stats_scratch_bytes(x));
    cuda::batch_norm_stats(x, mean, variance, scratch.data(), stream());
    launched("batch_norm_stats");
}
void CudaKernels::batch_norm(const View& x, const View& mean, const View& rstd, const View& gamma, const View& beta,
                             const View& y) {
    cuda::batch_norm(x, mean, rstd, gamma, beta, y, stream());
    launched("batch_norm");
}
void CudaKernels::batch_norm_backward(const View& gy, const View& x, const View& mean, const View& rstd,
                                      const View& gamma, const View& gx, const View& ggamma, const View& gbeta,
                                      bool batch_statistics) {
    const Scratch scratch(batch_norm_backward_scratch_bytes(x));
    cuda::batch_norm_backward(gy, x, mean, rstd, gamma, gx, ggamma, gbeta, batch_statistics, scratch.data(), stream());
    launched("batch_norm_backward");
}

void CudaKernels::embedding(const View& table, const View& ids, const View& y) {
    cuda::embedding(table, ids, y, stream());
    launched("embedding");
}
void CudaKernels::embedding_backward(const View& gy, const View& ids, const View& gtable) {
    const Scratch scratch(embedding_backward_scratch_bytes(gy, ids));
    cuda::embedding_backward(gy, ids, gtable, scratch.data(), stream());
    launched("embedding_backward");
}
void CudaKernels::gather(const Span3& span, std::int64_t picks, const View& x, const View& index, const View& y) {
    cuda::gather(span, picks, x, index, y, stream());
    launched("gather");
}
void CudaKernels::scatter_add(const Span3& span, std::int64_t picks, const View& gy, const View& index,
                              const View& gx) {
    const Scratch scratch(scatter_add_scratch_bytes(span, picks));
    cuda::scatter_add(span, picks, gy, index, gx, scratch.data(), stream());
    launched("scatter_add");
}

void CudaKernels::segment_stats(const View& gradients, std::span<const Segment> segments, StepState* states) {
    const Scratch scratch(segment_stats_scratch_bytes(segments));
    cuda::segment_stats(gradients, segments, states, scratch.data(), stream());
    launched("segment_stats");
}

void CudaKernels::grad_stats(const View& gradients, StepState* state, const View& loss) {
    const Scratch scratch(grad_stats_scratch_bytes(gradients));
    cuda::grad_stats(gradients, state, loss, scratch.data(), stream());
    launched("grad_stats");
}
void CudaKernels::plan(StepState* state, const ScaleState* scale, const ClipSpec& clip, const ScheduleSpec& schedule) {
    cuda::plan(state, scale, clip, schedule, stream());
    launched("plan");
}
void CudaKernels::optimizer_step(const FlatStore& store, std::span<const Segment> segments,
                                 std::span<const OptimizerSpec> groups, const StepState* state) {
    cuda::optimizer_step(store, segments, groups, state, stream());
    launched("optimizer_step");
}
void CudaKernels::conclude(const StepEnd& end, const View& loss) {
    RecordedRandom* const random = recorded_random();
    cuda::conclude(end, loss, random ? random->counter() : nullptr, random ? random->take_drawn() : 0, stream());
    launched("conclude");
}
void CudaKernels::scale_gradients(const View& gradients, float factor, float limit) {
    cuda::scale_gradients(gradients, factor, limit, stream());
    launched("scale_gradients");
}

void CudaKernels::synchronize() {
    invar::synchronize(Device::cuda());
}

bool CudaKernels::idle() {
    const cudaError_t status = cudaStreamQuery(stream());
    if (status == cudaErrorNotReady) return false;
    check_call(status, "what the device was given");
    return true;
}
std::unique_ptr<Recording> CudaKernels::record(const MemoryPool& pool, const std::function<void()>& work) {
    return cuda::record(pool, work);
}
std::unique_ptr<RawMemory> CudaKernels::host_memory() {
    return pinned_memory();
}
std::unique_ptr<CopyQueue> CudaKernels::copy_queue() {
    return cuda::copy_queue();
}

Kernels& kernels() {
    static auto* const kernels = new CudaKernels;  // never destroyed: the driver may be gone before our statics are
    return *kernels;
}

}  // namespace invar::cuda
