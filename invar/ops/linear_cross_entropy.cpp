#include "invar/ops/linear_cross_entropy.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/kernels/flops.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/apply.h"
#include "invar/ops/indexing.h"
#include "invar/ops/matmul.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

// Rows of logits at once. On the CPU what a cache holds. On a GPU, whose product with their gradient goes over the
// whole gradient of the weight for each chunk, so many that this is hidden behind the multiplying, and no more than an
// eighth where all of them are few.
std::int64_t rows_at_once(Device device, std::int64_t rows, std::int64_t row_bytes) {
    constexpr std::int64_t kCache = std::int64_t(4) << 20, kEnough = 2560, kFew = 1024;
    const std::int64_t most = device == Device::cpu() ? kCache / row_bytes : std::clamp(rows / 8, kFew, kEnough);
    return std::max<std::int64_t>(most / 128 * 128, 128);
}

// The vocabulary as products see it. Tensor cores take sizes that come in eights far faster than others: on a GPU
// others are rounded up, by rows of zeros below a copy of the weight.
std::int64_t padded_size(Device device, std::int64_t classes) {
    constexpr std::int64_t kUnit = 64;
    return device == Device::cpu() || classes % 8 == 0 ? classes : (classes + kUnit - 1) / kUnit * kUnit;
}

Tensor padded(const Tensor& weight, std::int64_t rows) {
    const std::int64_t there = weight.size(0), width = weight.size(1);
    if (rows == there) return weight;
    const Tensor all = Tensor::empty({rows, width}, weight.dtype(), weight.device());
    Kernels& kernels = kernels_for(all.device());
    kernels.copy(weight.view(), all.window(0, weight.shape()).view());
    kernels.fill(all.window(there * width, {rows - there, width}).view(), 0);
    return all;
}

struct LinearCrossEntropy {
    static constexpr const char* kName = "linear_cross_entropy";
    static constexpr const char* kDoc = "cross_entropy(linear(x, w)) in chunks of rows; softmax in FP32 inside";
    static constexpr CastClass kCast = CastClass::low;
    ClassLossOptions options;
    Shape x_shape{};
    std::int64_t class_count = 0;

    static Tensor rows_of(const Tensor& matrix, std::int64_t first, std::int64_t count) {
        return matrix.window(first * matrix.size(1), {1, count, matrix.size(1)});
    }
    static void multiply(const Tensor& a, const Tensor& b, const Tensor& out, bool accumulate = false) {
        count_product(a.view(), out.view());
        kernels_for(out.device()).matmul(a.view(), b.view(), {}, out.view(), accumulate);
    }
    static Tensor turned(const Tensor& x) {
        return x.as_strided(0, {1, x.size(2), x.size(1)}, {x.strides()[0], 1, x.strides()[1]});
    }

    Tensor forward(Context& ctx, const Tensors& in) {
        x_shape = in[0].shape(), class_count = in[1].size(0);
        const Tensor target = dense(in[2]);
        const std::int64_t classes = in[1].size(0), width = in[1].size(1), rows = target.numel();
        const std::int64_t columns = padded_size(in[0].device(), classes);  // of the logits
        const Tensor x = dense(in[0]).window(0, {rows, width});
        const Tensor w = padded(dense(in[1]), columns).window(0, {1, columns, width});
        const Device device = x.device();
        Kernels& kernels = kernels_for(device);
        const Dtype wide = sum_dtype(x.dtype());
        const Tensor losses = Tensor::empty({rows}, wide, device), one = filled({}, wide, device, 1);
        Tensor gx, gw;
        if (ctx.needs(0)) gx = Tensor::empty({rows, width}, x.dtype(), device);
        if (ctx.needs(1)) gw = Tensor::empty({1, columns, width}, wide, device);
        if (gw && rows == 0) kernels.fill(gw.view(), 0);
        const std::int64_t most = rows_at_once(device, rows, columns * std::int64_t(size_of(x.dtype())));
        const Tensor all_logits = Tensor::empty({std::min(most, rows), columns}, x.dtype(), device);
        const Tensor all_kept = Tensor::empty({2, std::min(most, rows)}, wide, device);
        for (std::int64_t first = 0; first < rows; first += most) {
            const std::int64_t count = std::min(most, rows - first);
            const Tensor part = rows_of(x, first, count), logits = rows_of(all_logits, 0, count);
            const Tensor judged = logits.as_strided(0, {1, count, classes}, logits.strides());
            const Tensor kept = all_kept.window(0, {2, count}), labels = target.window(first, {count});
            const CrossEntropySpec spec{count, classes, options.ignore_index, options.label_smoothing};
            multiply(part, turned(w), logits);
            const Tensor part_of_losses = losses.window(first, {count});
            if (!gx && !gw && columns == classes)
                kernels.cross_entropy(spec, judged.view(), labels.view(), part_of_losses.view(), kept.view());
            else
                kernels.cross_entropy_in_place(spec, judged.view(), labels.view(), part_of_losses.view(), kept.view(),
                                               one.view());
            if (gx) multiply(logits, w, rows_of(gx, first, count));
            if (gw) multiply(turned(logits), part, gw, first > 0);
        }
        Tensor result = Tensor::empty({}, wide, device), divisor;
        if (options.reduction == Reduction::mean) {
            divisor = Tensor::empty_like(result);
            kernels.mean_loss(losses.view(), target.view(), options.ignore_index, result.view(), divisor.view());
            // Where no row counts the mean is NaN, and the gradients stay 0.
            kernels.binary(BinaryOp::Maximum, divisor.view(), one.view(), divisor.view(), {});
        } else {
            kernels.sum({1, rows, 1}, losses.view(), result.view(), 1.0, false);
        }
        for (const Tensor& saved : {divisor, gx, gw}) ctx.save(saved);
        return result;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor divisor = ctx.saved(0), gx = ctx.saved(1), gw = ctx.saved(2);
        Kernels& kernels = kernels_for(g.device());
        Tensor factor = g;
        if (divisor) {
            factor = Tensor::empty_like(g);
            kernels.binary(BinaryOp::Div, g.view(), divisor.view(), factor.view(), {});
        }
        Tensor out;
        if (gx) {
            out = Tensor::empty(x_shape, gx.dtype(), gx.device());
            kernels.scaled(gx.view(), factor.view(), out.window(0, gx.shape()).view(), false);
        }
        Context::Slot slot{};
        if (gw) {
            const Shape shape{class_count, gw.size(2)};
            slot = ctx.slot(1, shape, gw.dtype(), gw.device());
            kernels.scaled(gw.window(0, shape).view(), factor.view(), slot.view(), slot.accumulate);
        }
        return {out, slot.result(), Tensor{}};
    }
};

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target,
                            const ClassLossOptions& options) {
    constexpr const char* kOp = LinearCrossEntropy::kName;
    if (x.rank() < 1 || weight.rank() != 2 || x.size(-1) != weight.size(1) || !is_floating(x.dtype()))
        fail("{}: input {} for a weight {}; it must be floating [..., width] and [classes, width]", kOp, x.str(),
             weight.str());
    Shape rows = x.shape();
    rows.erase(-1);
    if (target.shape() != rows)
        fail("{}: target {} for an input {}; it must be {}", kOp, target.shape().str(), x.shape().str(), rows.str());
    if (options.reduction == Reduction::none)
        fail<UsageError>("{}: gives a mean or a sum; for a loss of each row write cross_entropy(linear(x, w))", kOp);
    if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
        fail<UsageError>("{}: label smoothing must lie in [0, 1], not {}", kOp, options.label_smoothing);
    check_indices(kOp, target, weight.size(0), options.ignore_index);
    if (options.weight) return cross_entropy(linear(x, weight), target, options);
    return apply(LinearCrossEntropy{options}, {x, weight, target});
}

}  // namespace invar::ops
