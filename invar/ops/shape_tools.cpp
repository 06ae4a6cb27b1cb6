#include "invar/ops/shape_tools.h"

#include "invar/kernels/kernels.h"

namespace invar::ops {

Tensor dense(const Tensor& x) {
    if (x.is_contiguous()) return x;
    Tensor y = Tensor::empty_like(x);
    kernels_for(x.device()).copy(x.view(), y.view());
    return y;
}

Tensor expanded(const Tensor& x, const Shape& shape) {
    if (x.shape() == shape) return x;
    Shape strides = Shape::filled(shape.rank(), 0);
    for (int i = 1; i <= x.rank(); ++i) strides[-i] = x.size(-i) == 1 ? 0 : x.strides()[-i];
    return x.as_strided(0, shape, strides);
}

Tensor reduced_to(const Tensor& g, const Shape& shape, Dtype dtype) {
    Tensor sum = g;
    Kernels& kernels = kernels_for(g.device());
    for (int i = 1; i <= g.rank(); ++i) {
        const std::int64_t wanted = i <= shape.rank() ? shape[-i] : 1;
        if (sum.size(-i) == wanted) continue;
        sum = dense(sum);
        Shape smaller = sum.shape();
        smaller[-i] = 1;
        Tensor reduced = Tensor::empty(smaller, sum.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32, g.device());
        kernels.sum(span_of(sum.shape(), -i), sum.view(), reduced.view(), 1.0, false);
        sum = reduced;
    }
    if (sum.dtype() != dtype) sum = converted_to(sum, dtype);
    if (sum.shape() == shape) return sum;
    Shape strides;  // what is left to take away are leading ones; g may lie in memory in any order
    for (int i = g.rank() - shape.rank(); i < g.rank(); ++i) strides.push_back(sum.strides()[i]);
    return sum.as_strided(0, shape, strides);
}

Span3 span_of(const Shape& shape, int dim) {
    const int axis = shape.axis(dim);
    Span3 span;
    for (int i = 0; i < shape.rank(); ++i) (i < axis ? span.outer : i == axis ? span.n : span.inner) *= shape[i];
    return span;
}

Tensor converted_to(const Tensor& x, Dtype dtype) {
    Tensor y = Tensor::empty(x.shape(), dtype, x.device());
    kernels_for(x.device()).copy(x.view(), y.view());
    return y;
}

Tensor filled(const Shape& shape, Dtype dtype, Device device, double value) {
    Tensor y = Tensor::empty(shape, dtype, device);
    kernels_for(device).fill(y.view(), value);
    return y;
}

bool share_accumulation(Context::Slot& a, Context::Slot& b) {
    const bool accumulate = (a.tensor && a.accumulate) || (b.tensor && b.accumulate);
    for (const Context::Slot* slot : {&a, &b})
        if (accumulate && slot->tensor && !slot->accumulate) kernels_for(slot->tensor.device()).fill(slot->view(), 0);
    return accumulate;
}

}  // namespace invar::ops
