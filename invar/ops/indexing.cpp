#include "invar/ops/indexing.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/cast.h"
#include "invar/ops/index.h"
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
        const Tensor counted = padding_idx ? without_padding(ids, g) : dense(g);
        kernels_for(g.device()).embedding_backward(counted.view(), ids.view(), slot.view());
        return {Tensor{}, slot.result()};
    }
    // Zeros where the padding was looked up: added to its row they change nothing, whatever is there from elsewhere.
    Tensor without_padding(const Tensor& ids, const Tensor& g) const {
        Kernels& kernels = kernels_for(g.device());
        Tensor learns = Tensor::empty_like(ids, Dtype::boolean), result = Tensor::empty_like(g);
        kernels.compare({CompareOp::ne, Dtype::i64, 0, *padding_idx}, ids.view(), View{}, learns.view());
        Shape column = ids.shape();
        column.push_back(1);
        const Tensor zero = filled({}, g.dtype(), g.device(), 0);
        kernels.where(expanded(learns.window(0, column), g.shape()).view(), g.view(), expanded(zero, g.shape()).view(),
                      result.view());
        return result;
    }
    std::optional<std::int64_t> padding_idx = {};
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

struct OneHot {
    static constexpr const char* kName = "one_hot";
    static constexpr const char* kDoc = "numbers as rows of zeros with a one at their place";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr bool kNoGradient = true;
    std::int64_t classes;

    Tensor forward(const Tensors& in) {
        Kernels& kernels = kernels_for(in[0].device());
        Shape shape = in[0].shape(), column = in[0].shape();
        shape.push_back(classes), column.push_back(1);
        const Tensor numbers = Tensor::empty({classes}, Dtype::i64, in[0].device());
        kernels.arange(numbers.view(), 0);
        const Tensor hits = Tensor::empty(shape, Dtype::boolean, in[0].device());
        kernels.compare({CompareOp::eq, Dtype::i64}, expanded(dense(in[0]).window(0, column), shape).view(),
                        expanded(numbers, shape).view(), hits.view());
        return converted_to(hits, Dtype::i64);
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

Tensor embedding(const Tensor& ids, const Tensor& table, std::optional<std::int64_t> padding_idx) {
    if (table.rank() != 2 || !is_floating(table.dtype()))
        fail("embedding: the table must be a floating [rows, width], not {}", table.str());
    check_indices("embedding", ids, table.size(0));
    if (!padding_idx) return rows_at(table, ids);
    const std::int64_t rows = table.size(0), row = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
    check<UsageError>(row >= 0 && row < rows, "embedding: padding_idx {} is outside {} rows", *padding_idx, rows);
    return apply(Embedding{row}, {ids, table});
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

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
    if (index.rank() > 1) fail("index_select: the index must be a vector, not {}", index.str());
    const int axis = x.shape().axis(dim);
    const Tensor places = index.dtype() == Dtype::i32 ? cast(index, Dtype::i64) : index;
    check_indices("index_select", places, x.size(axis));
    Indices indices{};
    for (int i = 0; i < axis; ++i) indices.all.emplace_back(Slice{});
    indices.all.emplace_back(index.rank() == 1 ? places : places.window(0, {1}));
    return ops::index(x, indices);
}

Tensor one_hot(const Tensor& ids, std::int64_t classes) {
    if (classes < -1 || classes == 0) fail<UsageError>("one_hot: needs at least one class, not {}", classes);
    if (classes == -1 && ids.dtype() == Dtype::i64) {
        if (ids.numel() == 0) fail<UsageError>("one_hot: {} does not tell how many classes there are", ids.str());
        for (const std::int64_t id : ids.to_vector<std::int64_t>()) classes = std::max(classes, id + 1);
    }
    check_indices("one_hot", ids, classes);
    return apply(OneHot{classes}, {ids});
}

}  // namespace invar::ops
