#include "invar/ops/attention.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/kernels/flops.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

// Memory [batch, length, heads, width] seen as [batch, heads, length, width].
Tensor heads_first(const Tensor& x) {
    const std::int64_t b = x.size(0), t = x.size(1), h = x.size(2), d = x.size(3);
    return x.as_strided(0, {b, h, t, d}, {t * h * d, d, h * d, 1});
}

// What an operand of a kernel must be: neighbours of a head's width side by side, and nothing in two places.
Tensor dense_widths(const Tensor& x) {
    bool good = x.size(3) <= 1 || x.strides()[3] == 1;
    for (int d = 0; d < 3; ++d) good = good && (x.size(d) <= 1 || x.strides()[d] >= x.size(3));
    return good ? x : dense(x);
}

// The tensors that an AttentionSpec only points to.
struct Masks {
    Tensor key_mask, documents, bias;
};

// What both forms share: the sizes and masks as kernels want them, and the calls.
struct AttentionCore {
    AttentionSpec spec;
    Masks masks;

    // Made anew for each call: the views go with the tensors.
    AttentionSpec with_masks() const {
        AttentionSpec full = spec;
        full.seen = view_of(masks.key_mask);
        full.documents = view_of(masks.documents);
        full.bias = view_of(masks.bias);
        return full;
    }
    void count(int products) const {
        const double pairs = double(spec.queries) * double(spec.keys) * (spec.causal ? 0.5 : 1.0);
        const double widths = double(spec.width + spec.value_width);
        count_flops(double(products) * pairs * widths * double(spec.batch * spec.heads));
    }
    // y [batch, queries, heads, value width] and what backward needs of it.
    std::pair<Tensor, Tensor> forward(const Tensor& q, const Tensor& k, const Tensor& v) const {
        const AttentionSpec s = with_masks();
        Tensor y = Tensor::empty({s.batch, s.queries, s.heads, s.value_width}, q.dtype(), q.device());
        Tensor kept = Tensor::empty({2, s.batch, s.heads, s.queries}, sum_dtype(q.dtype()), q.device());
        count(2);
        if (s.keys == 0)
            kernels_for(y.device()).fill(y.view(), 0);
        else
            kernels_for(y.device()).attention(s, q.view(), k.view(), v.view(), heads_first(y).view(), kept.view());
        return {y, kept};
    }
    void backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& y, const Tensor& kept,
                  const Tensor& gy, const Tensor& gq, const Tensor& gk, const Tensor& gv) const {
        Kernels& kernels = kernels_for(gy.device());
        count(5);  // the products of forward once more, and those of three gradients, two of which share one
        if (spec.keys == 0)
            kernels.fill(gq.view(), 0);
        else
            kernels.attention_backward(with_masks(), q.view(), k.view(), v.view(), heads_first(y).view(), kept.view(),
                                       dense_widths(gy).view(), gq.view(), gk.view(), gv.view());
    }
};

struct Attention {
    static constexpr const char* kName = "attention";
    static constexpr const char* kDoc = "softmax(scale q k^T) v, in blocks; softmax in FP32 inside";
    static constexpr CastClass kCast = CastClass::low;
    AttentionCore core;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor q = dense_widths(in[0]), k = dense_widths(in[1]), v = dense_widths(in[2]);
        const auto [y, kept] = core.forward(q, k, v);
        for (const Tensor& saved : {q, k, v, y, kept}) ctx.save(saved);
        return heads_first(y);
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        const Tensor q = ctx.saved(0), k = ctx.saved(1), v = ctx.saved(2), y = ctx.saved(3), kept = ctx.saved(4);
        const auto like = [](const Tensor& x) {
            return heads_first(Tensor::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.dtype(), x.device()));
        };
        const Tensor gq = like(q), gk = like(k), gv = like(v);
        core.backward(q, k, v, y, kept, gradient, gq, gk, gv);
        return {gq, gk, gv};
    }
};

struct SelfAttention {
    static constexpr const char* kName = "self_attention";
    static constexpr const char* kDoc = "attention over q, k and v that lie side by side";
    static constexpr CastClass kCast = CastClass::low;
    AttentionCore core;

    // Heads from `first` on, `count` of them, of [batch, length, all heads * width].
    Tensor part(const Tensor& qkv, std::int64_t first, std::int64_t count) const {
        const std::int64_t b = qkv.size(0), t = qkv.size(1), row = qkv.size(2), d = core.spec.width;
        return qkv.as_strided(first * d, {b, count, t, d}, {t * row, d, row, 1});
    }
    struct Parts {
        Tensor q, k, v;
    };
    Parts split(const Tensor& qkv) const {
        const std::int64_t h = core.spec.heads, kv = core.spec.kv_heads;
        return {part(qkv, 0, h), part(qkv, h, kv), part(qkv, h + kv, kv)};
    }
    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor qkv = dense(in[0]);
        const Parts p = split(qkv);
        const auto [y, kept] = core.forward(p.q, p.k, p.v);
        for (const Tensor& saved : {qkv, y, kept}) ctx.save(saved);
        return y.window(0, {qkv.size(0), qkv.size(1), core.spec.heads * core.spec.width});
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        const Tensor qkv = ctx.saved(0), y = ctx.saved(1), kept = ctx.saved(2);
        const Tensor gqkv = Tensor::empty_like(qkv);
        const Parts p = split(qkv), g = split(gqkv);
        const Tensor gy = heads_first(dense(gradient).window(0, y.shape()));
        core.backward(p.q, p.k, p.v, y, kept, gy, g.q, g.k, g.v);
        return {gqkv};
    }
};

AttentionCore make_core(const char* op, AttentionSpec spec, const AttentionOptions& o, const Tensor& like) {
    if (spec.kv_heads < 1 || spec.heads % spec.kv_heads != 0)
        fail("{}: {} heads cannot share {} heads of keys and values; they must be a multiple of them", op, spec.heads,
             spec.kv_heads);
    if (!(o.dropout >= 0 && o.dropout < 1))
        fail<UsageError>("{}: the dropout probability must lie in [0, 1), not {}", op, o.dropout);
    spec.causal = o.causal;
    spec.scale = o.scale ? *o.scale : 1.0 / std::sqrt(double(std::max<std::int64_t>(spec.width, 1)));
    Masks masks;
    if (o.key_mask) {
        if (o.key_mask.dtype() != Dtype::boolean || o.key_mask.shape() != Shape{spec.batch, spec.keys})
            fail("{}: the key mask must be boolean [{}, {}], not {}", op, spec.batch, spec.keys, o.key_mask.str());
        masks.key_mask = dense(o.key_mask);
    }
    if (o.documents) {
        if (is_floating(o.documents.dtype()) || o.documents.shape() != Shape{spec.batch, spec.keys} ||
            spec.queries != spec.keys)
            fail("{}: documents must be integers [{}, {}] for as many queries as keys, not {} for {} queries", op,
                 spec.batch, spec.keys, o.documents.str(), spec.queries);
        masks.documents = dense(converted_to(o.documents, Dtype::i32));
    }
    if (o.bias) {
        if (!is_floating(o.bias.dtype())) fail("{}: the bias must be floating, not {}", op, o.bias.str());
        if (o.bias.requires_grad() && GradMode::recording())
            fail<UsageError>(
                "{}: the bias gets no gradient here; detach() it, or write attention with matmul and softmax", op);
        const Dtype dtype = sum_dtype(like.dtype());
        const Tensor bias = o.bias.detach();
        masks.bias = expanded(bias.dtype() == dtype ? bias : converted_to(bias, dtype),
                              {spec.batch, spec.heads, spec.queries, spec.keys});
    }
    for (const Tensor& mask : {masks.key_mask, masks.documents, masks.bias})
        if (mask && mask.device() != like.device())
            fail("{}: a mask is on {}, and q, k and v are on {}", op, mask.device().str(), like.device().str());
    if (o.dropout > 0) {
        spec.dropout = o.dropout;
        const ReservedNumbers numbers = reserve_for_samples(default_generator(), spec.weights(), DropRule::kElements);
        spec.rng = numbers.from, spec.skip = numbers.skip;
    }
    return {spec, masks};
}

void check_operand(const char* op, const char* name, const Tensor& x, int rank) {
    if (x.rank() != rank || !is_floating(x.dtype()))
        fail("{}: {} must be a floating tensor of rank {}, not {}", op, name, rank, x.str());
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
    constexpr const char* kOp = Attention::kName;
    check_operand(kOp, "q", q, 4), check_operand(kOp, "k", k, 4), check_operand(kOp, "v", v, 4);
    AttentionSpec spec;
    spec.batch = q.size(0), spec.heads = q.size(1), spec.queries = q.size(2), spec.width = q.size(3);
    spec.kv_heads = k.size(1), spec.keys = k.size(2), spec.value_width = v.size(3);
    if (k.shape() != Shape{spec.batch, spec.kv_heads, spec.keys, spec.width} ||
        v.shape() != Shape{spec.batch, spec.kv_heads, spec.keys, spec.value_width})
        fail(
            "{}: q {}, k {} and v {} do not go together: [batch, heads, length, width], k as wide as q, v as long as k",
            kOp, q.shape().str(), k.shape().str(), v.shape().str());
    return apply(Attention{make_core(kOp, spec, options, q)}, {q, k, v});
}

Tensor self_attention(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads, const AttentionOptions& options) {
    constexpr const char* kOp = SelfAttention::kName;
    check_operand(kOp, "qkv", qkv, 3);
    const std::int64_t all = heads + 2 * kv_heads;
    if (heads < 1 || kv_heads < 1 || qkv.size(2) % all != 0)
        fail("{}: {} is not [batch, length, ({} + 2 x {}) * width]", kOp, qkv.shape().str(), heads, kv_heads);
    AttentionSpec spec;
    spec.batch = qkv.size(0), spec.heads = heads, spec.kv_heads = kv_heads;
    spec.queries = spec.keys = qkv.size(1);
    spec.width = spec.value_width = qkv.size(2) / all;
    return apply(SelfAttention{make_core(kOp, spec, options, qkv)}, {qkv});
}

}  // namespace invar::ops
