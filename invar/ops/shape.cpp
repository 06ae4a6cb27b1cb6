#include "invar/ops/shape.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

struct Reshape {
    static constexpr const char* kName = "reshape";
    static constexpr const char* kDoc = "the same values in another shape";
    static constexpr CastClass kCast = CastClass::keep;
    Shape to, from;

    Tensor forward(Context&, const Tensors& in) { return dense(in[0]).window(0, to); }
    Tensors backward(Context&, const Tensor& g) { return {dense(g).window(0, from)}; }
};

Tensor permuted(const Tensor& x, const std::vector<int>& order) {
    Shape shape, strides;
    for (const int from : order) {
        shape.push_back(x.size(from));
        strides.push_back(x.strides()[from]);
    }
    return x.as_strided(0, shape, strides);
}

struct Permute {
    static constexpr const char* kName = "permute";
    static constexpr const char* kDoc = "dimensions in another order";
    static constexpr CastClass kCast = CastClass::keep;
    std::vector<int> order;

    Tensor forward(Context&, const Tensors& in) { return permuted(in[0], order); }
    Tensors backward(Context&, const Tensor& g) {
        std::vector<int> inverse(order.size());
        for (std::size_t i = 0; i < order.size(); ++i) inverse[std::size_t(order[i])] = int(i);
        return {permuted(g, inverse)};
    }
};

// Puts a dimension of size 1 in, or takes it out.
Tensor with_unit(const Tensor& x, int axis, bool present) {
    Shape shape = x.shape(), strides = x.strides();
    if (present)
        shape.insert(axis, 1), strides.insert(axis, axis < x.rank() ? x.size(axis) * x.strides()[axis] : 1);
    else
        shape.erase(axis), strides.erase(axis);
    return x.as_strided(0, shape, strides);
}

struct Unsqueeze {
    static constexpr const char* kName = "unsqueeze";
    static constexpr const char* kDoc = "a dimension of size 1 put in";
    static constexpr CastClass kCast = CastClass::keep;
    int axis;

    Tensor forward(Context&, const Tensors& in) { return with_unit(in[0], axis, true); }
    Tensors backward(Context&, const Tensor& g) { return {with_unit(g, axis, false)}; }
};

struct Squeeze {
    static constexpr const char* kName = "squeeze";
    static constexpr const char* kDoc = "a dimension of size 1 taken out";
    static constexpr CastClass kCast = CastClass::keep;
    int axis;

    Tensor forward(Context&, const Tensors& in) { return with_unit(in[0], axis, false); }
    Tensors backward(Context&, const Tensor& g) { return {with_unit(g, axis, true)}; }
};

struct Slice {
    static constexpr const char* kName = "slice";
    static constexpr const char* kDoc = "every n-th element along a dimension";
    static constexpr CastClass kCast = CastClass::keep;
    int axis;
    std::int64_t begin, count, step;
    Shape from;

    Tensor window(const Tensor& x) const {
        Shape shape = x.shape(), strides = x.strides();
        const std::int64_t stride = strides[axis];
        shape[axis] = count;
        strides[axis] = stride * step;
        return x.as_strided(count > 0 ? begin * stride : 0, shape, strides);
    }
    Tensor forward(Context&, const Tensors& in) { return window(in[0]); }
    Tensors backward(Context&, const Tensor& g) {
        Tensor gx = filled(from, g.dtype(), g.device(), 0);
        kernels_for(g.device()).copy(g.view(), window(gx).view());
        return {gx};
    }
};

struct Expand {
    static constexpr const char* kName = "expand";
    static constexpr const char* kDoc = "sizes of one repeated";
    static constexpr CastClass kCast = CastClass::keep;
    Shape to, from;

    // detach: the result needs a handle of its own even where there is nothing to repeat.
    Tensor forward(Context&, const Tensors& in) { return expanded(in[0], to).detach(); }
    Tensors backward(Context&, const Tensor& g) { return {reduced_to(g, from, g.dtype())}; }
};

struct Contiguous {
    static constexpr const char* kName = "contiguous";
    static constexpr const char* kDoc = "a dense copy";
    static constexpr CastClass kCast = CastClass::keep;

    Tensor forward(Context&, const Tensors& in) { return dense(in[0]); }
    Tensors backward(Context&, const Tensor& g) { return {g}; }
};

struct Cat {
    static constexpr const char* kName = "cat";
    static constexpr const char* kDoc = "tensors one after the other";
    static constexpr CastClass kCast = CastClass::widest;
    int axis;
    std::vector<std::int64_t> sizes;

    Tensor part(const Tensor& whole, std::size_t i, std::int64_t begin) const {
        return Slice{axis, begin, sizes[i], 1, {}}.window(whole);
    }
    Tensor forward(Context&, const Tensors& in) {
        Shape shape = in[0].shape();
        shape[axis] = 0;
        for (const std::int64_t size : sizes) shape[axis] += size;
        Tensor y = Tensor::empty(shape, in[0].dtype(), in[0].device());
        std::int64_t begin = 0;
        for (std::size_t i = 0; i < in.size(); begin += sizes[i++]) {
            if (in[i].dtype() != y.dtype()) fail("cat: {} beside {}; cast one of them first", in[i].str(), in[0].str());
            kernels_for(y.device()).copy(in[i].view(), part(y, i, begin).view());
        }
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        Tensors grads(sizes.size());
        std::int64_t begin = 0;
        for (std::size_t i = 0; i < sizes.size(); begin += sizes[i++])
            if (ctx.needs(i)) grads[i] = part(g, i, begin);
        return grads;
    }
};

}  // namespace

Tensor reshape(const Tensor& x, Shape shape) {
    const Shape asked = shape;
    int open = -1;
    Shape known;
    for (int i = 0; i < shape.rank(); ++i) {
        if (shape[i] != -1) {
            if (shape[i] < 0) fail("reshape: {} has a negative size", asked.str());
            known.push_back(shape[i]);
            continue;
        }
        if (open >= 0) fail("reshape: {} leaves more than one size open", asked.str());
        open = i;
    }
    if (open >= 0) {
        const std::int64_t count = known.numel();
        if (count == 0 && x.numel() == 0) fail("reshape: any size would do for the -1 of {}; write it", asked.str());
        shape[open] = count > 0 ? x.numel() / count : 0;
    }
    if (shape.numel() != x.numel()) fail("reshape: {} does not fit in shape {}", x.str(), asked.str());
    return apply(Reshape{shape, x.shape()}, {x});
}

Tensor flatten(const Tensor& x, int start_dim) {
    Shape shape;
    const int start = x.rank() == 0 ? 0 : x.shape().axis(start_dim);
    for (int i = 0; i < start; ++i) shape.push_back(x.size(i));
    std::int64_t rest = 1;
    for (int i = start; i < x.rank(); ++i) rest *= x.size(i);
    shape.push_back(rest);
    return reshape(x, shape);
}

Tensor permute(const Tensor& x, const std::vector<int>& order) {
    std::vector<int> axes, sorted;
    for (const int dim : order) axes.push_back(x.shape().axis(dim));
    sorted = axes;
    std::sort(sorted.begin(), sorted.end());
    bool good = int(order.size()) == x.rank();
    for (std::size_t i = 0; good && i < sorted.size(); ++i) good = sorted[i] == int(i);
    if (!good) fail("permute: ({}) does not name each dimension of {} once", fmt::join(order, ", "), x.shape().str());
    return apply(Permute{axes}, {x});
}

Tensor transpose(const Tensor& x, int a, int b) {
    std::vector<int> order;
    for (int i = 0; i < x.rank(); ++i) order.push_back(i);
    std::swap(order[std::size_t(x.shape().axis(a))], order[std::size_t(x.shape().axis(b))]);
    return apply(Permute{order}, {x});
}

Tensor unsqueeze(const Tensor& x, int dim) {
    const int axis = dim < 0 ? dim + x.rank() + 1 : dim;
    if (axis < 0 || axis > x.rank()) fail("unsqueeze: no place {} in shape {}", dim, x.shape().str());
    return apply(Unsqueeze{axis}, {x});
}

Tensor squeeze(const Tensor& x, int dim) {
    const int axis = x.shape().axis(dim);
    if (x.size(axis) != 1) fail("squeeze: dimension {} of {} is not 1", dim, x.shape().str());
    return apply(Squeeze{axis}, {x});
}

Tensor slice(const Tensor& x, int dim, std::int64_t begin, std::int64_t end, std::int64_t step) {
    const int axis = x.shape().axis(dim);
    const std::int64_t size = x.size(axis);
    if (step < 1) fail("slice: the step must be at least 1, not {}", step);
    const auto clip = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
    begin = clip(begin), end = clip(end);
    const std::int64_t count = end > begin ? (end - begin + step - 1) / step : 0;
    return apply(Slice{axis, begin, count, step, x.shape()}, {x});
}

Tensor expand(const Tensor& x, const Shape& shape) {
    if (shape.rank() < x.rank() || broadcast(x.shape(), shape, "expand") != shape)
        fail("expand: {} does not expand to {}", x.shape().str(), shape.str());
    return apply(Expand{shape, x.shape()}, {x});
}

Tensor contiguous(const Tensor& x) {
    return x.is_contiguous() ? x : apply(Contiguous{}, {x});
}

Tensor cat(const Tensors& tensors, int dim) {
    if (tensors.empty()) fail("cat: no tensors");
    const Shape& first = tensors[0].shape();
    Cat op{first.axis(dim), {}};
    for (const Tensor& tensor : tensors) {
        bool fits = tensor.rank() == first.rank();
        for (int i = 0; fits && i < first.rank(); ++i) fits = i == op.axis || tensor.size(i) == first[i];
        if (!fits)
            fail("cat: shapes {} and {} differ outside dimension {}", first.str(), tensor.shape().str(), op.axis);
        op.sizes.push_back(tensor.size(op.axis));
    }
    return apply(std::move(op), tensors);
}

Tensor stack(const Tensors& tensors, int dim) {
    if (tensors.empty()) fail("stack: no tensors");
    Tensors rows;
    for (const Tensor& tensor : tensors) {
        if (tensor.shape() != tensors[0].shape())
            fail("stack: shapes {} and {} differ", tensors[0].shape().str(), tensor.shape().str());
        rows.push_back(unsqueeze(tensor, dim));
    }
    return cat(rows, dim);
}

}  // namespace invar::ops
