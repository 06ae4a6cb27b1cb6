// Kernels that the memory's speed limits, and the host's side of a step. Products, convolutions and attention stand in
// files of their own.
#include "invar/kernels/dry/kernels.h"

#include <algorithm>
#include <cstring>

#include "invar/kernels/column_plan.h"
#include "invar/kernels/pointwise.h"

namespace invar::dry {

namespace {

// What is read or written of a view: elements that are repeated count once.
double bytes_of(const View& v) {
    if (!v) return 0;
    double count = 1;
    for (int i = 0; i < v.rank; ++i)
        if (v.stride[i] != 0) count *= double(v.size[i]);
    return count * double(size_of(v.dtype));
}

double rows_of(const View& x) {
    return x.rank == 0 || x.size[x.rank - 1] == 0 ? 0 : double(x.numel()) / double(x.size[x.rank - 1]);
}
double columns_of(const View& x) {
    return x.rank == 0 ? 1 : double(x.size[x.rank - 1]);
}

// Keys and places before and after a radix sort, and as much again for what it changes places with.
double sort_scratch(double count) {
    return 48 * count;
}

}  // namespace

Work& DryKernels::note(std::string_view kernel, double bytes) {
    Work& work = work_.emplace_back();
    work.kernel = kernel;
    work.phase = phase_;
    work.bytes = bytes;
    return work;
}

Work& DryKernels::note(std::string_view kernel, std::initializer_list<const View*> views) {
    double bytes = 0;
    for (const View* view : views) bytes += bytes_of(*view);
    Work& work = note(kernel, bytes);
    work.dtype = (*views.begin())->dtype;
    return work;
}

int DryKernels::sum_columns(double rows, double columns, int kinds, double beside) const {
    if (!on_gpu() || columns == 0) return 1;
    const std::size_t between = ColumnPlan::scratch_bytes(1, std::int64_t(rows), std::int64_t(columns), kinds);
    scratch(beside + double(between));
    return between > 0 ? 2 : 1;
}

void DryKernels::scratch(double bytes) const {
    if (bytes >= 1) (void)Storage(std::size_t(bytes), device_, Purpose::workspace);
}

// --- moving and making values ---

void DryKernels::copy(const View& from, const View& to) {
    note("copy", {&from, &to});
}
// Small ones are the state of optimizer and scaler, which the host reads back.
void DryKernels::upload(void* device, const void* host, std::size_t bytes) {
    constexpr std::size_t kSmall = 4096;
    if (bytes > 0 && bytes <= kSmall) std::memcpy(device, host, bytes);
}
void DryKernels::download(void* host, const void* device, std::size_t bytes) {
    if (bytes > 0) std::memcpy(host, device, bytes);
}
void DryKernels::fill(const View& out, double) {
    note("fill", {&out});
}
void DryKernels::arange(const View& out, std::int64_t) {
    note("arange", {&out});
}
void DryKernels::uniform(const View& out, double, double, RngState) {
    note("uniform", {&out});
}
void DryKernels::normal(const View& out, double, double, RngState) {
    note("normal", {&out});
}
bool DryKernels::all_finite(const View& x) {
    note("all_finite", {&x});
    return true;
}

// --- pointwise ---

void DryKernels::unary(UnaryOp, const View& x, const View& y, Scalars) {
    note("unary", {&x, &y});
}
void DryKernels::unary_backward(UnaryOp, const View& gy, const View& saved, const View& gx, Scalars) {
    note("unary_backward", {&gy, &saved, &gx});
}
void DryKernels::binary(BinaryOp, const View& a, const View& b, const View& y, Scalars) {
    note("binary", {&a, &b, &y});
}
void DryKernels::binary_backward(BinaryOp, const View& gy, const View& a, const View& b, const View& ga, const View& gb,
                                 Scalars) {
    note("binary_backward", {&gy, &a, &b, &ga, &gb});
}
void DryKernels::where(const View& condition, const View& a, const View& b, const View& y) {
    note("where", {&condition, &a, &b, &y});
}
void DryKernels::compare(const CompareSpec&, const View& a, const View& b, const View& y) {
    note("compare", {&a, &b, &y});
}
void DryKernels::dropout(const View& x, const View& y, double, const ReservedNumbers&) {
    note("dropout", {&x, &y});
}
void DryKernels::scaled(const View& x, const View& factor, const View& y, bool accumulate) {
    note("scaled", {&x, &factor, &y}).bytes += accumulate ? bytes_of(y) : 0;
}
void DryKernels::add_into(const View& x, const View& y) {
    note("add_into", {&x, &y, &y});
}
void DryKernels::swiglu(const View& x, const View& y) {
    note("swiglu", {&x, &y});
}
void DryKernels::swiglu_backward(const View& gy, const View& x, const View& gx, const View& again) {
    note("swiglu_backward", {&gy, &x, &gx, &again});
}
void DryKernels::activation_backward(Activation activation, const View& gy, const View& saved, const View& gx,
                                     const View& gb, bool accumulate, const View& again) {
    if (!gb || !on_gpu()) return Kernels::activation_backward(activation, gy, saved, gx, gb, accumulate, again);
    const int stages = sum_columns(double(gy.numel()) / double(gb.numel()), double(gb.numel()), 1);
    note("activation_backward", {&gy, &saved, &gx, &again}).launches = stages;
}

// --- windows ---

void DryKernels::max_pool(const PoolSpec&, const View& x, const View& y, const View& winners) {
    note("max_pool", {&x, &y, &winners});
}
void DryKernels::max_pool_backward(const PoolSpec&, const View& gy, const View& winners, const View& gx) {
    note("max_pool_backward", {&gy, &winners, &gx});
}
void DryKernels::avg_pool(const PoolSpec&, const View& x, const View& y) {
    note("avg_pool", {&x, &y});
}
void DryKernels::avg_pool_backward(const PoolSpec&, const View& gy, const View& gx) {
    note("avg_pool_backward", {&gy, &gx});
}
void DryKernels::resample(const ResampleSpec&, const View& x, const View& y) {
    note("resample", {&x, &y});
}
void DryKernels::resample_backward(const ResampleSpec&, const View& gy, const View& gx) {
    note("resample_backward", {&gy, &gx});
}

// --- reductions ---

void DryKernels::sum(const Span3& span, const View& x, const View& y, double, bool) {
    const int stages = span.inner > 1 ? sum_columns(double(span.n), double(span.inner), 1) : on_gpu() ? 2 : 1;
    note("sum", {&x, &y}).launches = stages;
}
void DryKernels::prod(const Span3&, const View& x, const View& product, const View& zeros) {
    note("prod", {&x, &product, &zeros});
}
void DryKernels::extreme(const Span3&, const View& x, const View& index, bool) {
    note("extreme", {&x, &index});
}
void DryKernels::cumsum(const Span3&, const View& x, const View& y, bool) {
    note("cumsum", {&x, &y});
}
void DryKernels::sort(const Span3& span, std::int64_t, const View& x, const View& index, bool) {
    const double count = double(span.outer * span.n * span.inner);
    if (on_gpu()) scratch(sort_scratch(count));
    // Passes of eight bits over keys and places of eight bytes each, read and written, and one that counts.
    note("sort", {&x, &index}).bytes += count * 40 * 4;
}
void DryKernels::softmax(const Span3&, const View& x, const View& y, bool) {
    note("softmax", {&x, &y});
}
void DryKernels::softmax_backward(const Span3&, const View& gy, const View& y, const View& gx, bool) {
    note("softmax_backward", {&gy, &y, &gx});
}
void DryKernels::cross_entropy(const CrossEntropySpec&, const View& logits, const View& target, const View& losses,
                               const View& kept) {
    note("cross_entropy", {&logits, &target, &losses, &kept});
}
void DryKernels::cross_entropy_backward(const CrossEntropySpec&, const View& logits, const View& target, const View&,
                                        const View&, const View&, const View& glogits) {
    note("cross_entropy_backward", {&logits, &target, &glogits});
}
void DryKernels::cross_entropy_in_place(const CrossEntropySpec& spec, const View& logits, const View& target,
                                        const View& losses, const View& kept, const View& one) {
    constexpr std::int64_t kFewest = 8192;  // classes that a GPU takes in one pass
    if (!on_gpu() || spec.classes < kFewest)
        return Kernels::cross_entropy_in_place(spec, logits, target, losses, kept, one);
    note("cross_entropy_in_place", {&logits, &logits, &target, &losses});
}
void DryKernels::mean_loss(const View& losses, const View& target, std::int64_t, const View&, const View&) {
    note("mean_loss", {&losses, &target});
}

// --- normalisation ---

void DryKernels::norm(const NormForward& n) {
    note("norm", {&n.x, &n.branch, &n.sum, &n.y, &n.mean, &n.rstd});
}
void DryKernels::norm_backward(const NormBackward& n) {
    constexpr double kBlocks = 264;
    if (on_gpu() && (n.ggamma || n.gbeta)) scratch(std::min(rows_of(n.x), kBlocks) * 2 * columns_of(n.x) * 8);
    note("norm_backward", {&n.gy, &n.x, &n.gx, &n.pending, &n.gbranch, &n.again}).launches = on_gpu() ? 2 : 1;
}
void DryKernels::batch_norm_stats(const BatchNormStats& n) {
    const int stages = sum_columns(rows_of(n.x), columns_of(n.x), 2, columns_of(n.x) * 8);
    note("batch_norm_stats", {&n.x}).launches = stages;
}
void DryKernels::batch_norm_merge(const BatchNormMerge& n) {
    note("batch_norm_merge", {&n.parts, &n.mean, &n.rstd, &n.running_mean, &n.running_var});
}
void DryKernels::batch_norm_pull(const BatchNormPull& n) {
    note("batch_norm_pull", {&n.parts, &n.sums, &n.pull, &n.constant});
}
void DryKernels::batch_norm(const BatchNormForward& n) {
    note("batch_norm", {&n.x, &n.residual, &n.y});
}
void DryKernels::batch_norm_backward(const BatchNormBackward& n) {
    const int stages = sum_columns(rows_of(n.x), columns_of(n.x), 2, columns_of(n.x) * 16);
    note("batch_norm_backward", {&n.gy, &n.x, &n.y, &n.gresidual}).launches = stages;  // the sums
    if (n.gx) note("batch_norm_backward", {n.y ? &n.gresidual : &n.gy, &n.x, &n.gx});  // then each element
}

// --- positions and indexing ---

void DryKernels::rotary(const RotarySpec&, const View& x, const View&, const View&, const View& y) {
    note("rotary", {&x, &y});
}
void DryKernels::embedding(const View&, const View& ids, const View& y) {
    note("embedding", {&ids, &y, &y});
}
void DryKernels::embedding_backward(const View& gy, const View& ids, const View&) {
    constexpr double kStretch = 64;  // rows that are summed before the sums are
    const double count = double(ids.numel()), width = count > 0 ? double(gy.numel()) / count : 0;
    if (on_gpu()) scratch(sort_scratch(count) + (count / kStretch + 1) * width * 8);
    note("embedding_backward", {&gy, &gy, &ids}).bytes += count * 40 * 2;
}
void DryKernels::gather(const Span3&, std::int64_t, const View&, const View& index, const View& y) {
    note("gather", {&index, &y, &y});
}
void DryKernels::scatter_add(const Span3& span, std::int64_t picks, const View& gy, const View& index, const View& gx) {
    const double count = double(span.outer * picks * span.inner);
    if (on_gpu() && picks > 1) scratch(sort_scratch(count) + count / 8);
    note("scatter_add", {&gy, &index, &gx}).bytes += picks > 1 ? count * 40 * 4 : 0;
}

// --- the optimizer: what comes from here on is the update ---

void DryKernels::grad_stats(const View& gradients, StepState*, const View&) {
    phase_ = Phase::update;
    note("grad_stats", {&gradients});
}
void DryKernels::segment_stats(const View& gradients, std::span<const Segment>, StepState*) {
    note("segment_stats", {&gradients});
}
void DryKernels::plan(StepState*, const ScaleState*, const ClipSpec&, const ScheduleSpec&) {
    note("plan", 0);
}
// Each is read and written but the gradients, which are read, and the shadow, which is written.
void DryKernels::optimizer_step(const FlatStore& s, std::span<const Segment>, std::span<const OptimizerSpec>,
                                const StepState*) {
    double each = 2 * double(size_of(s.weights_dtype)) + sizeof(float);
    if (s.shadow != nullptr) each += double(size_of(s.shadow_dtype));
    for (const float* moment : {s.first, s.second})
        if (moment != nullptr) each += 2 * sizeof(float);
    note("optimizer_step", double(s.count) * each);
}
void DryKernels::average_weights(std::span<const AveragedArray> arrays, const AverageSpec&, const StepState*) {
    double bytes = 0;
    for (const AveragedArray& array : arrays)
        bytes += double(array.count) * (double(size_of(array.dtype)) + 2 * sizeof(float));
    note("average_weights", bytes);
}
void DryKernels::conclude(const StepEnd&, const View&) {
    note("conclude", 0);
}
void DryKernels::scale_gradients(const View& gradients, float, float) {
    note("scale_gradients", {&gradients, &gradients});
}

}  // namespace invar::dry
