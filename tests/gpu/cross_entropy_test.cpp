// Losses and gradients of long rows of logits in one pass, against the two passes that it stands for.
#include <algorithm>
#include <cmath>

#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"

namespace invar::testing {
namespace {

// The loss of a row of logits in f64.
double loss_in_double(const double* logits, std::int64_t classes, std::int64_t label, double smoothing) {
    const double largest = *std::max_element(logits, logits + classes);
    double sum = 0, below = 0;
    for (std::int64_t i = 0; i < classes; ++i) {
        sum += std::exp(logits[i] - largest);
        below += largest - logits[i];
    }
    return (1 - smoothing) * (largest - logits[label]) + smoothing * below / double(classes) + std::log(sum);
}

class GpuCrossEntropy : public OnGpu<::testing::TestWithParam<Dtype>> {};

// In 16 bits one block has 8192 classes in its shared memory, and 2, 4 and 8 blocks have the next ones; 1e6 fit
// nowhere. Some are more rows than a GPU works on at once.
TEST_P(GpuCrossEntropy, InOnePassIsThatOfTwo) {
    const Dtype dtype = GetParam();
    Kernels& gpu = kernels_for(Device::cuda());
    constexpr std::int64_t kIgnored = -100;
    struct Case {
        std::int64_t rows, classes;
    };
    for (const auto [rows, classes] :
         {Case{600, 8192}, Case{300, 50304}, Case{150, 100008}, Case{7, 151936}, Case{7, 1000000}})
        for (const double smoothing : {0.0, 0.1}) {
            const std::int64_t some[] = {0, classes - 1, kIgnored, 4097, 12, 8191, 77};
            std::vector<std::int64_t> labels;
            for (std::int64_t i = 0; i < rows; ++i) labels.push_back(some[i % 7]);
            const Tensor target = ops::to(Tensor::from(labels, {rows}), Device::cuda());
            const CrossEntropySpec spec{rows, classes, kIgnored, smoothing};
            const auto logits = [&, rows = rows, classes = classes] {
                Generator generator(9);
                const Tensor made = ops::normal({rows, classes}, 0, 4, dtype, Device::cuda(), generator);
                ops::copy_(made.window(classes * 5 + 3, {1}),
                           Tensor::from(std::vector<double>{30}, {1}, dtype));  // a sure one
                return made;
            };
            const Tensor one = ops::full({}, 1, Dtype::f32, Device::cuda());
            const auto empty = [](const Shape& shape) { return Tensor::empty(shape, Dtype::f32, Device::cuda()); };
            const Tensor x = logits(), losses = empty({rows}), kept = empty({2, rows});
            gpu.cross_entropy_in_place(spec, x.view(), target.view(), losses.view(), kept.view(), one.view());
            const Tensor y = logits(), expected = empty({rows}), wanted = Tensor::empty_like(y);
            gpu.cross_entropy(spec, y.view(), target.view(), expected.view(), kept.view());
            gpu.cross_entropy_backward(spec, y.view(), target.view(), kept.view(), one.view(), {}, wanted.view());
            const auto a = losses.to_vector<double>(), b = expected.to_vector<double>();
            for (std::size_t i = 0; i < a.size(); ++i)
                EXPECT_NEAR(a[i], b[i], 1e-6 * (1 + b[i])) << classes << ", row " << i;
            const auto values = y.to_vector<double>();
            for (const std::size_t i : {0, 1, 3, 5}) {
                const double exact =
                    loss_in_double(values.data() + std::int64_t(i) * classes, classes, labels[i], smoothing);
                EXPECT_NEAR(b[i], exact, 1e-6 * (1 + exact)) << classes << ", row " << i;
            }
            // Sums in another order may turn a rounding of the share, and with it one of the result.
            const auto g = x.to_vector<double>(), h = wanted.to_vector<double>();
            const double rounding = dtype == Dtype::f32 ? 0x1p-21 : dtype == Dtype::f16 ? 0x1p-10 : 0x1p-7;
            std::size_t different = 0;
            for (std::size_t i = 0; i < g.size(); ++i) {
                different += g[i] != h[i];
                ASSERT_LE(std::abs(g[i] - h[i]), rounding * std::abs(h[i]) + 0x1p-24) << classes << ", element " << i;
            }
            if (dtype != Dtype::f32) {
                EXPECT_LE(different, g.size() / 1000) << classes;
            }
        }
}

TEST_P(GpuCrossEntropy, InOnePassHidesNoNanAndNoInfinity) {
    Kernels& gpu = kernels_for(Device::cuda());
    constexpr std::int64_t kRows = 3, kClasses = 50304;
    for (const double bad : {double(NAN), double(INFINITY)}) {
        const Tensor x = ops::full({kRows, kClasses}, 0.5, GetParam(), Device::cuda());
        ops::copy_(x.window(kClasses + 40000, {1}), Tensor::from(std::vector<double>{bad}, {1}, GetParam()));
        const Tensor target = ops::full({kRows}, 3, Dtype::i64, Device::cuda());
        const auto empty = [](const Shape& shape) { return Tensor::empty(shape, Dtype::f32, Device::cuda()); };
        const Tensor losses = empty({kRows}), kept = empty({2, kRows}),
                     one = ops::full({}, 1, Dtype::f32, Device::cuda());
        gpu.cross_entropy_in_place({kRows, kClasses, -100, 0}, x.view(), target.view(), losses.view(), kept.view(),
                                   one.view());
        const auto found = losses.to_vector<double>(), g = x.to_vector<double>();
        EXPECT_TRUE(std::isfinite(found[0]) && !std::isfinite(found[1]) && std::isfinite(found[2]));
        EXPECT_TRUE(std::isnan(g[std::size_t(kClasses)]));
        EXPECT_TRUE(std::isfinite(g[0]) && std::isfinite(g[std::size_t(2 * kClasses)]));
    }
}

// Classes that are masked out, whole blocks of them, count for nothing, and a row of nothing else has no loss.
TEST_P(GpuCrossEntropy, TakesMinusInfinityForNoClass) {
    Kernels& gpu = kernels_for(Device::cuda());
    constexpr std::int64_t kRows = 3;
    for (const std::int64_t classes : {8192, 50304, 151936}) {
        const std::int64_t open = 1000;
        const Tensor x = ops::full({kRows, classes}, 0.5, GetParam(), Device::cuda());
        const auto mask = [&](std::int64_t first, std::int64_t count) {
            ops::copy_(x.window(first, {count}), ops::full({count}, -INFINITY, GetParam(), Device::cuda()));
        };
        mask(open, classes - open);
        mask(2 * classes, classes);
        const Tensor target = ops::full({kRows}, 3, Dtype::i64, Device::cuda());
        const auto empty = [](const Shape& shape) { return Tensor::empty(shape, Dtype::f32, Device::cuda()); };
        const Tensor losses = empty({kRows}), kept = empty({2, kRows}), before = empty({kRows}),
                     one = ops::full({}, 1, Dtype::f32, Device::cuda());
        const CrossEntropySpec spec{kRows, classes, -100, 0};
        gpu.cross_entropy(spec, x.view(), target.view(), before.view(), kept.view());
        gpu.cross_entropy_in_place(spec, x.view(), target.view(), losses.view(), kept.view(), one.view());
        for (const Tensor& made : {before, losses}) {
            const auto found = made.to_vector<double>();
            EXPECT_NEAR(found[0], std::log(double(open)), 1e-5) << classes;
            EXPECT_NEAR(found[1], std::log(double(classes)), 1e-5) << classes;
            EXPECT_TRUE(std::isnan(found[2])) << classes;
        }
        const auto g = x.to_vector<double>();
        EXPECT_NEAR(g[0], 1.0 / double(open), 1e-5);
        EXPECT_EQ(g[std::size_t(open)], 0.0);
        EXPECT_EQ(g[std::size_t(classes - 1)], 0.0);
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuCrossEntropy, ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace invar::testing
