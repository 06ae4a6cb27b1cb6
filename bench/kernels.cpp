// The CPU kernels one by one at the sizes of the ConvNet (batch 128) and the MLP (2048 wide), in FP32, FP16 and BF16:
// GFLOP/s where arithmetic should be the limit, GB/s of the least traffic where memory should be.
//   ninja -C build bench_kernels && build/bin/bench_kernels --benchmark_filter=Conv
#include "invar/kernels/kernels.h"

#include <benchmark/benchmark.h>

#include <string>

#include "invar/core/tensor.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/creation.h"

namespace invar {
namespace {

constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};

Kernels& cpu() {
    return kernels_for(Device::cpu());
}

Dtype dtype_of(const benchmark::State& state) {
    return kDtypes[state.range(0)];
}

Tensor random(const Shape& shape, Dtype dtype) {
    const Tensor values = ops::uniform(shape, -1, 1);
    Tensor out = Tensor::empty(shape, dtype);
    cpu().copy(values.view(), out.view());
    return out;
}

void per_second(benchmark::State& state, const char* name, double amount) {
    state.counters[name] = benchmark::Counter(amount * 1e-9 * double(state.iterations()), benchmark::Counter::kIsRate);
    state.SetLabel(std::string(name_of(dtype_of(state))));
}
void flops(benchmark::State& state, double count) {
    per_second(state, "GFLOP/s", count);
}
void bytes(benchmark::State& state, double count) {
    per_second(state, "GB/s", count);
}

// conv2 of the ConvNet, or conv1 where range(1) is 1.
struct Conv {
    explicit Conv(const benchmark::State& state) {
        const bool first = state.range(1) == 1;
        const Dtype dtype = dtype_of(state);
        const std::int64_t in = first ? 28 : 26, in_c = first ? 1 : 32, out_c = first ? 32 : 64;
        spec = {128, in, in, in_c, in - 2, in - 2, out_c, 3, 3, 1, 1, 0, 0, 1, 1, 1};
        x = random({128, in, in, in_c}, dtype), w = random({out_c, 3, 3, in_c}, dtype);
        b = random({out_c}, dtype), y = random({128, in - 2, in - 2, out_c}, dtype);
        count = 2.0 * double(y.numel()) * 9 * double(in_c);
    }
    ConvSpec spec{};
    Tensor x, w, b, y;
    double count = 0;
};

void ConvForward(benchmark::State& state) {
    Conv c(state);
    for (auto _ : state) cpu().conv_forward(c.spec, c.x.view(), c.w.view(), c.b.view(), c.y.view());
    flops(state, c.count);
}

void ConvBackward(benchmark::State& state) {
    Conv c(state);
    const bool first = state.range(1) == 1;  // images want no gradient
    const Tensor gx = Tensor::empty_like(c.x), gw = Tensor::empty_like(c.w, Dtype::f32),
                 gb = Tensor::empty_like(c.b, Dtype::f32);
    for (auto _ : state)
        cpu().conv_backward(c.spec, c.x.view(), c.w.view(), c.y.view(), first ? View{} : gx.view(), gw.view(),
                            gb.view(), false);
    flops(state, (first ? 1 : 2) * c.count);
}

// [m, k] times [k, n]: a layer's forward product, or with range(1) == 1 its FP32 weight gradient.
void Gemm(benchmark::State& state) {
    const Dtype dtype = dtype_of(state);
    const bool gradient = state.range(1) == 1;
    const std::int64_t batch = 512, in = 2048, out = 2048;
    const Tensor x = random({1, batch, in}, dtype), w = random({1, out, in}, dtype),
                 gy = random({1, batch, out}, dtype);
    const Tensor y = Tensor::empty({1, batch, out}, dtype), gw = Tensor::empty({1, out, in}, Dtype::f32);
    const auto transposed = [](const Tensor& t) {
        return t.as_strided(0, {1, t.size(2), t.size(1)}, {t.numel(), 1, t.size(2)});
    };
    for (auto _ : state) {
        if (gradient)
            cpu().matmul(transposed(gy).view(), x.view(), {}, gw.view(), false);
        else
            cpu().matmul(x.view(), transposed(w).view(), {}, y.view(), false);
    }
    flops(state, 2.0 * double(batch * in * out));
}

constexpr std::int64_t kElements = 128 * 24 * 24 * 64;  // what conv2 puts out

void Relu(benchmark::State& state) {
    const Tensor x = random({kElements}, dtype_of(state)), y = Tensor::empty_like(x);
    for (auto _ : state) cpu().unary(UnaryOp::Relu, x.view(), y.view(), {});
    bytes(state, 2.0 * double(x.bytes()));
}

void ReluBackward(benchmark::State& state) {
    const Tensor y = random({kElements}, dtype_of(state)), gy = random({kElements}, dtype_of(state)),
                 gx = Tensor::empty_like(y);
    for (auto _ : state) cpu().unary_backward(UnaryOp::Relu, gy.view(), y.view(), gx.view(), {});
    bytes(state, 3.0 * double(y.bytes()));
}

void Gelu(benchmark::State& state) {
    const Tensor x = random({kElements}, dtype_of(state)), y = Tensor::empty_like(x);
    for (auto _ : state) cpu().unary(UnaryOp::Gelu, x.view(), y.view(), {});
    bytes(state, 2.0 * double(x.bytes()));
}

void Add(benchmark::State& state) {
    const Tensor a = random({kElements}, dtype_of(state)), b = random({kElements}, dtype_of(state)),
                 y = Tensor::empty_like(a);
    for (auto _ : state) cpu().binary(BinaryOp::Add, a.view(), b.view(), y.view(), {});
    bytes(state, 3.0 * double(a.bytes()));
}

void Dropout(benchmark::State& state) {
    const Tensor x = random({128 * 9216}, dtype_of(state)), y = Tensor::empty_like(x);
    for (auto _ : state) cpu().dropout(x.view(), y.view(), 0.25, {1, 0});
    bytes(state, 2.0 * double(x.bytes()));
}

void MaxPool(benchmark::State& state) {
    const PoolSpec spec{128, 24, 24, 64, 12, 12, 2, 2, 2, 2, 0, 0, false};
    const Tensor x = random({128, 24, 24, 64}, dtype_of(state)), y = Tensor::empty({128, 12, 12, 64}, x.dtype());
    const Tensor winners = Tensor::empty(y.shape(), Dtype::i32);
    for (auto _ : state) cpu().max_pool(spec, x.view(), y.view(), winners.view());
    bytes(state, double(x.bytes() + y.bytes() + winners.bytes()));
}

void MaxPoolBackward(benchmark::State& state) {
    const PoolSpec spec{128, 24, 24, 64, 12, 12, 2, 2, 2, 2, 0, 0, false};
    const Tensor x = random({128, 24, 24, 64}, dtype_of(state)), y = Tensor::empty({128, 12, 12, 64}, x.dtype());
    const Tensor winners = Tensor::empty(y.shape(), Dtype::i32), gx = Tensor::empty_like(x);
    cpu().max_pool(spec, x.view(), y.view(), winners.view());
    for (auto _ : state) cpu().max_pool_backward(spec, y.view(), winners.view(), gx.view());
    bytes(state, double(gx.bytes() + y.bytes() + winners.bytes()));
}

// From FP32 to the format (to FP32 itself: a copy), and back where range(1) is 1.
void Cast(benchmark::State& state) {
    const Tensor wide = random({kElements}, Dtype::f32), low = random({kElements}, dtype_of(state));
    const bool back = state.range(1) == 1;
    for (auto _ : state) back ? cpu().copy(low.view(), wide.view()) : cpu().copy(wide.view(), low.view());
    bytes(state, double(wide.bytes() + low.bytes()));
}

// Statistics, plan and Adam over six million parameters; in 16 bits with the shadow that is written in the same pass.
void AdamStep(benchmark::State& state) {
    const std::int64_t count = 6 * 1000 * 1000;
    const Dtype low = dtype_of(state);
    const Tensor weights = random({count}, Dtype::f32), gradients = random({count}, Dtype::f32),
                 shadow = random({count}, low);
    const Tensor first = ops::zeros({count}), second = ops::zeros({count});
    const bool shadowed = low != Dtype::f32;
    const FlatStore store{weights.raw(),
                          Dtype::f32,
                          shadowed ? shadow.raw() : nullptr,
                          low,
                          gradients.data<float>(),
                          first.data<float>(),
                          second.data<float>(),
                          count};
    const Segment segment{0, count, 0};
    OptimizerSpec adam;
    adam.kind = OptimizerSpec::Kind::adam;
    StepState step;
    for (auto _ : state) {
        cpu().grad_stats(gradients.view(), &step);
        cpu().plan(&step, nullptr, {ClipSpec::Kind::norm, 1.0f}, {});
        cpu().optimizer_step(store, {&segment, 1}, {&adam, 1}, &step);
        finish_step(step, nullptr);
    }
    // Gradients are read twice; weights and both moments are read and written; the shadow is written.
    bytes(state, 4.0 * double(count) * 8 + (shadowed ? double(shadow.bytes()) : 0.0));
}

BENCHMARK(ConvForward)->ArgsProduct({{0, 1, 2}, {1, 2}})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(ConvBackward)->ArgsProduct({{0, 1, 2}, {1, 2}})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Gemm)->ArgsProduct({{0, 1, 2}, {0, 1}})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Relu)->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(ReluBackward)->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Gelu)->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Add)->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Dropout)->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(MaxPool)->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(MaxPoolBackward)->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(Cast)->ArgsProduct({{0, 1, 2}, {0, 1}})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(AdamStep)->DenseRange(0, 2)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace invar

BENCHMARK_MAIN();
