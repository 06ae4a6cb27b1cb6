// Attention on the GPU against the CPU's in f64, in the cases that cuDNN serves and in those that it does not, run by
// operations and replayed from a recording.
#include "invar/autograd/node.h"
#include "invar/kernels/kernels.h"
#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"

namespace invar::testing {
namespace {

struct Case {
    std::int64_t batch, heads, kv_heads, queries, keys, width;
    bool causal;
    std::string str() const {
        return fmt::format("{}x{}/{}x{}x{}x{}{}", batch, heads, kv_heads, queries, keys, width,
                           causal ? " causal" : "");
    }
};

// Operands and weights are rounded to 16 bits, and sums over keys are of that many products: relative to the norm of a
// result, some units of the format.
double tolerance(Dtype dtype) {
    return dtype == Dtype::f64 ? 1e-12 : dtype == Dtype::f32 ? 1e-5 : dtype == Dtype::f16 ? 2e-3 : 1.6e-2;
}

void expect_close(const Case& c, Dtype dtype, const ops::AttentionOptions& here, const ops::AttentionOptions& there) {
    const Tensor q = random_on_gpu({c.batch, c.heads, c.queries, c.width}, dtype, 1);
    const Tensor k = random_on_gpu({c.batch, c.kv_heads, c.keys, c.width}, dtype, 2);
    const Tensor v = random_on_gpu({c.batch, c.kv_heads, c.keys, c.width}, dtype, 3);
    const Tensor gy = random_on_gpu({c.batch, c.heads, c.queries, c.width}, dtype, 4).detach();
    const Tensor a = exactly(q), b = exactly(k), d = exactly(v);
    const Tensor y = ops::attention(q, k, v, there), z = ops::attention(a, b, d, here);
    const std::string what = fmt::format("{} {}", c.str(), name_of(dtype));
    EXPECT_LE(distance(y, z), tolerance(dtype)) << what;
    backward(y, gy);
    backward(z, exactly(gy).detach());
    if (c.keys > 1) {  // the weight of a single key is 1, whatever the queries are
        EXPECT_LE(distance(q.grad(), a.grad()), 2 * tolerance(dtype)) << what << ": queries";
        EXPECT_LE(distance(k.grad(), b.grad()), 2 * tolerance(dtype)) << what << ": keys";
    }
    EXPECT_LE(distance(v.grad(), d.grad()), 2 * tolerance(dtype)) << what << ": values";
}

TEST_F(Gpu, AttentionIsTheCpusInEveryFormatAndLength) {
    for (const bool deterministic : {true, false}) {
        kernels_for(Device::cuda()).configure({.benchmark = false, .deterministic = deterministic});
        for (const Case& c :
             {Case{2, 4, 4, 128, 128, 64, true}, Case{2, 4, 4, 256, 256, 64, false}, Case{1, 2, 2, 197, 197, 64, false},
              Case{1, 2, 2, 197, 197, 64, true}, Case{2, 4, 2, 192, 192, 128, true}, Case{2, 4, 1, 130, 130, 32, true},
              Case{1, 2, 2, 1, 1, 64, true}, Case{1, 2, 2, 1, 77, 64, false}, Case{1, 2, 2, 65, 300, 48, false},
              Case{1, 2, 2, 100, 100, 20, true}, Case{1, 1, 1, 300, 300, 160, true}})
            for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
                expect_close(c, dtype, {.causal = c.causal}, {.causal = c.causal});
    }
    expect_close({1, 2, 1, 33, 33, 8, true}, Dtype::f64, {.causal = true}, {.causal = true});
}

TEST_F(Gpu, AttentionOfALongSequenceIsTheCpus) {
    const Case c{1, 1, 1, 8192, 8192, 64, true};
    expect_close(c, Dtype::bf16, {.causal = true}, {.causal = true});
}

TEST_F(Gpu, AttentionHasTheCpusMasks) {
    const std::int64_t t = 150;
    std::vector<std::int64_t> seen, documents;
    for (std::int64_t i = 0; i < 2 * t; ++i)
        seen.push_back(i < t ? i % 5 != 2 : i >= 2 * t - 9), documents.push_back(i / 40);
    const Tensor mask = ops::cast(Tensor::from(seen, {2, t}), Dtype::boolean), ids = Tensor::from(documents, {2, t});
    const Tensor bias = Tensor::from(random_values(2 * t * t, -2, 2, 9), {2, t, t}, Dtype::f32);
    const Case c{2, 2, 1, t, t, 32, true};
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        expect_close(c, dtype, {.causal = true, .key_mask = mask}, {.causal = true, .key_mask = on_gpu(mask)});
        expect_close(c, dtype, {.causal = true, .documents = ids}, {.causal = true, .documents = on_gpu(ids)});
        expect_close(c, dtype, {.bias = ops::cast(bias, Dtype::f64)}, {.bias = on_gpu(bias)});
        const RngState start = default_generator().state();
        const Tensor q = random_on_gpu({2, 2, t, 32}, dtype, 1), k = random_on_gpu({2, 1, t, 32}, dtype, 2);
        const Tensor y = ops::attention(q, k, k, {.causal = true, .dropout = 0.3});
        default_generator().set_state(start);
        const Tensor z = ops::attention(exactly(q), exactly(k), exactly(k), {.causal = true, .dropout = 0.3});
        EXPECT_LE(distance(y, z), tolerance(dtype)) << "dropout";
    }
}

// A recording replayed on other values than it was made with gives what operations give, to the bit.
TEST_F(Gpu, AttentionIsReplayedToTheBit) {
    for (const std::int64_t t : {128, 197, 256})
        for (const double dropout : {0.0, 0.2}) {
            const Shape shape{2, t, 3 * 128};
            const Tensor values = random_on_gpu(shape, Dtype::bf16, 5).detach();
            const Tensor gy = random_on_gpu({2, t, 128}, Dtype::bf16, 6).detach();
            Tensor qkv = random_on_gpu(shape, Dtype::bf16, 7), y, gradient;
            const auto work = [&] {
                qkv.set_grad({});
                y = ops::self_attention(qkv, 2, 2, {.causal = true, .dropout = dropout});
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
            EXPECT_TRUE(bytes_of(y) + bytes_of(gradient) == replayed) << t << ", dropout " << dropout;
        }
}

}  // namespace
}  // namespace invar::testing
