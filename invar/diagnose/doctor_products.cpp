// Products as layers make them, on the device and in f64: a linear layer forward and backward, and batches of matrices
// that lie in memory as the heads of attention do.
#include <fmt/format.h>

#include <algorithm>

#include "invar/core/format_info.h"
#include "invar/diagnose/doctor_parts.h"
#include "invar/kernels/cpu/reference.h"
#include "invar/kernels/devices.h"

namespace invar {

namespace {

// Streams of random numbers, one for each operand.
enum Stream : std::uint64_t { kInput = 1, kWeight, kBias, kGradient, kSum, kBiasSum };

struct LinearSize {
    std::int64_t rows, in, out;
    double scale = 1;         // of the input
    std::int64_t sample = 1;  // each so manyth row and column is compared
};

// Sizes that tensor cores like and those that nobody does, one row, one column, a long sum, and operands that are
// subnormal in f16.
constexpr LinearSize kSmall[] = {{64, 256, 128}, {37, 129, 65}, {1, 300, 7},
                                 {130, 1, 3},    {5, 2048, 33}, {24, 48, 40, 0x1p-16}};
// Above the pieces that are widened at once, and enough for every thread; sums so long that a card cuts them.
constexpr LinearSize kLarge[] = {{192, 1536, 1536, 1, 24}, {128, 9216, 128, 1, 16}};

Tensor transposed(const Tensor& x) {
    return x.as_strided(0, {x.size(0), x.size(2), x.size(1)}, {x.strides()[0], x.strides()[2], x.strides()[1]});
}

// Each so manyth row and column.
Tensor thinned(const Tensor& x, std::int64_t rows, std::int64_t columns) {
    const Shape &size = x.shape(), &stride = x.strides();
    return x.as_strided(0, {size[0], (size[1] + rows - 1) / rows, (size[2] + columns - 1) / columns},
                        {stride[0], stride[1] * rows, stride[2] * columns});
}

// The factors of a product in f64, with what is added to it.
struct Factors {
    Tensor a, b, bias, sum;
};

Tensor multiplied(const Factors& f, std::int64_t step) {
    const Tensor a = thinned(f.a, step, 1), b = thinned(f.b, 1, step);
    Tensor bias = f.bias;
    if (bias) bias = bias.as_strided(0, {(bias.size(0) + step - 1) / step}, {step});
    const Tensor out = Tensor::empty({a.size(0), a.size(1), b.size(2)}, Dtype::f64);
    if (f.sum) {
        const std::vector<double> sum = thinned(f.sum, step, step).to_vector<double>();
        std::ranges::copy(sum, out.data<double>());
    }
    reference::matmul(a.view(), b.view(), bias ? bias.view() : View{}, out.view(), bool(f.sum));
    return out;
}

TriedOperation tried(std::string operation, const Tensor& result, const Factors& exact, const Factors& magnitude,
                     const TryOptions& options, std::int64_t step = 1) {
    TriedOperation made;
    made.operation = std::move(operation);
    made.shapes = fmt::format("{} x {}", exact.a.shape().str(), exact.b.shape().str());
    made.got = result.on_host();
    made.terms = exact.a.size(2) + (exact.bias || exact.sum ? 1 : 0);
    if (!options.exact) return made;
    made.stride = step;
    made.got = thinned(made.got, step, step);
    made.exact = multiplied(exact, step);
    made.magnitude = multiplied(magnitude, step);
    return made;
}

// One input that is the largest there is, among zeros, times weights that take every sum beyond it, up and down.
void plant_overflow(const Examined& on, std::vector<double>& x, std::vector<double>& w, std::int64_t in) {
    std::fill_n(x.begin(), in, 0.0);
    x[0] = format_info(on.dtype).max;
    for (std::size_t row = 0; row * std::size_t(in) < w.size(); ++row) w[row * std::size_t(in)] = row % 2 == 0 ? 4 : -4;
}

void plant(const Examined& on, const Planted& planted, std::int64_t in, std::vector<double>& x, std::vector<double>& w,
           std::vector<double>& g) {
    using Where = Planted::Where;
    if (planted.where == Where::overflow) return plant_overflow(on, x, w, in);
    if (planted.where == Where::nothing) return;
    std::vector<double>& into = planted.where == Where::input ? x : planted.where == Where::weight ? w : g;
    into[into.size() / 2] = planted.value;
}

std::vector<TriedOperation> try_linear(const Examined& on, const LinearSize& size, const TryOptions& options) {
    const std::int64_t rows = size.rows, in = size.in, out = size.out, step = size.sample;
    std::vector<double> xs = random_values(on, kInput, rows * in, size.scale),
                        ws = random_values(on, kWeight, out * in), gs = random_values(on, kGradient, rows * out);
    plant(on, options.planted, in, xs, ws, gs);
    const GivenTensor x(on, xs, {1, rows, in}, on.dtype), w(on, ws, {1, out, in}, on.dtype),
        g(on, gs, {1, rows, out}, on.dtype), bias(on, random_values(on, kBias, out), {out}, on.dtype),
        gw(on, random_values(on, kSum, out * in), {1, out, in}, Dtype::f32),
        gb(on, random_values(on, kBiasSum, out), {1, 1, out}, Dtype::f32);
    const Tensor ones = Tensor::from(std::vector<double>(std::size_t(rows), 1.0), {1, 1, rows});
    const Tensor y = Tensor::empty({1, rows, out}, on.dtype, on.device), gx = Tensor::empty_like(x.there);

    const Tf32Scope tf32(on.tf32);
    Kernels& kernels = on.kernels;
    kernels.matmul_with({.bias = bias.there.view()}, x.there.view(), transposed(w.there).view(), y.view(), false);
    kernels.matmul(g.there.view(), w.there.view(), {}, gx.view(), false);
    // Weight gradients are FP32 and are added up there; the sum of g's rows is the bias's.
    Epilogue with_bias;
    with_bias.row_sums = gb.there.window(0, {out}).view();
    kernels.matmul_with(with_bias, transposed(g.there).view(), x.there.view(), gw.there.view(), true);
    kernels.synchronize();

    const auto magnitude = [&](const GivenTensor& of) { return options.exact ? of.magnitude() : of.exact; };
    const Tensor mx = magnitude(x), mw = magnitude(w), mg = magnitude(g);
    std::vector<TriedOperation> all;
    all.push_back(tried("linear", y, {x.exact, transposed(w.exact), bias.exact, {}},
                        {mx, transposed(mw), magnitude(bias), {}}, options, step));
    all.push_back(tried("linear, input gradient", gx, {g.exact, w.exact, {}, {}}, {mg, mw, {}, {}}, options, step));
    all.push_back(tried("linear, weight gradient", gw.there, {transposed(g.exact), x.exact, {}, gw.exact},
                        {transposed(mg), mx, {}, magnitude(gw)}, options, step));
    all.push_back(tried("linear, bias gradient", gb.there, {ones, g.exact, {}, gb.exact}, {ones, mg, {}, magnitude(gb)},
                        options));
    all.back().multiplies = false;
    return all;
}

// Attention's two products over tokens whose heads lie side by side: the batch's stride is inside the rows'.
std::vector<TriedOperation> try_batches(const Examined& on, const TryOptions& options) {
    constexpr std::int64_t kQueries = 17, kKeys = 23, kHeads = 3, kWidth = 40;
    const auto heads = [](const Tensor& x) {
        return x.as_strided(0, {kHeads, x.size(0), kWidth}, {kWidth, kHeads * kWidth, 1});
    };
    std::vector<double> qs = random_values(on, kInput, kQueries * kHeads * kWidth),
                        ks = random_values(on, kWeight, kKeys * kHeads * kWidth);
    using Where = Planted::Where;
    if (options.planted.where == Where::input) qs[qs.size() / 2] = options.planted.value;
    if (options.planted.where == Where::weight) ks[ks.size() / 2] = options.planted.value;
    const GivenTensor q(on, qs, {kQueries, kHeads, kWidth}, on.dtype), k(on, ks, {kKeys, kHeads, kWidth}, on.dtype),
        p(on, random_values(on, kGradient, kHeads * kQueries * kKeys), {kHeads, kQueries, kKeys}, on.dtype);
    const Tensor scores = Tensor::empty({kHeads, kQueries, kKeys}, on.dtype, on.device);
    const Tensor values = Tensor::empty({kHeads, kQueries, kWidth}, on.dtype, on.device);
    const Tf32Scope tf32(on.tf32);
    on.kernels.matmul(heads(q.there).view(), transposed(heads(k.there)).view(), {}, scores.view(), false);
    on.kernels.matmul(p.there.view(), heads(k.there).view(), {}, values.view(), false);
    on.kernels.synchronize();
    const Tensor mq = q.magnitude(), mk = k.magnitude();
    return {tried("matmul, second factor transposed", scores, {heads(q.exact), transposed(heads(k.exact)), {}, {}},
                  {heads(mq), transposed(heads(mk)), {}, {}}, options),
            tried("matmul", values, {p.exact, heads(k.exact), {}, {}}, {p.magnitude(), heads(mk), {}, {}}, options)};
}

}  // namespace

std::vector<TriedOperation> try_products(const Examined& on, TrySize size, const TryOptions& options) {
    std::vector<TriedOperation> all;
    const auto add = [&](std::vector<TriedOperation> more) { std::ranges::move(more, std::back_inserter(all)); };
    if (size == TrySize::large) {
        for (const LinearSize& each : kLarge) add(try_linear(on, each, options));
        return all;
    }
    for (const LinearSize& each : kSmall) add(try_linear(on, each, options));
    add(try_batches(on, options));
    return all;
}

bool keeps_subnormals(const Examined& on) {
    constexpr std::int64_t kSide = 16;
    const double least = format_info(on.dtype).smallest_subnormal;
    std::vector<double> left(std::size_t(kSide * kSide), 0.0);
    for (std::int64_t i = 0; i < kSide; ++i) left[std::size_t(i * kSide + i)] = least * double(i + 1);
    const GivenTensor a(on, left, {1, kSide, kSide}, on.dtype),
        b(on, std::vector<double>(left.size(), 1.0), {1, kSide, kSide}, on.dtype);
    const Tensor out = Tensor::empty({1, kSide, kSide}, Dtype::f32, on.device);
    const Tf32Scope tf32(on.tf32);
    on.kernels.matmul(a.there.view(), b.there.view(), {}, out.view(), false);
    on.kernels.synchronize();
    const std::vector<double> got = out.to_vector<double>();
    for (std::int64_t i = 0; i < kSide * kSide; ++i)
        if (got[std::size_t(i)] != least * double(i / kSide + 1)) return false;
    return true;
}

}  // namespace invar
