// Attention against the plain form in f64: products, masks and softmax written out over all pairs of positions.
#include "invar/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/autograd/node.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/ops/gradcheck.h"

namespace invar {
namespace {

using ops::AttentionOptions;
using testing::random_values;

struct Sizes {
    std::int64_t batch, heads, kv_heads, queries, keys, width;
};

struct Result {
    std::vector<double> y, gq, gk, gv;
};

// Element by element in double; `share(b, h, q, k)` is what dropout leaves of a weight.
template <class Sees, class Bias, class Share>
Result plain_form(const Sizes& s, const std::vector<double>& q, const std::vector<double>& k,
                  const std::vector<double>& v, const std::vector<double>& gy, const Sees& sees, const Bias& bias,
                  const Share& share) {
    const std::int64_t d = s.width;
    Result r{std::vector<double>(gy.size()), std::vector<double>(q.size()), std::vector<double>(k.size()),
             std::vector<double>(v.size())};
    const double scale = 1 / std::sqrt(double(d));
    for (std::int64_t b = 0; b < s.batch; ++b)
        for (std::int64_t h = 0; h < s.heads; ++h)
            for (std::int64_t i = 0; i < s.queries; ++i) {
                const std::int64_t kv = h / (s.heads / s.kv_heads), at = ((b * s.heads + h) * s.queries + i) * d;
                const auto key = [&](std::int64_t j) { return std::size_t(((b * s.kv_heads + kv) * s.keys + j) * d); };
                std::vector<double> p(std::size_t(s.keys), 0.0), g(p.size());
                double top = -INFINITY, sum = 0, mean = 0;
                for (std::int64_t j = 0; j < s.keys; ++j) {
                    double score = 0;
                    for (std::int64_t c = 0; c < d; ++c) score += q[std::size_t(at + c)] * k[key(j) + std::size_t(c)];
                    p[std::size_t(j)] = sees(b, i, j) ? score * scale + bias(b, h, i, j) : -INFINITY;
                    top = std::max(top, p[std::size_t(j)]);
                }
                if (top == -INFINITY) continue;
                for (double& x : p) x = std::exp(x - top), sum += x;
                for (std::int64_t j = 0; j < s.keys; ++j) {
                    double& weight = p[std::size_t(j)];
                    weight /= sum;
                    const double left = share(b, h, i, j);
                    for (std::int64_t c = 0; c < d; ++c) {
                        const std::size_t to = std::size_t(at + c), from = key(j) + std::size_t(c);
                        r.y[to] += weight * left * v[from];
                        r.gv[from] += weight * left * gy[to];
                        g[std::size_t(j)] += left * gy[to] * v[from];
                    }
                    mean += weight * g[std::size_t(j)];
                }
                for (std::int64_t j = 0; j < s.keys; ++j) {
                    const double gs = p[std::size_t(j)] * (g[std::size_t(j)] - mean) * scale;
                    for (std::int64_t c = 0; c < d; ++c) {
                        r.gq[std::size_t(at + c)] += gs * k[key(j) + std::size_t(c)];
                        r.gk[key(j) + std::size_t(c)] += gs * q[std::size_t(at + c)];
                    }
                }
            }
    return r;
}

double norm(const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += v * v;
    return std::sqrt(sum);
}

double distance(const Tensor& ours, const std::vector<double>& theirs) {
    std::vector<double> difference = ours.to_vector<double>();
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= theirs[i];
    return norm(difference) / std::max(norm(theirs), 1e-30);
}

struct Operands {
    Tensor q, k, v, gy;
    std::vector<double> values(const Tensor& x) const { return x.to_vector<double>(); }
};

Operands make(const Sizes& s, Dtype dtype) {
    const auto leaf = [&](std::int64_t heads, std::int64_t length, std::uint64_t seed) {
        const Shape shape{s.batch, heads, length, s.width};
        return Tensor::from(random_values(shape.numel(), -2, 2, seed), shape, dtype);
    };
    Operands o{leaf(s.heads, s.queries, 1), leaf(s.kv_heads, s.keys, 2), leaf(s.kv_heads, s.keys, 3),
               leaf(s.heads, s.queries, 4)};
    for (Tensor* x : {&o.q, &o.k, &o.v}) x->set_requires_grad();
    return o;
}

// Relative to the norm of each result: some roundings of operands and of the weights between the two products.
double tolerance(Dtype dtype) {
    return dtype == Dtype::f64 ? 1e-13 : dtype == Dtype::f32 ? 2e-6 : dtype == Dtype::f16 ? 2e-3 : 1.6e-2;
}

constexpr auto kAll = [](std::int64_t, std::int64_t, std::int64_t) { return true; };
constexpr auto kNone = [](std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return 0.0; };
constexpr auto kWhole = [](std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return 1.0; };

template <class Sees = decltype(kAll), class Bias = decltype(kNone), class Share = decltype(kWhole)>
void expect_plain_form(const Sizes& s, Dtype dtype, const AttentionOptions& options, const Sees& sees = kAll,
                       const Bias& bias = kNone, const Share& share = kWhole) {
    const Operands o = make(s, dtype);
    const Tensor y = ops::attention(o.q, o.k, o.v, options);
    EXPECT_EQ(y.dtype(), dtype);
    backward(y, o.gy);
    const Result r = plain_form(s, o.values(o.q), o.values(o.k), o.values(o.v), o.values(o.gy), sees, bias, share);
    const std::string what = fmt::format("{} keys, {}", s.keys, name_of(dtype));
    EXPECT_LE(distance(y, r.y), tolerance(dtype)) << what;
    EXPECT_LE(distance(o.q.grad(), r.gq), 2 * tolerance(dtype)) << what;
    EXPECT_LE(distance(o.k.grad(), r.gk), 2 * tolerance(dtype)) << what;
    EXPECT_LE(distance(o.v.grad(), r.gv), 2 * tolerance(dtype)) << what;
}

TEST(Attention, IsThePlainFormAtAnyLength) {
    const auto causal = [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i; };
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16})
        for (const std::int64_t length : {1, 2, 63, 64, 65, 197}) {
            expect_plain_form({2, 3, 3, length, length, 16}, dtype, {});
            expect_plain_form({2, 3, 3, length, length, 16}, dtype, {.causal = true}, causal);
        }
    expect_plain_form({1, 2, 2, 5, 130, 8}, Dtype::f32, {});
    expect_plain_form({1, 2, 2, 130, 5, 8}, Dtype::f32, {.causal = true}, causal);
    expect_plain_form({1, 1, 1, 1030, 1030, 4}, Dtype::f32, {.causal = true}, causal);
}

TEST(Attention, SharesHeadsOfKeysAndValues) {
    for (const std::int64_t kv_heads : {1, 2, 3, 6}) expect_plain_form({2, 6, kv_heads, 70, 70, 8}, Dtype::f32, {});
}

TEST(Attention, SeesNoPaddingAndNoOtherDocument) {
    const std::int64_t length = 70;
    std::vector<std::int64_t> seen, document;
    for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t j = 0; j < length; ++j) {
            seen.push_back(b == 0 ? j % 3 != 1 : j >= 66);  // no key before 66: queries without any
            document.push_back((j + 13 * b) / 20);
        }
    const auto at = [length](const std::vector<std::int64_t>& x, std::int64_t b, std::int64_t j) {
        return x[std::size_t(b * length + j)];
    };
    const Tensor mask = ops::cast(Tensor::from(seen, {2, length}), Dtype::boolean);
    const Tensor documents = Tensor::from(document, {2, length});
    const Sizes s{2, 2, 1, length, length, 8};
    expect_plain_form(s, Dtype::f32, {.key_mask = mask},
                      [&](std::int64_t b, std::int64_t, std::int64_t j) { return at(seen, b, j) != 0; });
    expect_plain_form(s, Dtype::f32, {.causal = true, .documents = documents},
                      [&](std::int64_t b, std::int64_t i, std::int64_t j) {
                          return j <= i && at(document, b, i) == at(document, b, j);
                      });
    expect_plain_form(s, Dtype::f64, {.causal = true, .key_mask = mask, .documents = documents},
                      [&](std::int64_t b, std::int64_t i, std::int64_t j) {
                          return j <= i && at(seen, b, j) != 0 && at(document, b, i) == at(document, b, j);
                      });
}

TEST(Attention, AddsABias) {
    const Sizes s{2, 3, 3, 20, 33, 8};
    const std::vector<double> values = random_values(3 * 20 * 33, -3, 3, 8);
    expect_plain_form(s, Dtype::f64, {.bias = Tensor::from(values, {3, 20, 33})}, kAll,
                      [&](std::int64_t, std::int64_t h, std::int64_t i, std::int64_t j) {
                          return values[std::size_t((h * 20 + i) * 33 + j)];
                      });
}

TEST(Attention, DropsWeightsForwardAndBackwardAlike) {
    const Sizes s{2, 2, 1, 66, 66, 4};
    const double p = 0.25;
    // Values that are a column of ones for one key at a time show the weight of that key.
    const Operands o = make(s, Dtype::f64);
    const Shape shape{s.batch, s.kv_heads, s.keys, s.keys};
    std::vector<double> identity(std::size_t(shape.numel()), 0.0);
    for (std::int64_t b = 0; b < s.batch * s.kv_heads; ++b)
        for (std::int64_t j = 0; j < s.keys; ++j) identity[std::size_t((b * s.keys + j) * s.keys + j)] = 1;
    const NoGrad no_grad;
    const Tensor eye = Tensor::from(identity, shape);
    const RngState start = default_generator().state();
    const std::vector<double> dropped =
        ops::attention(o.q, o.k, eye, {.causal = true, .dropout = p}).to_vector<double>();
    const std::vector<double> whole = ops::attention(o.q, o.k, eye, {.causal = true}).to_vector<double>();
    std::int64_t gone = 0, there = 0;
    std::vector<double> share(whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
        if (whole[i] == 0) continue;
        share[i] = dropped[i] / whole[i];
        EXPECT_TRUE(share[i] == 0 || std::fabs(share[i] - 4.0 / 3) < 1e-6) << share[i];
        ++(share[i] == 0 ? gone : there);
    }
    const double count = double(gone + there);
    EXPECT_NEAR(double(gone) / count, p, 4 * std::sqrt(p * (1 - p) / count));
    default_generator().set_state(start);
    const GradMode recording(true);
    expect_plain_form(
        s, Dtype::f64, {.causal = true, .dropout = p},
        [](std::int64_t, std::int64_t i, std::int64_t j) { return j <= i; }, kNone,
        [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
            return share[std::size_t(((b * s.heads + h) * s.queries + i) * s.keys + j)];
        });
}

TEST(Attention, OfPartsSideBySideIsThatOfTheParts) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        const std::int64_t b = 2, t = 67, h = 4, kv = 2, d = 8;
        Tensor qkv = Tensor::from(random_values(b * t * (h + 2 * kv) * d, -2, 2, 1), {b, t, (h + 2 * kv) * d}, dtype);
        qkv.set_requires_grad();
        const Tensor gy = Tensor::from(random_values(b * t * h * d, -1, 1, 2), {b, t, h * d}, dtype);
        const Tensor y = ops::self_attention(qkv, h, kv, {.causal = true});
        backward(y, gy);
        const Tensor whole = qkv.grad();
        qkv.set_grad({});
        const auto part = [&](std::int64_t first, std::int64_t heads) {
            const Tensor x = qkv[{Slice{}, Slice{}, Slice{first * d, (first + heads) * d}}];
            return ops::permute(ops::reshape(x, {b, t, heads, d}), {0, 2, 1, 3});
        };
        const Tensor z = ops::attention(part(0, h), part(h, kv), part(h + kv, kv), {.causal = true});
        const Tensor rows = ops::reshape(ops::permute(z, {0, 2, 1, 3}), {b, t, h * d});
        EXPECT_EQ(rows.to_vector<double>(), y.to_vector<double>());
        backward(rows, gy);
        EXPECT_EQ(qkv.grad().to_vector<double>(), whole.to_vector<double>());
    }
}

TEST(Attention, OfALongSequenceTakesMemoryForBlocksAlone) {
    const Sizes s{1, 1, 1, 8192, 8192, 8};
    const Operands o = make(s, Dtype::f32);
    reset_peak_memory(Device::cpu());
    const std::int64_t before = memory_stats(Device::cpu()).peak_total;
    backward(ops::attention(o.q, o.k, o.v, {.causal = true}), o.gy);
    const std::int64_t all_pairs = 8192LL * 8192 * 4;
    EXPECT_LT(memory_stats(Device::cpu()).peak_total - before, all_pairs / 16);
    // The last query sees all keys: its row by itself.
    const Tensor last = ops::attention(o.q.detach()[{Slice{}, Slice{}, Slice{8191, 8192}}], o.k.detach(), o.v.detach());
    const NoGrad no_grad;
    const Tensor all = ops::attention(o.q, o.k, o.v, {.causal = true});
    EXPECT_LE(distance(last, all[{Slice{}, Slice{}, Slice{8191, 8192}}].to_vector<double>()), 4e-6);
}

TEST(Attention, RefusesWhatDoesNotGoTogether) {
    const Tensor q = ops::zeros({2, 4, 5, 8}), k = ops::zeros({2, 3, 5, 8}), ids = ops::zeros({2, 5}, Dtype::i64);
    EXPECT_ERROR(ops::attention(q, k, k), Error, "4 heads cannot share 3 heads");
    EXPECT_ERROR(ops::attention(q, ops::zeros({2, 4, 5, 6}), q), Error, "do not go together");
    EXPECT_ERROR(ops::attention(q, q, q, {.key_mask = ids}), Error, "must be boolean [2, 5]");
    EXPECT_ERROR(ops::attention(q, q, q, {.documents = ops::zeros({2, 4}, Dtype::i64)}), Error, "integers [2, 5]");
    EXPECT_ERROR(ops::attention(q, q, q, {.dropout = 1.0}), UsageError, "must lie in [0, 1)");
    EXPECT_ERROR(ops::attention(q, q, q, {.bias = ops::zeros({5, 5}).set_requires_grad()}), UsageError, "no gradient");
    EXPECT_ERROR(ops::self_attention(ops::zeros({2, 5, 20}), 4, 2), Error, "is not [batch, length");
}

}  // namespace
}  // namespace invar
