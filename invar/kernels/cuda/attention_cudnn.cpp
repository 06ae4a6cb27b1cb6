// cuDNN's fused attention in 16 bits. It is asked for as the graph of operations that the fused engines know: scores,
// scale, mask, softmax, weights times values; and for backward the chain of their derivatives.
#include <array>
#include <limits>
#include <map>
#include <mutex>

#include "invar/kernels/cuda/attention.h"
#include "invar/kernels/cuda/cudnn_graph.h"
#include "invar/kernels/cuda/device.h"

namespace invar::cuda {

namespace {

using Four = std::array<std::int64_t, 4>;

// Names of the tensors that a call brings; those between operations are numbered from kFirstVirtual on.
enum Id : std::int64_t {
    kQ = 1,
    kK,
    kV,
    kY,
    kStats,
    kGradY,
    kGradQ,
    kGradK,
    kGradV,
    kScale,
    kUnseen,
    kOne,
    kRowSums,
    kSumQ,
    kFirstVirtual = 100
};

struct Layout {
    Four size, stride;
    auto operator<=>(const Layout&) const = default;
};

Layout layout_of(const View& v) {
    Layout made{};
    for (std::size_t d = 0; d < 4; ++d) made.size[d] = v.size[d], made.stride[d] = v.stride[d];
    made.stride[3] = 1;
    return made;
}

Layout dense(const Four& size) {
    return {size, {size[1] * size[2] * size[3], size[2] * size[3], size[3], 1}};
}

Layout turned(Layout layout) {
    std::swap(layout.size[2], layout.size[3]);
    std::swap(layout.stride[2], layout.stride[3]);
    return layout;
}

// Builds a graph: tensors by their index among the parts, operations in the order they are added.
class Builder {
  public:
    using Ref = std::size_t;

    explicit Builder(cudnnDataType_t type) : type_(type) { tensors_.reserve(64), parts_.reserve(64); }

    Ref tensor(std::int64_t id, const Layout& layout, cudnnDataType_t type) {
        return add(id, layout, type, false, false);
    }
    Ref operand(std::int64_t id, const Layout& layout) { return tensor(id, layout, type_); }
    // A number that the host gives with each call.
    Ref constant(std::int64_t id) { return add(id, dense({1, 1, 1, 1}), CUDNN_DATA_FLOAT, false, true); }
    Ref between(const Layout& layout, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
        return add(next_++, layout, type, true, false);
    }
    cudnnDataType_t type() const { return type_; }

    void multiply(Ref a, Ref b, Ref c) {
        Descriptor what(CUDNN_BACKEND_MATMUL_DESCRIPTOR), made(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
        what.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
        made.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[a]).set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[b]);
        made.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[c]).set(CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
        finish(std::move(what), std::move(made));
    }
    // y = mode(x), mode(x, second) or, for a selection, second where `chosen` is false.
    struct Pointwise {
        Ref x, y;
        std::int64_t second = -1, chosen = -1, axis = -1;
        cudnnDataType_t math = CUDNN_DATA_FLOAT;
    };
    void pointwise(cudnnPointwiseMode_t mode, const Pointwise& p) {
        Descriptor what(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
        what.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
        what.set(CUDNN_ATTR_POINTWISE_MATH_PREC, p.math);
        if (p.axis >= 0) what.set(CUDNN_ATTR_POINTWISE_AXIS, p.axis);
        what.finalize();
        made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
        made.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[p.x]);
        if (p.second >= 0) made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_[std::size_t(p.second)]);
        if (p.chosen >= 0) made.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors_[std::size_t(p.chosen)]);
        made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[p.y]);
        finish(std::move(what), std::move(made));
    }
    Ref binary(cudnnPointwiseMode_t mode, Ref a, Ref b, const Layout& layout) {
        const Ref y = between(layout);
        pointwise(mode, {.x = a, .y = y, .second = std::int64_t(b)});
        return y;
    }
    Ref unary(cudnnPointwiseMode_t mode, Ref x, const Layout& layout) {
        const Ref y = between(layout);
        pointwise(mode, {.x = x, .y = y});
        return y;
    }
    void reduce(cudnnReduceTensorOp_t how, Ref x, Ref y) {
        Descriptor what(CUDNN_BACKEND_REDUCTION_DESCRIPTOR), made(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
        what.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
        what.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT).finalize();
        made.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[x])
            .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[y]);
        made.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
        finish(std::move(what), std::move(made));
    }
    // The same values seen in another layout.
    Ref seen_as(Ref x, const Layout& layout, cudnnDataType_t type) {
        const Ref y = between(layout, type);
        Descriptor made(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
        made.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[x]).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[y]);
        good_ = made.try_finalize() && good_;
        operations_.push_back(std::move(made));
        return y;
    }
    // x where the query stands behind the key or at it, else -inf: next to a finite number, scores that are -inf
    // themselves would give their weight to keys that are not seen.
    Ref causal(Ref x, const Layout& scores) {
        const Ref row = between(scores, CUDNN_DATA_INT32), column = between(scores, CUDNN_DATA_INT32);
        const Ref sees = between(scores, CUDNN_DATA_BOOLEAN), y = between(scores);
        pointwise(CUDNN_POINTWISE_GEN_INDEX, {.x = x, .y = row, .axis = 2, .math = CUDNN_DATA_INT32});
        pointwise(CUDNN_POINTWISE_GEN_INDEX, {.x = x, .y = column, .axis = 3, .math = CUDNN_DATA_INT32});
        pointwise(CUDNN_POINTWISE_CMP_GE,
                  {.x = row, .y = sees, .second = std::int64_t(column), .math = CUDNN_DATA_BOOLEAN});
        pointwise(CUDNN_POINTWISE_BINARY_SELECT,
                  {.x = x, .y = y, .second = std::int64_t(constant(kUnseen)), .chosen = std::int64_t(sees)});
        return y;
    }

    std::unique_ptr<GraphPlan> plan(const EngineRules& rules) {
        if (!good_) return nullptr;
        std::vector<Descriptor> all;
        all.reserve(tensors_.size() + parts_.size() + operations_.size() + 1);
        for (Descriptor& each : tensors_) all.push_back(std::move(each));
        for (Descriptor& each : parts_) all.push_back(std::move(each));
        const std::size_t count = operations_.size();
        for (Descriptor& each : operations_) all.push_back(std::move(each));
        auto made = std::make_unique<GraphPlan>(std::move(all));
        return made->choose(count, rules) ? std::move(made) : nullptr;
    }

  private:
    Ref add(std::int64_t id, const Layout& layout, cudnnDataType_t type, bool is_virtual, bool by_value) {
        if (by_value)
            if (const auto found = constants_.find(id); found != constants_.end()) return found->second;
        Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
            .set(CUDNN_ATTR_TENSOR_DIMENSIONS, layout.size)
            .set(CUDNN_ATTR_TENSOR_STRIDES, layout.stride);
        made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
        made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t(by_value ? 4 : 16));
        if (is_virtual) made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
        if (by_value) made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
        good_ = made.try_finalize() && good_;
        tensors_.push_back(std::move(made));
        if (by_value) constants_[id] = tensors_.size() - 1;
        return tensors_.size() - 1;
    }
    void finish(Descriptor what, Descriptor operation) {
        good_ = operation.try_finalize() && good_;
        parts_.push_back(std::move(what));
        operations_.push_back(std::move(operation));
    }

    cudnnDataType_t type_;
    bool good_ = true;
    std::int64_t next_ = kFirstVirtual;
    std::vector<Descriptor> tensors_, parts_, operations_;
    std::map<std::int64_t, Ref> constants_;
};

// Everything that a plan depends on.
struct Key {
    Dtype dtype;
    bool causal, deterministic;
    Layout q, k, v, y, gy, gq, gk, gv;
    auto operator<=>(const Key&) const = default;
};

struct Shapes {
    Layout scores, rows;
    explicit Shapes(const Key& key)
        : scores(dense({key.q.size[0], key.q.size[1], key.q.size[2], key.k.size[2]})),
          rows(dense({key.q.size[0], key.q.size[1], key.q.size[2], 1})) {}
};

Builder::Ref scaled_scores(Builder& build, Builder::Ref q, Builder::Ref k_turned, const Shapes& shapes) {
    const Builder::Ref products = build.between(shapes.scores);
    build.multiply(q, k_turned, products);
    return build.binary(CUDNN_POINTWISE_MUL, products, build.constant(kScale), shapes.scores);
}

cudnnDataType_t type_of(Dtype dtype) {
    return dtype == Dtype::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
}

std::unique_ptr<GraphPlan> forward_plan(const Key& key) {
    Builder build(type_of(key.dtype));
    const Shapes shapes(key);
    const auto q = build.operand(kQ, key.q), k = build.operand(kK, turned(key.k)), v = build.operand(kV, key.v);
    auto scores = scaled_scores(build, q, k, shapes);
    if (key.causal) scores = build.causal(scores, shapes.scores);
    const auto top = build.between(shapes.rows), sums = build.between(shapes.rows);
    build.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, top);
    const auto below = build.binary(CUDNN_POINTWISE_SUB, scores, top, shapes.scores);
    const auto powers = build.unary(CUDNN_POINTWISE_EXP, below, shapes.scores);
    build.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sums);
    const auto logs = build.unary(CUDNN_POINTWISE_LOG, sums, shapes.rows);
    const auto stats = build.tensor(kStats, shapes.rows, CUDNN_DATA_FLOAT);
    build.pointwise(CUDNN_POINTWISE_ADD, {.x = top, .y = stats, .second = std::int64_t(logs)});
    const auto weights = build.between(shapes.scores, build.type());
    build.pointwise(CUDNN_POINTWISE_DIV, {.x = powers, .y = weights, .second = std::int64_t(sums)});
    build.multiply(weights, v, build.operand(kY, key.y));
    return build.plan({.tensor_cores = true, .deterministic = key.deterministic});
}

std::unique_ptr<GraphPlan> backward_plan(const Key& key) {
    Builder build(type_of(key.dtype));
    const Shapes shapes(key);
    const auto q = build.operand(kQ, key.q), k = build.operand(kK, turned(key.k)), v = build.operand(kV, turned(key.v));
    const auto y = build.operand(kY, key.y), gy = build.operand(kGradY, key.gy);
    const auto stats = build.tensor(kStats, shapes.rows, CUDNN_DATA_FLOAT);
    const Four& queries = key.q.size;

    // The sum over a row of gy y, which is that of its weights with their gradients.
    Layout products_layout = dense(key.y.size);
    const auto products = build.binary(CUDNN_POINTWISE_MUL, gy, y, products_layout);
    const auto summed = build.between(shapes.rows), row_sums = build.tensor(kRowSums, shapes.rows, CUDNN_DATA_FLOAT);
    build.reduce(CUDNN_REDUCE_TENSOR_ADD, products, summed);
    build.pointwise(CUDNN_POINTWISE_MUL, {.x = summed, .y = row_sums, .second = std::int64_t(build.constant(kOne))});

    // The weights again, and the gradient of the values.
    auto scores = scaled_scores(build, q, k, shapes);
    scores = build.binary(CUDNN_POINTWISE_SUB, scores, stats, shapes.scores);
    if (key.causal) scores = build.causal(scores, shapes.scores);
    const auto weights = build.unary(CUDNN_POINTWISE_EXP, scores, shapes.scores);
    const Layout upright = turned(shapes.scores);
    const auto spread = [&](Builder::Ref turned_weights, Builder::Ref other, Id id, const Layout& result) {
        if (key.k.size[1] == queries[1]) return build.multiply(turned_weights, other, build.operand(id, result));
        const auto every =
            build.between(dense({result.size[0], queries[1], result.size[2], result.size[3]}), build.type());
        build.multiply(turned_weights, other, every);
        build.reduce(CUDNN_REDUCE_TENSOR_ADD, every, build.operand(id, result));
    };
    spread(build.seen_as(weights, upright, build.type()), gy, kGradV, key.gv);

    // The gradients of the weights, of the scores, of keys and queries.
    const auto gw = build.between(shapes.scores);
    build.multiply(gy, v, gw);
    const auto centred = build.binary(CUDNN_POINTWISE_SUB, gw, row_sums, shapes.scores);
    const auto through = build.binary(CUDNN_POINTWISE_MUL, centred, weights, shapes.scores);
    const auto gs = build.binary(CUDNN_POINTWISE_MUL, through, build.constant(kScale), shapes.scores);
    spread(build.seen_as(gs, upright, build.type()), q, kGradK, key.gk);
    const auto keys = build.seen_as(k, key.k, build.type());
    if (key.deterministic) {
        build.multiply(gs, keys, build.operand(kGradQ, key.gq));
    } else {  // summed over blocks of keys as they are done
        const auto sum = build.tensor(kSumQ, dense(queries), CUDNN_DATA_FLOAT);
        build.multiply(gs, keys, sum);
        build.pointwise(CUDNN_POINTWISE_IDENTITY, {.x = sum, .y = build.operand(kGradQ, key.gq)});
    }
    return build.plan({.tensor_cores = true, .deterministic = false});
}

struct Plans {
    std::unique_ptr<GraphPlan> forward, backward;
};

// Made once for each case; both or neither, so that what forward keeps is what backward wants.
Plans* plans_for(const Key& key) {
    static std::mutex mutex;
    static std::map<Key, Plans> plans;
    const std::lock_guard lock(mutex);
    const auto [found, fresh] = plans.try_emplace(key);
    Plans& made = found->second;
    if (fresh) {
        made.forward = forward_plan(key);
        if (made.forward) made.backward = backward_plan(key);
    }
    return made.backward ? &made : nullptr;
}

bool fits(const View& v) {
    if (v.size[3] > 1 && v.stride[3] != 1) return false;
    if (reinterpret_cast<std::uintptr_t>(v.data) % 16 != 0) return false;
    for (int d = 0; d < 3; ++d)
        if (v.stride[d] % 8 != 0) return false;
    return true;
}

// What the plan for a forward pass is found by: gradients lie as they would be made for it.
Key key_for(const AttentionSpec& s, const AttentionTensors& t) {
    Key key{t.q.dtype,
            s.causal,
            options().deterministic,
            layout_of(t.q),
            layout_of(t.k),
            layout_of(t.v),
            layout_of(t.y),
            {},
            {},
            {},
            {}};
    key.gy = t.gy ? layout_of(t.gy) : key.y;
    key.gq = t.gq ? layout_of(t.gq) : key.q;
    key.gk = t.gk ? layout_of(t.gk) : key.k;
    key.gv = t.gv ? layout_of(t.gv) : key.v;
    return key;
}

bool may_serve(const AttentionSpec& s, const AttentionTensors& t) {
    const bool narrow = t.q.dtype == Dtype::f16 || t.q.dtype == Dtype::bf16;
    // Its engines take the largest score before they scale it.
    if (!narrow || !s.plain() || !(s.scale > 0) || s.width % 8 != 0 || s.value_width % 8 != 0 || s.width > 128 ||
        s.value_width > 128)
        return false;
    if (s.queries < 2 || s.keys < 2) return false;  // with a key there is one that every query sees
    for (const View* v : {&t.q, &t.k, &t.v, &t.y, &t.gy, &t.gq, &t.gk, &t.gv})
        if (*v && !fits(*v)) return false;
    // Before 9.15.1 backward under replay was seen to fault where keys do not fill blocks of 128.
    return cudnnGetVersion() >= 91501 || s.keys % 128 == 0;
}

// By the fastest of the engines that serve, where the choice may differ from run to run.
void run(GraphPlan& plan, std::span<const Binding> bindings) {
    if (!plan.timed() && may_time_candidates()) plan.choose_by_timing(bindings);
    plan.run(bindings);
}

// Numbers that cuDNN reads from the host when it is called.
struct Constants {
    float scale, unseen = -std::numeric_limits<float>::infinity(), one = 1.0f;
};

}  // namespace

bool fused_attention(const AttentionSpec& s, const AttentionTensors& t) {
    if (!may_serve(s, t)) return false;
    Plans* const plans = plans_for(key_for(s, t));
    if (plans == nullptr) return false;
    Constants c{float(s.scale)};
    std::vector<Binding> bindings{{kQ, t.q.data}, {kK, t.k.data},        {kV, t.v.data},
                                  {kY, t.y.data}, {kStats, t.kept.data}, {kScale, &c.scale}};
    if (s.causal) bindings.push_back({kUnseen, &c.unseen});
    run(*plans->forward, bindings);
    show_nonfinite_rows(s, t.y, t.kept);
    return true;
}

bool fused_attention_backward(const AttentionSpec& s, const AttentionTensors& t) {
    if (!may_serve(s, t)) return false;
    Plans* const plans = plans_for(key_for(s, t));
    if (plans == nullptr) return false;
    Constants c{float(s.scale)};
    const std::int64_t rows = s.batch * s.heads * s.queries;
    const Scratch row_sums(std::size_t(rows) * sizeof(float));
    const Scratch sum_q(options().deterministic ? 0 : std::size_t(rows * s.width) * sizeof(float));
    std::vector<Binding> bindings{{kQ, t.q.data},      {kK, t.k.data},        {kV, t.v.data},
                                  {kY, t.y.data},      {kStats, t.kept.data}, {kScale, &c.scale},
                                  {kGradY, t.gy.data}, {kGradQ, t.gq.data},   {kGradK, t.gk.data},
                                  {kGradV, t.gv.data}, {kOne, &c.one},        {kRowSums, row_sums.data()}};
    if (s.causal) bindings.push_back({kUnseen, &c.unseen});
    if (!options().deterministic) bindings.push_back({kSumQ, sum_q.data()});
    run(*plans->backward, bindings);
    return true;
}

}  // namespace invar::cuda
