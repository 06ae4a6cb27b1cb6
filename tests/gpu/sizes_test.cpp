// Tensors of awkward sizes on the GPU: odd and unaligned, empty, past 2^31 elements, and larger than its memory.
#include <algorithm>
#include <cstring>
#include <limits>

#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"
#include "tests/ops/rounding.h"

namespace invar::testing {
namespace {

// --- odd sizes ---

struct RowCase {
    const char* name;
    Function run;  // of x [rows, columns], gamma and beta [columns]
    double terms = 1, gradient_terms = 1;
};

Tensor labels_of(const Tensor& x) {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < x.size(0); ++i) labels.push_back(i * 7 % x.size(1));
    return ops::to(Tensor::from(labels, {x.size(0)}), x.device());
}

std::vector<RowCase> row_cases() {
    const auto wide = [](const Tensor& x) { return x.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32; };
    return {
        {"gelu", [](const Tensors& in) { return ops::gelu(in[0]); }},
        {"gelu_tanh", [](const Tensors& in) { return ops::gelu(in[0], true); }},
        {"mul", [](const Tensors& in) { return in[0] * in[1]; }},
        {"mul by a column", [](const Tensors& in) { return in[0] * ops::slice(in[0], 1, 0, 1); }, 1, 2},
        {"every second", [](const Tensors& in) { return ops::relu(ops::slice(in[0], 1, 0, in[0].size(1), 2)); }},
        {"mean", [](const Tensors& in) { return ops::mean(ops::exp(in[0])); }},
        {"mean of rows", [](const Tensors& in) { return ops::mean(ops::exp(in[0]), {1}); }},
        {"mean of columns", [](const Tensors& in) { return ops::mean(ops::exp(in[0]), {0}); }},
        {"max of rows", [](const Tensors& in) { return ops::max(in[0], 1).values; }},
        {"max of columns", [](const Tensors& in) { return ops::max(in[0], 0).values; }},
        {"softmax of rows", [](const Tensors& in) { return ops::softmax(in[0], 1); }, 1, 8},
        {"softmax of columns", [](const Tensors& in) { return ops::softmax(in[0], 0); }, 1, 8},
        {"log_softmax", [](const Tensors& in) { return ops::log_softmax(in[0], 1); }, 1, 8},
        {"cross_entropy", [](const Tensors& in) { return ops::cross_entropy(in[0], labels_of(in[0])); }, 2, 2},
        {"layer_norm", [](const Tensors& in) { return ops::layer_norm(in[0], {in[0].size(1)}, in[1], in[2]); }, 2, 8},
        {"rms_norm", [](const Tensors& in) { return ops::rms_norm(in[0], in[1]); }, 2, 8},
        {"add_layer_norm",  // the sum's gradient comes on two ways
         [](const Tensors& in) {
             const Tensors both = ops::add_layer_norm(in[0], ops::exp(in[0]), in[1], in[2]);
             return both[0] * both[1];
         },
         4, 16},
        {"add_rms_norm",
         [](const Tensors& in) {
             const Tensors both = ops::add_rms_norm(in[0], ops::exp(in[0]), in[1]);
             return both[0] * both[1];
         },
         4, 16},
        {"batch_norm",
         [=](const Tensors& in) {
             const Tensor mean = ops::zeros({in[0].size(1)}, wide(in[0]), in[0].device());
             return ops::batch_norm(in[0], in[1], in[2], mean, ops::ones_like(mean), true);
         },
         2, 16},
        {"dropout",
         [](const Tensors& in) {
             default_generator().set_state({5, 9});
             return ops::dropout(in[0], 0.3, true);
         }},
    };
}

struct Layout {
    Dtype dtype;
    int offset;  // elements the tensors begin after a 16-byte boundary
};

class GpuRows : public OnGpu<::testing::TestWithParam<Layout>> {};

TEST_P(GpuRows, MayBeOddLongAndUnaligned) {
    const auto [dtype, offset] = GetParam();
    // Sums run in double but for a few neighbours, or a few dozen rows, that are added in FP32 first.
    constexpr std::int64_t kSummed = 64;
    for (const Shape& shape :
         {Shape{3, 7}, Shape{37, 1023}, Shape{129, 1024}, Shape{5, 4097}, Shape{3, 33001}, Shape{4099, 8}}) {
        Tensors rooms, values;
        for (const Shape& size : {shape, Shape{shape[1]}, Shape{shape[1]}}) {
            const std::int64_t count = size.numel() + offset;
            rooms.push_back(Tensor::from(random_values(count, 0.5, 2, 5 + rooms.size()), {count}, dtype));
            values.push_back(exactly(rooms.back().window(offset, size)));
        }
        for (const RowCase& row_case : row_cases()) {
            Tensors leaves, exact;
            for (std::size_t i = 0; i < rooms.size(); ++i) {
                leaves.push_back(ops::to(rooms[i], Device::cuda()).window(offset, values[i].shape()));
                leaves.back().set_requires_grad();
                exact.push_back(values[i].detach().set_requires_grad());
            }
            const std::string what = fmt::format("{} of {}", row_case.name, shape.str());
            const Tensor y = row_case.run(leaves), reference = row_case.run(exact);
            ASSERT_EQ(y.shape(), reference.shape()) << what;
            const std::size_t roundings = std::max<std::size_t>(ops_behind(y), 1);
            EXPECT_LE(error_share(y.to_vector<double>(), reference.to_vector<double>(), row_case.terms, dtype,
                                  roundings, kSummed),
                      1)
                << what;
            const Tensor g = Tensor::from(random_values(y.numel(), 0.5, 1.5, 99), y.shape(), y.dtype());
            backward(y, on_gpu(g));
            backward(reference, exactly(g).detach());
            for (std::size_t i = 0; i < leaves.size(); ++i) {
                if (!exact[i].grad()) continue;
                EXPECT_LE(error_share(leaves[i].grad().to_vector<double>(), exact[i].grad().to_vector<double>(),
                                      row_case.gradient_terms, dtype, roundings + 1, kSummed),
                          1)
                    << what << ", gradient of input " << i;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuRows,
                         ::testing::Values(Layout{Dtype::f32, 0}, Layout{Dtype::f16, 0}, Layout{Dtype::bf16, 0},
                                           Layout{Dtype::f32, 1}, Layout{Dtype::f16, 3}, Layout{Dtype::bf16, 1}),
                         [](const auto& info) {
                             return std::string(name_of(info.param.dtype)) + (info.param.offset ? "_unaligned" : "");
                         });

TEST_F(Gpu, AddsLowPrecisionIntoFp32WithoutRounding) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
        for (const std::int64_t count : {1, 4099, 70001}) {
            const Tensor x = random_on_gpu({count}, dtype, 1).detach(),
                         y = random_on_gpu({count}, Dtype::f32, 2).detach();
            std::vector<double> expected = y.to_vector<double>();
            const std::vector<double> added = x.to_vector<double>();
            for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = float(expected[i] + added[i]);
            kernels_for(Device::cuda()).add_into(x.view(), y.view());
            EXPECT_EQ(y.to_vector<double>(), expected) << name_of(dtype) << " " << count;
        }
}

// --- empty ---

// What becomes of an op on a device, in words: shapes and values of the result and of x's gradient, or that it refuses.
std::string outcome(Tensor (*run)(const Tensor&), const Shape& shape, Device device) {
    const auto words = [](const Tensor& t) {
        std::string text = t.shape().str() + ":";
        for (const double v : t.to_vector<double>()) text += fmt::format(" {}", v);
        return text;
    };
    const Tensor x = ops::zeros(shape, Dtype::f32, device).set_requires_grad();
    try {
        const Tensor y = run(x);
        if (!y.requires_grad()) return words(y);
        backward(y, ops::ones_like(y));
        return words(y) + ", gradient " + words(x.grad());
    } catch (const Error&) {
        return "refused";
    }
}

TEST_F(Gpu, TakesEmptyTensorsAsTheCpuDoes) {
    struct Case {
        const char* name;
        Shape shape;
        Tensor (*run)(const Tensor&);
    };
    const Case cases[] = {
        {"unary", {0, 3}, [](const Tensor& x) { return ops::gelu(x); }},
        {"binary", {0, 3}, [](const Tensor& x) { return x * x; }},
        {"broadcast", {0, 3}, [](const Tensor& x) { return x + ops::ones({3}, Dtype::f32, x.device()); }},
        {"cast", {0, 3}, [](const Tensor& x) { return ops::cast(x, Dtype::bf16); }},
        {"dropout", {0, 3}, [](const Tensor& x) { return ops::dropout(x, 0.5, true); }},
        {"cat",
         {0, 3},
         [](const Tensor& x) {
             return ops::cat({x, ops::ones({2, 3}, Dtype::f32, x.device())}, 0);
         }},
        {"copy", {0, 3}, [](const Tensor& x) { return ops::contiguous(ops::transpose(x, 0, 1)); }},
        {"sum", {0, 3}, [](const Tensor& x) { return ops::sum(x); }},
        {"sum of nothing", {0, 3}, [](const Tensor& x) { return ops::sum(x, {0}); }},
        {"no sums", {0, 3}, [](const Tensor& x) { return ops::sum(x, {1}); }},
        {"mean", {0, 3}, [](const Tensor& x) { return ops::mean(x, {1}); }},
        {"max", {0, 3}, [](const Tensor& x) { return ops::max(x, 1).values; }},
        {"max of nothing", {0, 3}, [](const Tensor& x) { return ops::max(x); }},
        {"softmax", {0, 3}, [](const Tensor& x) { return ops::softmax(x); }},
        {"softmax of columns", {3, 0}, [](const Tensor& x) { return ops::softmax(x, 0); }},
        {"layer_norm", {0, 3}, [](const Tensor& x) { return ops::layer_norm(x, {3}); }},
        {"add_rms_norm", {0, 3}, [](const Tensor& x) { return ops::add_rms_norm(x, x)[1]; }},
        {"rotary",
         {2, 0, 8},
         [](const Tensor& x) {
             return ops::rotary(x, 2, 0, ops::rotary_table(4, ops::rotary_speeds(4), Dtype::f32, x.device()));
         }},
        {"linear",
         {0, 3},
         [](const Tensor& x) {
             return ops::linear(x, ops::ones({5, 3}, Dtype::f32, x.device()));
         }},
        {"linear of nothing",
         {2, 0},
         [](const Tensor& x) {
             return ops::linear(x, ops::ones({5, 0}, Dtype::f32, x.device()));
         }},
        {"matmul",
         {2, 0},
         [](const Tensor& x) {
             return ops::matmul(x, ops::ones({0, 2}, Dtype::f32, x.device()));
         }},
        {"batched matmul",
         {0, 2, 3},
         [](const Tensor& x) {
             return ops::matmul(x, ops::ones({0, 3, 2}, Dtype::f32, x.device()));
         }},
        {"conv2d",
         {0, 5, 5, 3},
         [](const Tensor& x) {
             return ops::conv2d(x, ops::ones({4, 3, 3, 3}, Dtype::f32, x.device()), {}, {});
         }},
        {"max_pool2d", {0, 4, 4, 3}, [](const Tensor& x) { return ops::max_pool2d(x, {}); }},
        {"avg_pool2d", {0, 4, 4, 3}, [](const Tensor& x) { return ops::avg_pool2d(x, {}); }},
        {"upsample", {0, 4, 4, 3}, [](const Tensor& x) { return ops::upsample(x, 2.0); }},
        {"embedding",
         {4, 3},
         [](const Tensor& x) { return ops::embedding(ops::zeros({0}, Dtype::i64, x.device()), x); }},
        {"cross_entropy",
         {0, 3},
         [](const Tensor& x) {
             return ops::cross_entropy(x, ops::zeros({0}, Dtype::i64, x.device()), {ops::Reduction::sum});
         }},
    };
    for (const Case& c : cases)
        EXPECT_EQ(outcome(c.run, c.shape, Device::cuda()), outcome(c.run, c.shape, Device::cpu())) << c.name;
}

// --- past 2^31 elements ---

constexpr std::int64_t kColumns = 64, kManyRows = (std::int64_t(1) << 25) + 5;  // 2^31 + 320 elements

// An op of rows gives the last ones what it gives them alone.
TEST_F(Gpu, CountsPastTwoToThe31InOpsOfRows) {
    const NoGrad no_grad;
    constexpr std::int64_t kLast = 5;
    const std::pair<const char*, Tensor (*)(const Tensor&)> cases[] = {
        {"unary", [](const Tensor& x) { return ops::gelu(x); }},
        {"binary", [](const Tensor& x) { return x * x; }},
        {"broadcast", [](const Tensor& x) { return x * ops::slice(x, 1, 3, 4); }},
        {"cast up", [](const Tensor& x) { return ops::cast(x, Dtype::f32); }},
        {"cast to bytes", [](const Tensor& x) { return ops::cast(x * 50, Dtype::u8); }},
        {"copied bytes",
         [](const Tensor& x) { return ops::contiguous(ops::slice(ops::cast(x * 50, Dtype::u8), 1, 1, kColumns)); }},
        {"transposed twice",
         [](const Tensor& x) {
             return ops::contiguous(ops::transpose(ops::contiguous(ops::transpose(x, 0, 1)), 0, 1));
         }},
        {"softmax", [](const Tensor& x) { return ops::softmax(x); }},
        {"layer_norm", [](const Tensor& x) { return ops::layer_norm(x, {kColumns}); }},
        {"add_rms_norm", [](const Tensor& x) { return ops::add_rms_norm(x, x)[1]; }},
        {"sum of rows", [](const Tensor& x) { return ops::sum(x, {1}); }},
        {"max_pool2d",
         [](const Tensor& x) {
             return ops::max_pool2d(ops::reshape(x, {x.size(0), 2, 2, kColumns / 4}), {});
         }},
        {"avg_pool2d",
         [](const Tensor& x) {
             return ops::avg_pool2d(ops::reshape(x, {x.size(0), 2, 2, kColumns / 4}), {});
         }},
    };
    const Tensor x = ops::uniform({kManyRows, kColumns}, 1, 3, Dtype::bf16, Device::cuda());
    const Tensor end = x.window((kManyRows - kLast) * kColumns, {kLast, kColumns});
    for (const auto& [name, run] : cases) {
        const Tensor all = run(x), few = run(end);
        const Tensor last = all.window(all.numel() - few.numel(), few.shape());
        EXPECT_TRUE(bytes_of(last) == bytes_of(few)) << name;
        release_cached_memory(Device::cuda());
    }
}

TEST_F(Gpu, CountsPastTwoToThe31InReductions) {
    const NoGrad no_grad;
    const std::int64_t count = kManyRows * kColumns, special = count - 3;
    Kernels& kernels = kernels_for(Device::cuda());
    const Tensor x = ops::full({count}, 0.5, Dtype::bf16, Device::cuda());
    const Tensor total = ops::zeros({1}, Dtype::f64, Device::cuda()),
                 columns = ops::zeros({kColumns}, Dtype::f64, Device::cuda());
    kernels.sum({1, count, 1}, x.view(), total.view(), 1.0, false);
    EXPECT_EQ(total.to_vector<double>()[0], 0.5 * double(count));
    kernels.sum({1, kManyRows, kColumns}, x.view(), columns.view(), 1.0, false);
    EXPECT_EQ(columns.to_vector<double>(), std::vector<double>(kColumns, 0.5 * double(kManyRows)));
    kernels.fill(x.window(special, {1}).view(), 7);
    EXPECT_EQ(ops::argmax(x, 0).to_vector<std::int64_t>()[0], special);
    const Tensor index = ops::to(Tensor::from(std::vector<std::int64_t>{special}, {1}), Device::cuda());
    EXPECT_EQ(ops::gather(x, 0, index).item(), 7);
    EXPECT_TRUE(kernels.all_finite(x.view()));
    kernels.fill(x.window(special, {1}).view(), std::numeric_limits<double>::infinity());
    EXPECT_FALSE(kernels.all_finite(x.view()));
}

TEST_F(Gpu, CountsPastTwoToThe31InTheOptimizer) {
    const std::int64_t count = kManyRows * kColumns;
    Kernels& kernels = kernels_for(Device::cuda());
    const Tensor weights = ops::ones({count}, Dtype::f32, Device::cuda()),
                 gradients = ops::full({count}, 0.25, Dtype::f32, Device::cuda()),
                 memory = ops::zeros({std::int64_t(sizeof(StepState))}, Dtype::u8, Device::cuda());
    StepState* state = static_cast<StepState*>(memory.raw());
    FlatStore store{};
    store.weights = weights.raw(), store.weights_dtype = Dtype::f32, store.gradients = gradients.data<float>(),
    store.count = count;
    const Segment segment{0, count, 0};
    OptimizerSpec sgd;
    sgd.kind = OptimizerSpec::Kind::sgd, sgd.lr = 1;
    kernels.grad_stats(gradients.view(), state);
    kernels.plan(state, nullptr, {}, {});
    kernels.optimizer_step(store, {&segment, 1}, {&sgd, 1}, state);
    StepState found;
    kernels.download(&found, state, sizeof found);
    EXPECT_EQ(found.sum_squares, 0.0625 * double(count));
    EXPECT_EQ(weights.window(count - 9, {9}).to_vector<double>(), std::vector<double>(9, 0.75));
    kernels.fill(gradients.window(count - 2, {1}).view(), std::numeric_limits<double>::quiet_NaN());
    kernels.grad_stats(gradients.view(), state);
    kernels.download(&found, state, sizeof found);
    EXPECT_EQ(found.nonfinite, 1);
    EXPECT_EQ(found.first_nonfinite, count - 2);
    kernels.fill(gradients.window(5, {3}).view(), -std::numeric_limits<double>::infinity());
    kernels.grad_stats(gradients.view(), state);
    kernels.download(&found, state, sizeof found);
    EXPECT_EQ(found.nonfinite, 4);
    EXPECT_EQ(found.first_nonfinite, 5);
}

// --- more than there is ---

TEST_F(Gpu, SaysWhatWasAskedForAndWhatIsHeldWhenMemoryRunsOut) {
    release_cached_memory(Device::cuda());
    const std::int64_t before = memory_stats(Device::cuda()).live_total, block = std::int64_t(8) << 30;
    std::vector<Tensor> held;
    std::string message;
    while (message.empty() && held.size() < 1000) try {
            held.push_back(Tensor::empty({block}, Dtype::u8, Device::cuda()));
        } catch (const Error& error) {
            message = error.what();
        }
    const std::int64_t in_use = before + block * std::int64_t(held.size());
    const auto says = [&](const std::string& part) { return message.find(part) != std::string::npos; };
    EXPECT_TRUE(says(fmt::format("out of memory on cuda:0: {} bytes asked for, {} bytes in use", block, in_use)))
        << message;
    EXPECT_TRUE(says("activations ")) << message;
    // The process goes on with what it has, and has all of it again once the rest is let go.
    EXPECT_EQ(ops::sum(ops::ones({1000}, Dtype::f32, Device::cuda())).item(), 1000);
    const std::size_t many = held.size();
    held.clear();
    while (held.size() < many) held.push_back(Tensor::empty({block}, Dtype::u8, Device::cuda()));
    held.clear();
    release_cached_memory(Device::cuda());
}

TEST_F(Gpu, RefusesWhatNoMemoryCouldHold) {
    EXPECT_THROW(Tensor::empty({std::int64_t(1) << 42}, Dtype::u8, Device::cuda()), Error);
    EXPECT_EQ(ops::sum(ops::ones({1000}, Dtype::f32, Device::cuda())).item(), 1000);
}

}  // namespace
}  // namespace invar::testing
