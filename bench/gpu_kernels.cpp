// The GPU's kernels against the GPU's own ceilings, measured in the same run: memory-bound kernels as a share of the
// device's copy, the optimizer likewise, products as a share of the best single product. Through the public interface,
// on random data, on tensors of 1 GiB that no cache holds; each kernel is counted on the least traffic it could do.
//   gpu_kernels [part of a name ...]     exits with 1 where a bar is missed
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/gpu_timing.h"
#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/ops.h"
#include "invar/optim/grad_scaler.h"

namespace invar {
namespace {

constexpr double kCopyBar = 0.85, kProductBar = 0.92, kOptimizerMs = 7.3;
constexpr std::int64_t kBytes = std::int64_t(1) << 30;
constexpr std::int64_t kSide = 8192;  // of the products
constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};

double measure(const Run& work) {
    seconds(work, 2);
    return median_seconds(work, std::clamp(int(0.012 / seconds(work, 2)), 3, 100));
}

Tensor random(const Shape& shape, Dtype dtype, double low = -1, double high = 1) {
    return ops::uniform(shape, low, high, dtype, Device::cuda());
}

struct Table {
    explicit Table(std::vector<std::string> names) : wanted(std::move(names)) {}
    bool wants(const std::string& name) const {
        return wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& part) {
                   return name.find(part) != std::string::npos;
               });
    }
    // A cell: the rate, its share of the ceiling, and whether that reaches the bar (0: there is none).
    std::string cell(double rate, double share, double bar) {
        const bool missed = bar > 0 && share < bar;
        misses += missed;
        return fmt::format("{:6.2f} {:4.0f}%{}", rate, 100 * share, bar == 0 ? "     " : missed ? " MISS" : " PASS");
    }
    void line(const std::string& name, const std::string& cells) {
        fmt::print("{:<24}{}\n", name, cells);
        std::fflush(stdout);
    }

    std::vector<std::string> wanted;
    int misses = 0;
    double copy = 0;  // bytes a second
};

// --- kernels that memory should limit ---

struct Work {
    double bytes;
    Run run;
};
// Makes the operands for a dtype and says what to run; without a run the dtype does not take part.
using Maker = std::function<Work(Dtype)>;

struct Kernel {
    const char* name;
    double bar;
    Maker make;
};

std::int64_t elements(Dtype dtype) {
    return kBytes / std::int64_t(size_of(dtype));
}
Tensor whole(Dtype dtype) {
    return random({elements(dtype)}, dtype);
}
Tensor matrix(Dtype dtype, std::int64_t columns) {
    return random({elements(dtype) / columns, columns}, dtype);
}

Work unary(UnaryOp op, Dtype dtype) {
    const Tensor x = whole(dtype), y = Tensor::empty_like(x);
    return {2.0 * kBytes, [=] { gpu().unary(op, x.view(), y.view(), {}); }};
}
Work unary_backward(UnaryOp op, Dtype dtype) {
    const Tensor x = whole(dtype), g = whole(dtype), gx = Tensor::empty_like(x);
    return {3.0 * kBytes, [=] { gpu().unary_backward(op, g.view(), x.view(), gx.view(), {}); }};
}
Work binary(BinaryOp op, Dtype dtype) {
    const Tensor a = whole(dtype), b = whole(dtype), y = Tensor::empty_like(a);
    return {3.0 * kBytes, [=] { gpu().binary(op, a.view(), b.view(), y.view(), {}); }};
}
Work binary_backward(BinaryOp op, Dtype dtype) {
    const Tensor a = whole(dtype), b = whole(dtype), g = whole(dtype), ga = Tensor::empty_like(a),
                 gb = Tensor::empty_like(a);
    return {5.0 * kBytes, [=] { gpu().binary_backward(op, g.view(), a.view(), b.view(), ga.view(), gb.view(), {}); }};
}
Work cast(Dtype from, Dtype to) {
    if (from == to) return {};
    const Tensor x = whole(from), y = Tensor::empty_like(x, to);
    return {double(x.bytes() + y.bytes()), [=] { gpu().copy(x.view(), y.view()); }};
}
// A norm of a stream of one dtype that gives another, alone, or with a residual sum before it, whose gradient is added
// in backward.
struct NormWork {
    Shape shape;
    Dtype stream = Dtype::f32, low = Dtype::f32;
    bool residual = false, rms = false;
};
Work norm_work(const NormWork& w, bool backward) {
    const Tensor x = random(w.shape, w.stream), branch = w.residual ? random(w.shape, w.low) : Tensor{};
    const Tensor gamma = random({w.shape[1]}, Dtype::f32), rstd = random({w.shape[0]}, Dtype::f32, 0.5, 1.5),
                 mean = w.rms ? Tensor{} : random({w.shape[0]}, Dtype::f32);
    const auto view = [](const Tensor& t) { return t ? t.view() : View{}; };
    const double bytes = double(x.bytes()), narrow = double(x.numel()) * double(size_of(w.low));
    if (!backward) {
        const Tensor sum = w.residual ? Tensor::empty_like(x) : Tensor{}, y = Tensor::empty_like(x, w.low);
        return {w.residual ? 2 * bytes + 2 * narrow : bytes + narrow, [=] {
                    gpu().norm({x.view(), view(branch), view(sum), gamma.view(), w.rms ? View{} : gamma.view(),
                                y.view(), view(mean), rstd.view(), 1e-5});
                }};
    }
    const bool copies = w.residual && w.stream != w.low;
    const Tensor gy = random(w.shape, w.low), gx = Tensor::empty_like(x),
                 pending = w.residual ? random(w.shape, w.stream) : Tensor{},
                 gbranch = copies ? Tensor::empty_like(gy) : Tensor{}, ggamma = Tensor::empty_like(gamma),
                 gbeta = w.rms ? Tensor{} : Tensor::empty_like(gamma);
    return {(w.residual ? 3 : 2) * bytes + (copies ? 2 : 1) * narrow, [=] {
                gpu().norm_backward({gy.view(), x.view(), gamma.view(), view(mean), rstd.view(), gx.view(),
                                     view(pending), view(gbranch), ggamma.view(), view(gbeta)});
            }};
}
Work layer_norm(std::int64_t columns, Dtype dtype, bool backward) {
    return norm_work({{kBytes / std::int64_t(size_of(dtype)) / columns, columns}, dtype, dtype}, backward);
}
// As in a model under autocast: the column's dtype is that of the branch, the stream is f32 or of 16 bits too.
Work model_norm(NormWork work, bool wide_stream, bool backward, Dtype dtype) {
    if (wide_stream && dtype == Dtype::f32) return {};
    work.stream = wide_stream ? Dtype::f32 : dtype, work.low = dtype;
    return norm_work(work, backward);
}
Work rotary(std::int64_t heads, std::int64_t kv_heads, std::int64_t width, Dtype dtype) {
    const std::int64_t length = 1024, row = (heads + 2 * kv_heads) * width;
    const Tensor x = random({kBytes / std::int64_t(size_of(dtype)) / row / length, length, row}, dtype),
                 y = Tensor::empty_like(x),
                 table = ops::rotary_table(length, ops::rotary_speeds(width), Dtype::f32, Device::cuda());
    const RotarySpec spec{x.size(0) * length, heads + 2 * kv_heads, heads + kv_heads, width, width, length, 0, false};
    return {2.0 * double(x.bytes()), [=] { gpu().rotary(spec, x.view(), table.view(), {}, y.view()); }};
}
Work batch_norm_stats(std::int64_t columns, Dtype dtype) {
    const Tensor x = matrix(dtype, columns), mean = random({columns}, Dtype::f32), rstd = Tensor::empty_like(mean);
    return {1.0 * kBytes, [=] { gpu().batch_norm_stats({x.view(), mean.view(), rstd.view(), {}, {}, 1e-5, 0.1}); }};
}
Work batch_norm(std::int64_t columns, Dtype dtype) {
    const Tensor x = matrix(dtype, columns), y = Tensor::empty_like(x), p = random({columns}, Dtype::f32, 0.5, 1.5);
    return {2.0 * kBytes, [=] {
                gpu().batch_norm({x.view(), p.view(), p.view(), p.view(), p.view(), {}, y.view(), false});
            }};
}
// What gx takes from the whole batch must be summed before the first of it is written: gy and x are read twice.
Work batch_norm_backward(std::int64_t columns, Dtype dtype) {
    const Tensor x = matrix(dtype, columns), g = matrix(dtype, columns), gx = Tensor::empty_like(x),
                 p = random({columns}, Dtype::f32, 0.5, 1.5), ggamma = Tensor::empty_like(p),
                 gbeta = Tensor::empty_like(p);
    return {5.0 * kBytes, [=] {
                BatchNormBackward norm{};
                norm.gy = g.view(), norm.x = x.view(), norm.gx = gx.view(), norm.batch_statistics = true;
                norm.mean = p.view(), norm.rstd = p.view(), norm.gamma = p.view();
                norm.ggamma = ggamma.view(), norm.gbeta = gbeta.view();
                gpu().batch_norm_backward(norm);
            }};
}
Work softmax(std::int64_t columns, Dtype dtype) {
    const Tensor x = matrix(dtype, columns), y = Tensor::empty_like(x);
    return {2.0 * kBytes, [=] { gpu().softmax({x.size(0), columns, 1}, x.view(), y.view(), false); }};
}
Work softmax_backward(std::int64_t columns, Dtype dtype) {
    const Tensor g = matrix(dtype, columns), y = matrix(dtype, columns), gx = Tensor::empty_like(y);
    return {3.0 * kBytes, [=] {
                gpu().softmax_backward({y.size(0), columns, 1}, g.view(), y.view(), gx.view(), false);
            }};
}
enum class Pass { forward, backward, both };
Work cross_entropy(std::int64_t classes, Pass pass, Dtype dtype) {
    const Tensor x = matrix(dtype, classes), target = ops::zeros({x.size(0)}, Dtype::i64, Device::cuda());
    const Tensor losses = random({x.size(0)}, Dtype::f32), lse = random({2, x.size(0)}, Dtype::f32, 10, 11);
    const CrossEntropySpec spec{x.size(0), classes, -100, 0.0};
    if (pass == Pass::forward)
        return {double(x.bytes()),
                [=] { gpu().cross_entropy(spec, x.view(), target.view(), losses.view(), lse.view()); }};
    if (pass == Pass::both)
        return {2.0 * double(x.bytes()), [=, one = random({}, Dtype::f32, 1, 1)] {
                    gpu().cross_entropy_in_place(spec, x.view(), target.view(), losses.view(), lse.view(), one.view());
                }};
    const Tensor gx = Tensor::empty_like(x);
    return {2.0 * double(x.bytes()), [=] {
                gpu().cross_entropy_backward(spec, x.view(), target.view(), lse.view(), losses.view(), View{},
                                             gx.view());
            }};
}
Work sum(Dtype dtype, std::int64_t outer, std::int64_t n, std::int64_t inner) {
    const Span3 span{outer, n, inner};
    const Tensor x = random({span.outer, span.n, span.inner}, dtype),
                 y = Tensor::empty({span.outer, span.inner}, Dtype::f32, Device::cuda());
    return {double(x.bytes()), [=] { gpu().sum(span, x.view(), y.view(), 1.0, false); }};
}
Work grad_stats(Dtype dtype) {
    if (dtype != Dtype::f32) return {};
    const Tensor x = whole(dtype), state = ops::zeros({std::int64_t(sizeof(StepState))}, Dtype::u8, Device::cuda());
    return {1.0 * kBytes, [=] { gpu().grad_stats(x.view(), static_cast<StepState*>(state.raw())); }};
}
Work all_finite(Dtype dtype) {
    const Tensor x = whole(dtype);
    return {1.0 * kBytes, [=] { check(gpu().all_finite(x.view()), "random values that are not finite"); }};
}
Work add_into(Dtype from, Dtype to) {
    const Tensor x = whole(from), y = random(x.shape(), to);
    return {double(x.bytes()) + 2.0 * double(y.bytes()), [=] { gpu().add_into(x.view(), y.view()); }};
}
Work scale_gradients(Dtype dtype) {
    if (dtype != Dtype::f32) return {};
    const Tensor x = whole(dtype);
    return {2.0 * kBytes, [=] { gpu().scale_gradients(x.view(), 1.0f, 0.0f); }};
}
Work dropout(Dtype dtype) {
    const Tensor x = whole(dtype), y = Tensor::empty_like(x);
    return {2.0 * kBytes, [=] { gpu().dropout(x.view(), y.view(), 0.25, {1, 0}); }};
}
// The op allocates what it keeps for backward; so the ops are measured, not the kernels below them.
Work max_pool(Dtype dtype, double bytes_of_a_winner) {
    const Tensor x = random({elements(dtype) / (64 * 64 * 64), 64, 64, 64}, dtype);
    const double outputs = double(x.numel()) / 4;
    return {kBytes + outputs * (double(size_of(dtype)) + bytes_of_a_winner), [=] {
                const Tensor leaf = x.detach().set_requires_grad();
                ops::max_pool2d(leaf, {});
            }};
}
Work avg_pool(Dtype dtype, bool backward) {
    const std::int64_t images = elements(dtype) / (64 * 64 * 64);
    const PoolSpec spec{images, 64, 64, 64, 32, 32, 2, 2, 2, 2, 0, 0, false};
    const Tensor x = random({images, 64, 64, 64}, dtype), y = random({images, 32, 32, 64}, dtype);
    return {1.25 * kBytes, [=] {
                if (backward)
                    gpu().avg_pool_backward(spec, y.view(), x.view());
                else
                    gpu().avg_pool(spec, x.view(), y.view());
            }};
}

// The norms of GPT-2 124M over 32 x 1024 tokens, and of a Llama of 1.1B over 8 x 2048.
const Shape kGpt{32768, 768};
const NormWork kGptSum{kGpt, Dtype::f32, Dtype::f32, true, false};
const NormWork kLlamaSum{{16384, 2048}, Dtype::f32, Dtype::f32, true, true};

const std::vector<Kernel>& kernels() {
    static const std::vector<Kernel> all = {
        {"relu", kCopyBar, [](Dtype d) { return unary(UnaryOp::Relu, d); }},
        {"relu backward", kCopyBar, [](Dtype d) { return unary_backward(UnaryOp::Relu, d); }},
        {"gelu", kCopyBar, [](Dtype d) { return unary(UnaryOp::Gelu, d); }},
        {"gelu backward", kCopyBar, [](Dtype d) { return unary_backward(UnaryOp::Gelu, d); }},
        {"gelu_tanh", kCopyBar, [](Dtype d) { return unary(UnaryOp::GeluTanh, d); }},
        {"gelu_tanh backward", kCopyBar, [](Dtype d) { return unary_backward(UnaryOp::GeluTanh, d); }},
        {"silu backward", kCopyBar, [](Dtype d) { return unary_backward(UnaryOp::Silu, d); }},
        {"tanh", kCopyBar, [](Dtype d) { return unary(UnaryOp::Tanh, d); }},
        {"exp", kCopyBar, [](Dtype d) { return unary(UnaryOp::Exp, d); }},
        {"add", kCopyBar, [](Dtype d) { return binary(BinaryOp::Add, d); }},
        {"div", kCopyBar, [](Dtype d) { return binary(BinaryOp::Div, d); }},
        {"mul backward", kCopyBar, [](Dtype d) { return binary_backward(BinaryOp::Mul, d); }},
        {"add_into", kCopyBar, [](Dtype d) { return add_into(d, d); }},
        {"add_into f32", kCopyBar, [](Dtype d) { return add_into(d, Dtype::f32); }},
        {"cast to f32", kCopyBar, [](Dtype d) { return cast(d, Dtype::f32); }},
        {"cast from f32", kCopyBar, [](Dtype d) { return cast(Dtype::f32, d); }},
        {"dropout", kCopyBar, dropout},
        {"layer_norm 1024", kCopyBar, [](Dtype d) { return layer_norm(1024, d, false); }},
        {"layer_norm 4096", kCopyBar, [](Dtype d) { return layer_norm(4096, d, false); }},
        {"layer_norm back 1024", kCopyBar, [](Dtype d) { return layer_norm(1024, d, true); }},
        {"layer_norm back 4096", kCopyBar, [](Dtype d) { return layer_norm(4096, d, true); }},
        {"norm of f32 768", kCopyBar, [](Dtype d) { return model_norm({kGpt}, true, false, d); }},
        {"norm of f32 back 768", kCopyBar, [](Dtype d) { return model_norm({kGpt}, true, true, d); }},
        {"add_norm 768", kCopyBar, [](Dtype d) { return model_norm(kGptSum, false, false, d); }},
        {"add_norm back 768", kCopyBar, [](Dtype d) { return model_norm(kGptSum, false, true, d); }},
        {"add_norm f32 768", kCopyBar, [](Dtype d) { return model_norm(kGptSum, true, false, d); }},
        {"add_norm f32 back 768", kCopyBar, [](Dtype d) { return model_norm(kGptSum, true, true, d); }},
        {"add_rms 2048", kCopyBar, [](Dtype d) { return model_norm(kLlamaSum, false, false, d); }},
        {"add_rms back 2048", kCopyBar, [](Dtype d) { return model_norm(kLlamaSum, false, true, d); }},
        {"add_rms f32 2048", kCopyBar, [](Dtype d) { return model_norm(kLlamaSum, true, false, d); }},
        {"add_rms f32 back 2048", kCopyBar, [](Dtype d) { return model_norm(kLlamaSum, true, true, d); }},
        {"rotary 12 x 64", kCopyBar, [](Dtype d) { return rotary(12, 12, 64, d); }},
        {"rotary 32 + 4 x 64", kCopyBar, [](Dtype d) { return rotary(32, 4, 64, d); }},
        {"batch_norm stats 64", kCopyBar, [](Dtype d) { return batch_norm_stats(64, d); }},
        {"batch_norm stats 1024", kCopyBar, [](Dtype d) { return batch_norm_stats(1024, d); }},
        {"batch_norm 64", kCopyBar, [](Dtype d) { return batch_norm(64, d); }},
        {"batch_norm 1024", kCopyBar, [](Dtype d) { return batch_norm(1024, d); }},
        {"batch_norm back 64", kCopyBar, [](Dtype d) { return batch_norm_backward(64, d); }},
        {"batch_norm back 1024", kCopyBar, [](Dtype d) { return batch_norm_backward(1024, d); }},
        {"softmax 1024", kCopyBar, [](Dtype d) { return softmax(1024, d); }},
        {"softmax back 1024", kCopyBar, [](Dtype d) { return softmax_backward(1024, d); }},
        {"cross_entropy 50304", kCopyBar, [](Dtype d) { return cross_entropy(50304, Pass::forward, d); }},
        {"cross_entropy b 50304", kCopyBar, [](Dtype d) { return cross_entropy(50304, Pass::backward, d); }},
        {"both at once 50304", 0, [](Dtype d) { return cross_entropy(50304, Pass::both, d); }},
        {"both at once 151936", 0, [](Dtype d) { return cross_entropy(151936, Pass::both, d); }},
        {"sum of all", kCopyBar, [](Dtype d) { return sum(d, 1, elements(d), 1); }},
        {"sum of rows 1024", kCopyBar, [](Dtype d) { return sum(d, elements(d) / 1024, 1024, 1); }},
        {"sum of columns 1024", kCopyBar, [](Dtype d) { return sum(d, 1, elements(d) / 1024, 1024); }},
        {"grad_stats", kCopyBar, grad_stats},
        {"all_finite", kCopyBar, all_finite},
        {"scale_gradients", kCopyBar, scale_gradients},
        {"max_pool op, winners", kCopyBar, [](Dtype d) { return max_pool(d, 1); }},
        {"avg_pool", kCopyBar, [](Dtype d) { return avg_pool(d, false); }},
        {"avg_pool backward", kCopyBar, [](Dtype d) { return avg_pool(d, true); }},
    };
    return all;
}

void measure_kernels(Table& table) {
    fmt::print("{:<24}{:<17}{:<17}{:<17}\n", "TB/s, share of copy", "  f32", "  f16", "  bf16");
    for (const Kernel& kernel : kernels()) {
        if (!table.wants(kernel.name)) continue;
        std::string cells;
        for (const Dtype dtype : kDtypes) {
            const Work work = kernel.make(dtype);
            if (!work.run) {
                cells += fmt::format("{:<17}", "     -");
                continue;
            }
            const double rate = work.bytes / measure(work.run);
            cells += table.cell(rate * 1e-12, rate / table.copy, kernel.bar);
        }
        table.line(kernel.name, cells);
        release_cached_memory(Device::cuda());
    }
}

// --- the optimizer, over the shapes of GPT-2 large ---

struct Gpt2Large : Module {
    Gpt2Large() {
        add_weight({50304, 1280});
        add_weight({1024, 1280});
        const std::int64_t c = 1280;
        for (int block = 0; block < 36; ++block)
            for (const Shape& shape : {Shape{3 * c, c}, Shape{3 * c}, Shape{c, c}, Shape{c}, Shape{4 * c, c},
                                       Shape{4 * c}, Shape{c, 4 * c}, Shape{c}, Shape{c}, Shape{c}, Shape{c}, Shape{c}})
                add_weight(shape);
    }
    void add_weight(const Shape& shape) {
        add_parameter(fmt::format("weight{}", count++), random(shape, Dtype::f32, -0.02, 0.02));
    }
    Tensor forward(const Tensor& x) override { return x; }
    int count = 0;
};

void measure_optimizer(Table& table) {
    if (!table.wants("optimizer")) return;
    Gpt2Large model;
    OptimizerSpec spec;
    spec.lr = 1e-5;
    spec.weight_decay = 0.01;
    for (const Dtype shadow : {Dtype::f16, Dtype::bf16}) {
        Optimizer optimizer(model, spec, {Dtype::f32, shadow});
        GradScaler scaler({.init_scale = 1024}, Device::cuda());
        const Tensor gradients = optimizer.store().gradients(), loss = ops::ones({}, Dtype::f32, Device::cuda());
        gpu().uniform(gradients.view(), -1, 1, {3, 0});
        optimizer.store().set_have_gradients(std::vector<bool>(optimizer.store().parameters().size(), true));
        const auto step = [&] {
            scaler.scale(loss);
            scaler.step(optimizer, {ClipSpec::Kind::norm, 1.0f});
            scaler.update();
        };
        const double time = measure(step), count = double(gradients.numel());
        check(optimizer.state().skipped == 0 && optimizer.state().taken > 0, "optimizer: steps were skipped");
        // Gradients are read twice, weights and both moments read and written, the shadow written.
        const double rate = count * (2 * 4 + 6 * 4 + 2) / time;
        const bool slow = time * 1e3 > kOptimizerMs;
        table.misses += slow;
        table.line(fmt::format("optimizer, {} shadow", name_of(shadow)),
                   fmt::format("{}; {:.2f} ms for {:.0f}M parameters: {}",
                               table.cell(rate * 1e-12, rate / table.copy, kCopyBar), time * 1e3, count * 1e-6,
                               slow ? "MISS" : "PASS"));
    }
}

// --- products ---

struct OneLayer : Module {
    explicit OneLayer(bool bias)
        : w(add_parameter("weight", random({kSide, kSide}, Dtype::f32))),
          b(bias ? &add_parameter("bias", random({kSide}, Dtype::f32)) : nullptr) {}
    Tensor forward(const Tensor& x) override { return ops::linear(x, w.value, b ? b->value : Tensor{}); }
    Parameter &w, *b;
};

void measure_products(Table& table) {
    constexpr int kTimes = 20, kRounds = 3;
    const double product = 2.0 * double(kSide) * double(kSide) * double(kSide);
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
        if (!table.wants("linear")) return;
        const Tensor a = random({1, kSide, kSide}, dtype), b = random({1, kSide, kSide}, dtype),
                     y = Tensor::empty_like(a);
        const Run multiply = [&] { gpu().matmul(a.view(), b.view(), {}, y.view(), false); };
        for (const bool bias : {false, true}) {
            OneLayer layer(bias);
            Optimizer optimizer(layer, {}, {Dtype::f32, dtype});
            Tensor x = a.window(0, {kSide, kSide}), gy = b.window(0, {kSide, kSide});
            x.set_requires_grad();
            const Run train = [&] {
                Tensor out;
                {
                    const Autocast cast(dtype);
                    out = layer(x);
                }
                backward(out, gy);
                x.set_grad({});
            };
            const auto flipped = [](const Tensor& t) {
                return t.as_strided(0, {1, kSide, kSide}, {kSide * kSide, 1, kSide});
            };
            const Tensor gradient = optimizer.store().gradients().window(0, {1, kSide, kSide});
            const Run forward = [&] { gpu().matmul(a.view(), flipped(b).view(), {}, y.view(), false); };
            const Run weights = [&] { gpu().matmul(flipped(b).view(), a.view(), {}, gradient.view(), true); };
            for (const Run& run : {multiply, forward, weights, train}) seconds(run, 5);
            // By turns, so that both meet the card equally warm.
            double single = 0, first = 0, last = 0, both = 0;
            for (int round = 0; round < kRounds; ++round) {
                single += seconds(multiply, kTimes) / kRounds;
                both += seconds(train, kTimes) / kRounds;
                first += seconds(forward, kTimes) / kRounds;
                last += seconds(weights, kTimes) / kRounds;
            }
            const double best = product / single, rate = 3 * product / both;
            table.line(fmt::format("linear{} {}", bias ? "+bias" : "", name_of(dtype)),
                       fmt::format("{} of one product's {:.0f} TFLOP/s; x W^T {:.0f}, FP32 += g^T x {:.0f}",
                                   table.cell(rate * 1e-12, rate / best, kProductBar), best * 1e-12,
                                   product / first * 1e-12, product / last * 1e-12));
        }
    }
}

int run(std::vector<std::string> wanted) {
    Table table(std::move(wanted));
    gpu().configure({.benchmark = true, .deterministic = false});
    fmt::print("{}\n", gpu().description());
    {
        const Tensor x = whole(Dtype::f32), y = Tensor::empty_like(x);
        table.copy = 2.0 * kBytes / measure([&] { gpu().copy(x.view(), y.view()); });
    }
    table.line("device copy", fmt::format("{:6.2f} TB/s, read and written", table.copy * 1e-12));
    for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
        const Tensor a = ops::normal({1, kSide, kSide}, 0, 1, dtype, Device::cuda()),
                     b = ops::normal({1, kSide, kSide}, 0, 1, dtype, Device::cuda()), y = Tensor::empty_like(a);
        const Run multiply = [&] { gpu().matmul(a.view(), b.view(), {}, y.view(), false); };
        seconds(multiply, 3);
        table.line(fmt::format("product {}^3 {}", kSide, name_of(dtype)),
                   fmt::format("{:6.1f} TFLOP/s, ten in a row on a cool card",
                               2e-12 * double(kSide) * double(kSide) * double(kSide) / seconds(multiply, 10)));
    }
    measure_kernels(table);
    measure_optimizer(table);
    release_cached_memory(Device::cuda());
    measure_products(table);
    fmt::print("{} missed\n", table.misses);
    return table.misses > 0 ? 1 : 0;
}

}  // namespace
}  // namespace invar

int main(int argc, char** argv) {
    try {
        if (!invar::why_no_cuda().empty()) {
            fmt::print(stderr, "gpu_kernels: no GPU: {}\n", invar::why_no_cuda());
            return 2;
        }
        return invar::run(std::vector<std::string>(argv + 1, argv + argc));
    } catch (const std::exception& error) {
        fmt::print(stderr, "gpu_kernels: {}\n", error.what());
        return 2;
    }
}
