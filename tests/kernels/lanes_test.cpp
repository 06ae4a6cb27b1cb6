// Choices that NaN takes part in, at every place of a vector register: compilers turn them into masks and blends, and
// what holds for one element must hold for its neighbours.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "invar/autograd/node.h"
#include "invar/ops/ops.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {
namespace {

constexpr std::int64_t kMost = 40;  // elements: registers hold 32 at most, and what is left over is done by itself

class Lanes : public ::testing::TestWithParam<Dtype> {
  protected:
    void SetUp() override { set_threads(1); }
    void TearDown() override { set_threads(threads_); }

    Tensor leaf(const std::vector<double>& values, const Shape& shape) const {
        return Tensor::from(values, shape, GetParam()).set_requires_grad();
    }
    Tensor leaf(const std::vector<double>& values) const { return leaf(values, {std::int64_t(values.size())}); }

    // f(n, p) for every size and every place in it; p is -1 once, for no place at all.
    static void for_places(const std::function<void(std::int64_t, std::int64_t)>& f) {
        for (std::int64_t n = 1; n <= kMost; ++n)
            for (std::int64_t p = -1; p < n; ++p) f(n, p);
    }
    static std::vector<double> random(std::uint64_t seed) { return random_values(4 * kMost, 0.1, 0.9, seed); }
    int threads_ = threads();
};

bool same(double a, double b) {
    return a == b || (std::isnan(a) && std::isnan(b));
}

TEST_P(Lanes, OfPointwiseOpsAnswerAsOneElementDoes) {
    const std::vector<std::pair<const char*, Function>> functions = {
        {"relu", [](const Tensors& in) { return ops::relu(in[0] - in[1]); }},
        {"abs", [](const Tensors& in) { return ops::abs(in[0]); }},
        {"clamp", [](const Tensors& in) { return ops::clamp(in[0], 0.3, 0.5); }},
        {"maximum", [](const Tensors& in) { return ops::maximum(in[0], in[1]); }},
        {"minimum", [](const Tensors& in) { return ops::minimum(in[0], in[1]); }},
        {"maximum, turned", [](const Tensors& in) { return ops::maximum(in[1], in[0]); }},
        {"minimum, turned", [](const Tensors& in) { return ops::minimum(in[1], in[0]); }},
        {"softplus", [](const Tensors& in) { return ops::softplus(in[0] - in[1]); }},
        {"gelu_tanh", [](const Tensors& in) { return ops::gelu(in[0], true); }},
        {"silu", [](const Tensors& in) { return ops::silu(in[0]); }},
        {"pow", [](const Tensors& in) { return ops::pow(in[0], 2.1); }},
        {"l1", [](const Tensors& in) { return ops::absolute_error(in[0], in[1]); }},
        {"smooth_l1", [](const Tensors& in) { return ops::smooth_l1_error(in[0], in[1], 0.2); }},
        {"bce_with_logits", [](const Tensors& in) { return ops::bce_with_logits_error(in[0], in[1]); }},
        {"bce", [](const Tensors& in) { return ops::bce_error(in[0], in[1]); }},
    };
    const std::vector<double> numbers[3] = {random(1), random(2), random(3)};  // two operands and the gradient
    using Outputs = std::array<std::vector<double>, 3>;
    for (const auto& [name, function] : functions) {
        // Elements `begin` to `end`, with NaN at p in the one operand, in the other, or in the gradient.
        const auto run = [&, &f = function](std::int64_t begin, std::int64_t end, int bad, std::int64_t p) -> Outputs {
            Tensors in;
            for (int k = 0; k < 3; ++k) {
                std::vector<double> values(numbers[k].begin() + begin, numbers[k].begin() + end);
                if (k == bad && p >= 0) values[std::size_t(p)] = NAN;
                in.push_back(leaf(values));
            }
            const Tensor y = f({in[0], in[1]});
            backward(y, in[2].detach());
            return {y.to_vector<double>(), in[0].grad().to_vector<double>(),
                    in[1].grad() ? in[1].grad().to_vector<double>() : std::vector<double>(y.numel())};
        };
        std::vector<Outputs> clean;
        for (std::int64_t i = 0; i < kMost; ++i) clean.push_back(run(i, i + 1, 0, -1));
        for (const int bad : {0, 1, 2}) {
            std::vector<Outputs> spoilt;
            for (std::int64_t i = 0; i < kMost; ++i) spoilt.push_back(run(i, i + 1, bad, 0));
            for_places([&, name = name](std::int64_t n, std::int64_t p) {
                const Outputs got = run(0, n, bad, p);
                for (std::int64_t i = 0; i < n; ++i)
                    for (std::size_t k = 0; k < 3; ++k) {
                        const double value = got[k][std::size_t(i)];
                        const auto& right = i == p ? spoilt : clean;
                        EXPECT_TRUE(same(value, right[std::size_t(i)][k][0]) && (i == p || std::isfinite(value)))
                            << name << ", output " << k << ", n " << n << ", NaN at " << p << ", lane " << i;
                    }
            });
        }
    }
}

// Of four rows the third may have a NaN: along the rows, down the columns, and among the pixels of a window.
TEST_P(Lanes, OfMaximaShowNanWhereItIsAndNowhereElse) {
    const std::vector<double> numbers = leaf(random(4)).to_vector<double>();
    for_places([&](std::int64_t count, std::int64_t p) {
        const auto n = std::size_t(count);
        const std::vector<double> clean(numbers.begin(), numbers.begin() + 4 * count);
        std::vector<double> values = clean;
        if (p >= 0) values[2 * n + std::size_t(p)] = NAN;
        const Tensor x = leaf(values, {4, count}), before = leaf(clean, {4, count});
        const ops::MaxResult rows = ops::max(x, 1), columns = ops::max(x, 0);
        const Tensor pooled = ops::max_pool2d(leaf(values, {1, 2, 2, count}), {{2, 2}});
        const std::string where = fmt::format("n {}, NaN at {}", n, p);
        const std::vector<double> along = rows.values.to_vector<double>();
        for (std::size_t r = 0; r < 4; ++r) {
            const auto begin = clean.begin() + std::ptrdiff_t(r * n), end = begin + std::ptrdiff_t(n);
            const bool bad = p >= 0 && r == 2;
            EXPECT_TRUE(same(along[r], bad ? NAN : *std::max_element(begin, end))) << where;
            EXPECT_EQ(rows.indices.to_vector<std::int64_t>()[r], bad ? p : std::max_element(begin, end) - begin)
                << where;
        }
        const std::vector<double> down = columns.values.to_vector<double>(), window = pooled.to_vector<double>();
        const std::vector<std::int64_t> at = columns.indices.to_vector<std::int64_t>();
        const std::vector<double> soft = ops::softmax(x, 0).to_vector<double>(),
                                  right = ops::softmax(before, 0).to_vector<double>();
        for (std::size_t c = 0; c < n; ++c) {
            const bool bad = std::int64_t(c) == p;
            double largest = 0;
            for (std::size_t r = 0; r < 4; ++r) largest = std::fmax(largest, clean[r * n + c]);
            EXPECT_TRUE(same(down[c], bad ? NAN : largest)) << where;
            EXPECT_TRUE(same(window[c], bad ? NAN : largest)) << where;
            EXPECT_TRUE(at[c] == 2 || !bad) << where;
            for (std::size_t r = 0; r < 4; ++r)
                EXPECT_TRUE(same(soft[r * n + c], bad ? NAN : right[r * n + c])) << where;
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Formats, Lanes, ::testing::Values(Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace invar::testing
