// Products and attention, with the scratch memory that each device takes for them.
#include <fmt/format.h>

#include <algorithm>

#include "invar/kernels/cpu/onednn.h"
#include "invar/kernels/devices.h"
#include "invar/kernels/dry/kernels.h"
#include "invar/kernels/pointwise.h"

namespace invar::dry {

namespace {

double dense_bytes(const View& v) {
    return v ? double(v.numel()) * double(size_of(v.dtype)) : 0;
}

// FP32 copies of 16-bit operands.
double widened(const View& v) {
    return v && is_sixteen_bit(v.dtype) ? double(v.numel()) * 4 : 0;
}

}  // namespace

// As kernels/cuda/device.h has it.
void DryKernels::take_workspace() {
    constexpr std::size_t kWorkspaceBytes = std::size_t(64) << 20;
    if (on_gpu() && !workspace_) workspace_.emplace(kWorkspaceBytes, device_, Purpose::workspace);
}

void DryKernels::multiply(std::string_view kernel, const View& a, const View& b, const View& out, bool accumulate,
                          const View& addend) {
    if (out.numel() == 0) return;
    take_workspace();
    // Where algorithms are timed, a product that adds to its result is tried in memory that nobody reads.
    if (on_gpu() && accumulate && options_.benchmark && !options_.deterministic) {
        const std::string key = fmt::format("{} {} {} {} {} {}", int(a.dtype), int(out.dtype), out.size[0], out.size[1],
                                            out.size[2], a.size[2]);
        if (timed_.insert(key).second) scratch(dense_bytes(out));
    }
    if (!on_gpu()) multiply_on_cpu(a, b, out, accumulate);
    Work& work = note(kernel, dense_bytes(a) + dense_bytes(b) + dense_bytes(out) * (accumulate ? 2 : 1));
    work.bytes += dense_bytes(addend);
    work.kind = WorkKind::product;
    work.dtype = a.dtype;
    work.tf32 = a.dtype == Dtype::f32 && Tf32Scope::on();
    work.batch = out.size[0], work.rows = out.size[1], work.columns = out.size[2], work.inner = a.size[2];
    work.flops = 2.0 * double(out.numel()) * double(a.size[2]);
}

// As kernels/cpu/simd/products.cpp has it: where operands are widened, left operand and result whole, the right one by
// panels.
void DryKernels::multiply_on_cpu(const View& a, const View& b, const View& out, bool accumulate) const {
    constexpr double kPanel = double(8 << 20);
    if (onednn::native(a.dtype)) return scratch(double(onednn::matmul_scratch(a, b, {}, out, accumulate)));
    scratch(widened(a) + widened(out) + std::min(widened(b), kPanel));
}

void DryKernels::matmul(const View& a, const View& b, const View&, const View& out, bool accumulate) {
    multiply("matmul", a, b, out, accumulate);
}

void DryKernels::matmul_with(const Epilogue& e, const View& a, const View& b, const View& out, bool accumulate) {
    if (!on_gpu()) return Kernels::matmul_with(e, a, b, out, accumulate);
    // As kernels/cuda/products.cpp has it: rows are summed beside products of eights alone.
    const bool eights = out.size[1] % 8 == 0 && out.size[2] % 8 == 0 && a.size[2] % 8 == 0;
    if (e.row_sums && (accumulate || out.size[0] != 1 || !eights))
        return Kernels::matmul_with(e, a, b, out, accumulate);
    const View& product = e.before ? e.before : out;
    multiply("matmul", a, b, product, accumulate, e.addend);
    if (e.activation != Activation::none) unary(unary_op(e.activation), product, out, {});
}

namespace {

// The pairs that are looked at, over all heads.
double pairs_of(const AttentionSpec& s) {
    const double all = double(s.queries) * double(s.keys);
    const double seen = s.causal && s.queries == s.keys ? double(s.queries) * double(s.queries + 1) / 2 : all;
    return seen * double(s.batch * s.heads);
}

// Whether cuDNN's fused kernels serve; for heads in groups, or wide ones, only where sums may come in any order.
bool is_cudnns(const AttentionSpec& s, bool deterministic) {
    return s.plain() && s.scale > 0 && !(deterministic && (s.group() > 1 || s.width > 64));
}

void describe(Work& work, const AttentionSpec& s, const View& q, WorkKind kind, int products) {
    work.kind = kind;
    work.dtype = q.dtype;
    work.tf32 = q.dtype == Dtype::f32 && Tf32Scope::on();
    work.batch = s.batch * s.heads, work.rows = s.queries, work.columns = s.keys, work.inner = s.width;
    work.flops = products * pairs_of(s) * double(s.width + s.value_width);
}

// What kernels/cuda/attention.cpp holds of a block where there is no fused kernel: matrices of its queries, keys and
// values, `of_rows` for each query and `of_keys` for each key, beside the scores.
double block_bytes(const AttentionSpec& s, double of_rows, double of_keys, double scores) {
    const AttentionBlocks blocks(s, Dtype::f32);
    const double widths = double(s.width + s.value_width) * double(blocks.samples);
    return 4 * (widths * (of_rows * double(s.heads * blocks.rows) + of_keys * double(s.kv_heads * s.keys)) +
                scores * double(blocks.scores(s)));
}

// As kernels/cpu/simd/attention.cpp has it: so many scores of a block of queries for each thread that has a head.
double scores_on_cpu(const AttentionSpec& s, std::int64_t items, double matrices) {
    constexpr std::int64_t kRows = 64, kSerial = 8192;
    const std::int64_t products = s.batch * s.heads * s.queries * s.keys * (s.width + s.value_width);
    const bool shared = items >= threads() && products > 64 * kSerial;
    return matrices * double(kRows * s.keys) * 4 * (shared ? threads() : 1);
}

}  // namespace

void DryKernels::attention(const AttentionSpec& s, const View& q, const View& k, const View& v, const View& y,
                           const View& kept) {
    take_workspace();
    if (on_gpu() && !is_sixteen_bit(q.dtype)) scratch(block_bytes(s, 1, 1, 1));
    if (!on_gpu()) {
        const std::int64_t blocks = (s.queries + 63) / 64;
        const double rows = double(std::min<std::int64_t>(s.queries, 64)) / 64;
        scratch(widened(q) + widened(k) + widened(v) + widened(y) + scores_on_cpu(s, s.batch * s.heads * blocks, rows));
    }
    Work& work =
        note("attention", dense_bytes(q) + dense_bytes(k) + dense_bytes(v) + dense_bytes(y) + dense_bytes(kept));
    describe(work, s, q, WorkKind::attention, 2);
    work.own = !is_cudnns(s, options_.deterministic);
}

void DryKernels::attention_backward(const AttentionSpec& s, const View& q, const View& k, const View& v, const View& y,
                                    const View& kept, const View& gy, const View& gq, const View& gk, const View& gv) {
    const double rows = double(s.batch * s.heads * s.queries);
    if (on_gpu() && is_sixteen_bit(q.dtype))  // sums of rows, and the queries' gradient where it is not summed in order
        scratch(rows * 8 + (options_.deterministic ? 0 : rows * double(s.width) * 4));
    else if (on_gpu())
        scratch(block_bytes(s, 1.5, 2, 2));  // queries twice, and one gradient of results
    else
        scratch(widened(q) + widened(k) + widened(v) + widened(gy) + widened(gq) + widened(gk) + widened(gv) +
                scores_on_cpu(s, s.batch * s.kv_heads, 2));
    double bytes = 0;
    for (const View* view : {&q, &k, &v, &y, &kept, &gy, &gq, &gk, &gv}) bytes += dense_bytes(*view);
    Work& work = note("attention_backward", bytes);
    describe(work, s, q, WorkKind::attention_backward, 5);
    work.own = !is_cudnns(s, options_.deterministic);
}

}  // namespace invar::dry
