#include "invar/ops/rearrange.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

struct Roll {
    static constexpr const char* kName = "roll";
    static constexpr const char* kDoc = "elements moved on along dimensions, round the end";
    static constexpr CastClass kCast = CastClass::keep;
    std::vector<std::int64_t> shifts;
    std::vector<int> axes;

    // `count` elements along an axis, from `begin` on.
    static Tensor part(const Tensor& x, int axis, std::int64_t begin, std::int64_t count) {
        Shape shape = x.shape();
        shape[axis] = count;
        return x.as_strided(begin * x.strides()[axis], shape, x.strides());
    }
    Tensor rolled(const Tensor& x, std::int64_t sign) const {
        Tensor from = x;
        for (std::size_t i = 0; i < axes.size(); ++i) {
            const int axis = axes[i];
            const std::int64_t size = x.size(axis);
            if (x.numel() == 0) break;
            const std::int64_t shift = ((sign * (shifts[i] % size)) % size + size) % size;
            Tensor to = Tensor::empty_like(x);
            Kernels& kernels = kernels_for(x.device());
            kernels.copy(part(from, axis, 0, size - shift).view(), part(to, axis, shift, size - shift).view());
            if (shift > 0) kernels.copy(part(from, axis, size - shift, shift).view(), part(to, axis, 0, shift).view());
            from = to;
        }
        return from.same_as(x) ? x.detach() : from;
    }
    Tensor forward(Context&, const Tensors& in) { return rolled(in[0], 1); }
    Tensors backward(Context&, const Tensor& g) { return {rolled(g, -1)}; }
};

template <bool kUpper>
struct Triangle {
    static constexpr const char* kName = kUpper ? "triu" : "tril";
    static constexpr const char* kDoc = kUpper ? "zeros below a diagonal" : "zeros above a diagonal";
    static constexpr CastClass kCast = CastClass::keep;
    std::int64_t diagonal;

    // All of it is made on the device: nothing is uploaded, so that a step can be recorded.
    Tensor kept(const Tensor& x) const {
        Kernels& kernels = kernels_for(x.device());
        const std::int64_t rows = x.size(-2), columns = x.size(-1);
        const Tensor row = Tensor::empty({rows, 1}, Dtype::i64, x.device());
        const Tensor column = Tensor::empty({1, columns}, Dtype::i64, x.device());
        kernels.arange(row.view(), diagonal);  // the column on the diagonal
        kernels.arange(column.view(), 0);
        Tensor mask = Tensor::empty({rows, columns}, Dtype::boolean, x.device());
        kernels.compare({kUpper ? CompareOp::ge : CompareOp::le, Dtype::i64}, expanded(column, mask.shape()).view(),
                        expanded(row, mask.shape()).view(), mask.view());
        const Tensor zero = filled({}, x.dtype(), x.device(), 0);
        Tensor y = Tensor::empty_like(x);
        kernels.where(expanded(mask, x.shape()).view(), x.view(), expanded(zero, x.shape()).view(), y.view());
        return y;
    }
    Tensor forward(Context&, const Tensors& in) { return kept(in[0]); }
    Tensors backward(Context&, const Tensor& g) { return {kept(g)}; }
};

template <bool kUpper>
Tensor triangle(const Tensor& x, std::int64_t diagonal) {
    if (x.rank() < 2) fail("{}: needs at least two dimensions, not {}", Triangle<kUpper>::kName, x.str());
    // No further than the matrix reaches, so that adding to it cannot leave the range.
    const std::int64_t reach = x.size(-2) + x.size(-1);
    return apply(Triangle<kUpper>{std::clamp(diagonal, -reach, reach)}, {x});
}

}  // namespace

Tensors split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim) {
    const int axis = x.shape().axis(dim);
    for (const std::int64_t size : sizes)
        if (size < 0) fail("split: a negative size in ({})", fmt::join(sizes, ", "));
    if (std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) != x.size(axis))
        fail("split: ({}) does not add up to dimension {} of {}", fmt::join(sizes, ", "), axis, x.str());
    Tensors parts;
    std::int64_t begin = 0;
    for (const std::int64_t size : sizes) {
        parts.push_back(slice(x, axis, begin, begin + size));
        begin += size;
    }
    return parts;
}

Tensors split(const Tensor& x, std::int64_t size, int dim) {
    const std::int64_t whole = x.size(dim);
    if (size < 0 || (size == 0 && whole > 0)) fail("split: cannot cut {} into pieces of {}", x.str(), size);
    std::vector<std::int64_t> sizes;
    for (std::int64_t begin = 0; begin < whole; begin += size) sizes.push_back(std::min(size, whole - begin));
    if (sizes.empty()) sizes.push_back(0);
    return split(x, sizes, dim);
}

Tensors chunk(const Tensor& x, std::int64_t count, int dim) {
    if (count < 1) fail("chunk: needs at least one piece, not {}", count);
    const std::int64_t whole = x.size(dim);
    if (whole == 0) return split(x, std::vector<std::int64_t>(std::size_t(count), 0), dim);
    return split(x, (whole + count - 1) / count, dim);
}

Tensor roll(const Tensor& x, const std::vector<std::int64_t>& shifts, const std::vector<int>& dims) {
    if (dims.empty() && shifts.size() == 1) return reshape(roll(reshape(x, {-1}), shifts, {0}), x.shape());
    if (shifts.empty() || shifts.size() != dims.size())
        fail("roll: {} shifts for {} dimensions of {}", shifts.size(), dims.size(), x.str());
    Roll op{shifts, {}};
    for (const int dim : dims) op.axes.push_back(x.shape().axis(dim));
    return apply(std::move(op), {x});
}

Tensor tril(const Tensor& x, std::int64_t diagonal) {
    return triangle<false>(x, diagonal);
}
Tensor triu(const Tensor& x, std::int64_t diagonal) {
    return triangle<true>(x, diagonal);
}

}  // namespace invar::ops
