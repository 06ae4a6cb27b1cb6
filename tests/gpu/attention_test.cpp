// Attention on the GPU against the CPU's of the same values: in the cases that cuDNN serves, in those of our own fused
// kernels and in those that neither does; run by operations and replayed from a recording.
#include <array>
#include <cmath>

#include "invar/autograd/node.h"
#include "invar/kernels/kernels.h"
#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"
#include "tests/ops/sample_parts.h"

namespace invar::testing {
namespace {

struct Case {
    std::int64_t batch, heads, kv_heads, queries, keys, width;
    ops::AttentionOptions options = {};  // with masks on the CPU
    std::string str() const {
        return fmt::format("{}x{}/{}x{}x{}x{}{}{}{}{}{}", batch, heads, kv_heads, queries, keys, width,
                           options.causal ? " causal" : "", options.key_mask ? " key mask" : "",
                           options.documents ? " documents" : "", options.bias ? " bias" : "",
                           options.dropout > 0 ? fmt::format(" dropout {}", options.dropout) : "");
    }
};

ops::AttentionOptions with_masks_on_gpu(ops::AttentionOptions options) {
    for (Tensor* mask : {&options.key_mask, &options.documents, &options.bias})
        if (*mask) *mask = ops::to(*mask, Device::cuda());
    return options;
}

// Operands and weights are rounded to 16 bits, and sums over keys are of that many products: relative to the norm of a
// result, some units of the format.
double tolerance(Dtype dtype) {
    return dtype == Dtype::f64 ? 1e-12 : dtype == Dtype::f32 ? 1e-5 : dtype == Dtype::f16 ? 2e-3 : 1.6e-2;
}

// Values that all formats hold, so that one result on the CPU serves them all.
Tensor held_by_all(const Shape& shape, std::uint64_t seed) {
    std::vector<double> values = random_values(shape.numel(), -1, 1, seed);
    for (double& value : values) value = std::round(value * 128) / 128;
    return Tensor::from(values, shape);
}

// The farthest that an element is from where it should be, by the root of the mean square of what should be there.
double farthest(const Tensor& got, const Tensor& exact) {
    const std::vector<double> a = got.to_vector<double>(), b = exact.to_vector<double>();
    double most = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double off = std::fabs(a[i] - b[i]);
        most = off <= most ? most : off;  // NaN is as far as can be
    }
    return most / (norm(b) / std::sqrt(double(b.size())));
}

void expect_close(const Tensor& got, const Tensor& exact, double allowed, const std::string& what) {
    EXPECT_LE(distance(got, exact), allowed) << what;
    // Elements are up to some ten times the mean; one in the wrong place is off by about the mean.
    EXPECT_LE(farthest(got, exact), 16 * allowed) << what << ", an element";
}

// The result and the gradients of q, k and v.
struct Outcome {
    Tensor y, gq, gk, gv;
    std::string bytes() const { return bytes_of(y) + bytes_of(gq) + bytes_of(gk) + bytes_of(gv); }
};

class Attended {
  public:
    Attended(Case c, Dtype exact = Dtype::f64) : case_(std::move(c)) {
        const Case& s = case_;
        const Shape queries{s.batch, s.heads, s.queries, s.width}, keys{s.batch, s.kv_heads, s.keys, s.width};
        in_ = {held_by_all(queries, 1), held_by_all(keys, 2), held_by_all(keys, 3), held_by_all(queries, 4)};
        default_generator().set_state({77, 13});
        exact_ = run(exact, Device::cpu(), case_.options);
    }
    void expect_on_gpu(Dtype dtype, bool deterministic = true) const {
        kernels_for(Device::cuda()).configure({.benchmark = false, .deterministic = deterministic});
        const ops::AttentionOptions options = with_masks_on_gpu(case_.options);
        default_generator().set_state({77, 13});
        const Outcome got = run(dtype, Device::cuda(), options);
        const std::string what =
            fmt::format("{} {}{}", case_.str(), name_of(dtype), deterministic ? " deterministic" : "");
        const double allowed = tolerance(dtype);
        expect_close(got.y, exact_.y, allowed, what);
        if (case_.keys > 1) {  // the weight of a single key is 1, whatever the queries are
            expect_close(got.gq, exact_.gq, 2 * allowed, what + ": queries");
            expect_close(got.gk, exact_.gk, 2 * allowed, what + ": keys");
        }
        expect_close(got.gv, exact_.gv, 2 * allowed, what + ": values");
        if (!deterministic) return;
        default_generator().set_state({77, 13});
        EXPECT_TRUE(got.bytes() == run(dtype, Device::cuda(), options).bytes()) << what << ": a second time";
    }

  private:
    Outcome run(Dtype dtype, Device device, const ops::AttentionOptions& options) const {
        const auto leaf = [&](std::size_t i) { return ops::to(ops::cast(in_[i], dtype), device).detach(); };
        const Tensor q = leaf(0).set_requires_grad(), k = leaf(1).set_requires_grad(), v = leaf(2).set_requires_grad();
        const Tensor y = ops::attention(q, k, v, options);
        backward(y, leaf(3));
        return {y, q.grad(), k.grad(), v.grad()};
    }
    Case case_;
    Tensors in_;
    Outcome exact_;
};

TEST_F(Gpu, AttentionIsTheCpusInEveryFormatAndLength) {
    const ops::AttentionOptions causal{.causal = true};
    for (const Case& c : std::vector<Case>{{2, 4, 4, 128, 128, 64, causal},
                                           {2, 4, 4, 256, 256, 64},
                                           {1, 2, 2, 197, 197, 64},
                                           {1, 2, 2, 197, 197, 64, causal},
                                           {2, 4, 2, 192, 192, 128, causal},
                                           {2, 4, 1, 130, 130, 32, causal},
                                           {1, 2, 2, 1, 1, 64, causal},
                                           {1, 2, 2, 1, 77, 64},
                                           {1, 2, 2, 65, 300, 48},
                                           {1, 2, 2, 100, 100, 20, causal},
                                           {1, 1, 1, 300, 300, 160, causal},
                                           {1, 4, 2, 300, 300, 80, causal},
                                           {2, 6, 2, 127, 127, 128},
                                           {1, 4, 2, 31, 31, 8, causal},
                                           {1, 2, 1, 2, 2, 40, causal},
                                           {3, 4, 2, 64, 64, 64, causal},
                                           {1, 2, 1, 65, 65, 64, causal},
                                           {1, 4, 1, 197, 197, 64},
                                           {1, 4, 1, 127, 300, 64, causal},
                                           {1, 2, 1, 300, 127, 128, causal},
                                           {1, 2, 1, 150, 150, 64, {.causal = true, .scale = -0.3}}}) {
        const Attended attended(c);
        for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
            for (const bool deterministic : {true, false}) attended.expect_on_gpu(dtype, deterministic);
    }
    Attended({1, 2, 1, 33, 33, 8, causal}).expect_on_gpu(Dtype::f64);
}

TEST_F(Gpu, AttentionOfALongSequenceIsTheCpus) {
    // The CPU's in f32, for time: it is far closer to the truth than 16 bits are.
    const Attended attended({1, 2, 1, 8192, 8192, 64, {.causal = true}}, Dtype::f32);
    for (const bool deterministic : {true, false}) attended.expect_on_gpu(Dtype::bf16, deterministic);
}

TEST_F(Gpu, AttentionHasTheCpusMasks) {
    for (const auto& [t, width] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{150, 32}, {64, 64}, {300, 128}, {197, 40}}) {
        std::vector<std::int64_t> seen, sorted, mixed;
        for (std::int64_t i = 0; i < 2 * t; ++i) {
            seen.push_back(i < t ? i % 5 != 2 : i >= 2 * t - 9);  // early queries of the second sample are blind
            sorted.push_back(i / 40);
            mixed.push_back(i * 7 % 3 - 1);
        }
        const Tensor mask = ops::cast(Tensor::from(seen, {2, t}), Dtype::boolean);
        const Tensor documents = Tensor::from(sorted, {2, t}), unsorted = Tensor::from(mixed, {2, t});
        const Tensor bias = Tensor::from(random_values(2 * t * t, -2, 2, 9), {2, t, t}, Dtype::f32);
        const Tensor of_keys = Tensor::from(random_values(2 * t, -2, 2, 10), {2, 1, 1, t}, Dtype::f32);
        const auto check = [&](const ops::AttentionOptions& options) {
            const Attended attended({2, 2, 1, t, t, width, options});
            attended.expect_on_gpu(Dtype::bf16);
            if (t == 150) attended.expect_on_gpu(Dtype::f32);
            if (t != 150) attended.expect_on_gpu(Dtype::f16);
        };
        check({.causal = true, .key_mask = mask});
        check({.key_mask = mask});
        check({.causal = true, .documents = documents});
        check({.documents = unsorted});
        check({.bias = bias});
        check({.causal = true, .bias = of_keys});
        check({.causal = true, .dropout = 0.3});
        check({.dropout = 0.1, .key_mask = mask, .documents = documents, .bias = bias});
    }
}

// By blocks in f32, by the fused kernels in 16 bits.
TEST_F(Gpu, DropsOfSomeSamplesWhatItDropsOfThemInTheWholeBatch) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::f16})
        expect_dropout_by_samples(dtype, Device::cuda());
    expect_attention_by_samples(Dtype::f32, Device::cuda(), 1e-5);
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) expect_attention_by_samples(dtype, Device::cuda(), 0.02);
}

// As a layer makes them: q, k and v side by side in one tensor, and their gradients too.
TEST_F(Gpu, SelfAttentionIsTheCpus) {
    for (const auto& [heads, kv_heads, width] :
         std::vector<std::array<std::int64_t, 3>>{{4, 4, 64}, {4, 2, 64}, {2, 1, 128}, {3, 3, 24}}) {
        const std::int64_t t = 133;
        const Tensor qkv = held_by_all({2, t, (heads + 2 * kv_heads) * width}, 5);
        const Tensor gy = held_by_all({2, t, heads * width}, 6);
        const Tensor a = qkv.detach().set_requires_grad();
        const Tensor z = ops::self_attention(a, heads, kv_heads, {.causal = true});
        backward(z, gy);
        for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
            const Tensor b = ops::to(ops::cast(qkv, dtype), Device::cuda()).detach().set_requires_grad();
            const Tensor y = ops::self_attention(b, heads, kv_heads, {.causal = true});
            backward(y, ops::to(ops::cast(gy, dtype), Device::cuda()).detach());
            const std::string what = fmt::format("{}/{} heads of {} {}", heads, kv_heads, width, name_of(dtype));
            expect_close(y, z, tolerance(dtype), what);
            expect_close(b.grad(), a.grad(), 2 * tolerance(dtype), what + ": gradient");
        }
    }
}

// A query that sees no key gives zeros and no gradient, whatever keys and values that nobody sees hold.
TEST_F(Gpu, AttentionOfABlindQueryIsZero) {
    const std::int64_t t = 70, width = 64;
    const Tensor mask = ops::cast(ops::zeros({1, t}), Dtype::boolean);
    Tensor k = ops::to(ops::full({1, 1, t, width}, NAN, Dtype::bf16), Device::cuda());
    const Tensor q = random_on_gpu({1, 2, t, width}, Dtype::bf16, 1);
    k.set_requires_grad();
    const Tensor y = ops::attention(q, k, k, {.key_mask = ops::to(mask, Device::cuda())});
    backward(y, random_on_gpu({1, 2, t, width}, Dtype::bf16, 2).detach());
    for (const Tensor& zero : {y, q.grad(), k.grad()})
        for (const double value : zero.to_vector<double>()) ASSERT_EQ(value, 0);
}

// cuDNN keeps other numbers of a row than our own kernels do; backward takes either.
TEST_F(Gpu, OurAttentionsBackwardTakesWhatCudnnsForwardKept) {
    Kernels& gpu = kernels_for(Device::cuda());
    AttentionSpec spec;
    spec.batch = 2, spec.heads = 4, spec.kv_heads = 2, spec.queries = spec.keys = 100;
    spec.width = spec.value_width = 64;
    spec.causal = true, spec.scale = 0.125;
    const Tensor q = random_on_gpu({2, 4, 100, 64}, Dtype::bf16, 1), k = random_on_gpu({2, 2, 100, 64}, Dtype::bf16, 2);
    const Tensor v = random_on_gpu({2, 2, 100, 64}, Dtype::bf16, 3);
    const Tensor gy = random_on_gpu({2, 4, 100, 64}, Dtype::bf16, 4);
    const auto both = [&](bool first) {
        Tensor y = Tensor::empty_like(q), kept = Tensor::empty({2, 2, 4, 100}, Dtype::f32, Device::cuda());
        Outcome o{y, Tensor::empty_like(q), Tensor::empty_like(k), Tensor::empty_like(v)};
        gpu.configure({.benchmark = false, .deterministic = first});
        gpu.attention(spec, q.view(), k.view(), v.view(), y.view(), kept.view());
        gpu.configure({.benchmark = false, .deterministic = true});
        gpu.attention_backward(spec, q.view(), k.view(), v.view(), y.view(), kept.view(), gy.view(), o.gq.view(),
                               o.gk.view(), o.gv.view());
        return o;
    };
    const Outcome ours = both(true), mixed = both(false);  // heads in groups are cuDNN's where order is free
    expect_close(mixed.gq, ours.gq, 2 * tolerance(Dtype::bf16), "queries");
    expect_close(mixed.gk, ours.gk, 2 * tolerance(Dtype::bf16), "keys");
    expect_close(mixed.gv, ours.gv, 2 * tolerance(Dtype::bf16), "values");
}

// A recording replayed on other values than it was made with gives what operations give, to the bit.
TEST_F(Gpu, AttentionIsReplayedToTheBit) {
    for (const std::int64_t t : {128, 197, 256})
        for (const std::int64_t kv_heads : {1, 2})
            for (const double dropout : {0.0, 0.2}) {
                const Shape shape{2, t, (2 + 2 * kv_heads) * 64};
                const Tensor values = random_on_gpu(shape, Dtype::bf16, 5).detach();
                const Tensor gy = random_on_gpu({2, t, 128}, Dtype::bf16, 6).detach();
                Tensor qkv = random_on_gpu(shape, Dtype::bf16, 7), y, gradient;
                const auto work = [&] {
                    qkv.set_grad({});
                    y = ops::self_attention(qkv, 2, kv_heads, {.causal = true, .dropout = dropout});
                    backward(y, gy);
                    gradient = qkv.grad();
                };
                Kernels& kernels = kernels_for(Device::cuda());
                work();  // plans and algorithms are chosen before anything is recorded
                const MemoryPool pool(Device::cuda());
                const std::unique_ptr<Recording> recording = kernels.record(pool, work);
                kernels.copy(values.view(), qkv.view());
                const RngState start = default_generator().state();
                recording->replay();
                const std::string replayed = bytes_of(y) + bytes_of(gradient);
                default_generator().set_state(start);
                work();
                EXPECT_TRUE(bytes_of(y) + bytes_of(gradient) == replayed)
                    << t << ", " << kv_heads << " heads of keys, dropout " << dropout;
            }
}

}  // namespace
}  // namespace invar::testing
