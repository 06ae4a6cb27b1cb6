#include "invar/ops/indexing.h"

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

struct Embedding {
    static constexpr const char* kName = "embedding";
    static constexpr const char* kDoc = "rows of a table by their numbers";
    static constexpr CastClass kCast = CastClass::keep;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor ids = dense(in[0]), table = dense(in[1]);
        Shape shape = ids.shape();
        shape.push_back(table.size(1));
        Tensor y = Tensor::empty(shape, table.dtype(), table.device());
        kernels_for(y.device()).embedding(table.view(), ids.view(), y.view());
        ctx.save(ids);
        rows = table.size(0);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor ids = ctx.saved(0);
        const Context::Slot slot = ctx.slot(1, {rows, g.size(-1)}, sum_dtype(g.dtype()), g.device());
        if (!slot.accumulate) kernels_for(g.device()).fill(slot.view(), 0);
        kernels_for(g.device()).embedding_backward(dense(g).view(), ids.view(), slot.view());
        return {Tensor{}, slot.result()};
    }
    std::int64_t rows = 0;
};

struct Gather {
    static constexpr const char* kName = "gather";
    static constexpr const char* kDoc = "elements along a dimension by their numbers";
    static constexpr CastClass kCast = CastClass::keep;
    int axis;
    Shape from;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor x = dense(in[0]), index = dense(in[1]);
        Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
        kernels_for(x.device()).gather(span_of(from, axis), index.size(axis), x.view(), index.view(), y.view());
        ctx.save(index);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor index = ctx.saved(0);
        // Several picks of one element add up, in FP32.
        Tensor gx = filled(from, sum_dtype(g.dtype()), g.device(), 0);
        kernels_for(g.device())
            .scatter_add(span_of(from, axis), index.size(axis), dense(g).view(), index.view(), gx.view());
        return {gx.dtype() == g.dtype() ? gx : converted_to(gx, g.dtype()), Tensor{}};
    }
};

}  // namespace

void check_indices(const char* op, const Tensor& index, std::int64_t limit, std::optional<std::int64_t> allowed) {
    if (index.dtype() != Dtype::i64) fail("{}: indices must be i64, not {}", op, index.str());
    if (!index.device().is_cpu()) return;  // reading them would wait for the device
    const Tensor flat = dense(index);
    const std::int64_t* values = flat.data<std::int64_t>();
    for (std::int64_t i = 0; i < flat.numel(); ++i)
        if ((values[i] < 0 || values[i] >= limit) && values[i] != allowed)
            fail("{}: index {} at position {} is outside [0, {})", op, values[i], i, limit);
}

Tensor embedding(const Tensor& ids, const Tensor& table) {
    if (table.rank() != 2 || !is_floating(table.dtype()))
        fail("embedding: the table must be a floating [rows, width], not {}", table.str());
    check_indices("embedding", ids, table.size(0));
    return rows_at(table, ids);
}

Tensor rows_at(const Tensor& table, const Tensor& ids) {
    return apply(Embedding{}, {ids, table});
}

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
    const int axis = x.shape().axis(dim);
    bool fits = index.rank() == x.rank();
    for (int i = 0; fits && i < x.rank(); ++i) fits = i == axis || index.size(i) == x.size(i);
    if (!fits)
        fail("gather: index {} for {} along dimension {}; all other sizes must agree", index.shape().str(),
             x.shape().str(), axis);
    check_indices("gather", index, x.size(axis));
    return apply(Gather{axis, x.shape()}, {x, index});
}

}  // namespace invar::ops
