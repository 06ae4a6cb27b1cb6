#include "invar/ops/order.h"

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

// --- where values are: no gradient ---

template <bool kSmallest>
struct ArgExtreme {
    static constexpr const char* kName = kSmallest ? "argmin" : "argmax";
    static constexpr const char* kDoc = kSmallest ? "where the smallest value is" : "where the largest value is";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr bool kNoGradient = true;
    int axis;

    Tensor forward(const Tensors& in) {
        const Tensor& x = in[0];
        Shape shape = x.shape();
        shape[axis] = 1;
        Tensor index = Tensor::empty(shape, Dtype::i64, x.device());
        if (index.numel() > 0)
            kernels_for(x.device()).extreme(span_of(x.shape(), axis), dense(x).view(), index.view(), kSmallest);
        return index;
    }
};

struct Argsort {
    static constexpr const char* kName = "argsort";
    static constexpr const char* kDoc = "the places of values in their order";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr bool kNoGradient = true;
    int axis;
    std::int64_t count;  // of the first in order
    bool descending;

    Tensor forward(const Tensors& in) {
        const Tensor& x = in[0];
        Shape shape = x.shape();
        shape[axis] = count;
        Tensor index = Tensor::empty(shape, Dtype::i64, x.device());
        if (index.numel() > 0)
            kernels_for(x.device()).sort(span_of(x.shape(), axis), count, dense(x).view(), index.view(), descending);
        return index;
    }
};

// --- the values there: x and the indices in, all of one line different ---

enum class Chosen { max, min, sort, topk };
constexpr const char* kNames[] = {"max", "min", "sort", "topk"};
constexpr const char* kDocs[] = {"largest value, and where it is", "smallest value, and where it is",
                                 "values in their order, and where they were",
                                 "the first values in order, and where they are"};

template <Chosen kChosen>
struct Values {
    static constexpr const char* kName = kNames[int(kChosen)];
    static constexpr const char* kDoc = kDocs[int(kChosen)];
    static constexpr CastClass kCast = CastClass::keep;
    int axis;
    Shape from;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor &x = in[0], &index = in[1];
        Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
        kernels_for(x.device()).gather(span_of(from, axis), index.size(axis), dense(x).view(), index.view(), y.view());
        ctx.save(index);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor index = ctx.saved(0);
        Tensor gx = filled(from, g.dtype(), g.device(), 0);
        kernels_for(g.device())
            .scatter_add(span_of(from, axis), index.size(axis), dense(g).view(), index.view(), gx.view());
        return {gx, Tensor{}};
    }
};

template <bool kSmallest>
Tensor winners(const char* op, const Tensor& x, int axis) {
    if (x.size(axis) == 0) fail("{}: nothing to choose from in {}", op, x.str());
    return apply(ArgExtreme<kSmallest>{axis}, {x});
}

template <Chosen kChosen>
ValuesAndIndices extreme(const Tensor& x, int dim, bool keepdim) {
    const int axis = x.shape().axis(dim);
    const Tensor index = winners<kChosen == Chosen::min>(kNames[int(kChosen)], x, axis);
    const Tensor values = apply(Values<kChosen>{axis, x.shape()}, {x, index});
    if (keepdim) return {values, index};
    return {squeeze(values, axis), squeeze(index, axis)};
}

template <Chosen kChosen>
ValuesAndIndices ordered(const Tensor& x, std::int64_t count, int axis, bool descending) {
    const Tensor index = apply(Argsort{axis, count, descending}, {x});
    return {apply(Values<kChosen>{axis, x.shape()}, {x, index}), index};
}

// A number by itself is ordered too, as in PyTorch: dimension 0 of one element.
template <class F>
ValuesAndIndices of_one(const Tensor& x, int dim, const F& f) {
    if (dim != 0 && dim != -1) x.shape().axis(dim);  // throws
    const ValuesAndIndices found = f(reshape(x, {1}));
    return {reshape(found.values, {}), reshape(found.indices, {})};
}

}  // namespace

ValuesAndIndices max(const Tensor& x, int dim, bool keepdim) {
    return extreme<Chosen::max>(x, dim, keepdim);
}
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim) {
    return extreme<Chosen::min>(x, dim, keepdim);
}
Tensor max(const Tensor& x) {
    return max(reshape(x, {-1}), 0).values;
}
Tensor min(const Tensor& x) {
    return min(reshape(x, {-1}), 0).values;
}

Tensor argmax(const Tensor& x, int dim, bool keepdim) {
    const int axis = x.shape().axis(dim);
    const Tensor index = winners<false>("argmax", x, axis);
    return keepdim ? index : squeeze(index, axis);
}
Tensor argmin(const Tensor& x, int dim, bool keepdim) {
    const int axis = x.shape().axis(dim);
    const Tensor index = winners<true>("argmin", x, axis);
    return keepdim ? index : squeeze(index, axis);
}

ValuesAndIndices sort(const Tensor& x, int dim, bool descending) {
    if (x.rank() == 0) return of_one(x, dim, [&](const Tensor& one) { return sort(one, 0, descending); });
    const int axis = x.shape().axis(dim);
    return ordered<Chosen::sort>(x, x.size(axis), axis, descending);
}

Tensor argsort(const Tensor& x, int dim, bool descending) {
    return sort(x.detach(), dim, descending).indices;
}

ValuesAndIndices topk(const Tensor& x, std::int64_t k, int dim, bool largest, bool /*sorted*/) {
    if (x.rank() == 0) return of_one(x, dim, [&](const Tensor& one) { return topk(one, k, 0, largest); });
    const int axis = x.shape().axis(dim);
    if (k < 0 || k > x.size(axis)) fail("topk: {} of dimension {} of {}", k, axis, x.str());
    return ordered<Chosen::topk>(x, k, axis, largest);
}

}  // namespace invar::ops
