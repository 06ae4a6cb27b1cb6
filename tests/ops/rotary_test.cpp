// Rotary positions against the complex numbers that they are: each pair is multiplied by exp(i angle).
#include "invar/ops/rotary.h"

#include <gtest/gtest.h>

#include <complex>
#include <numbers>

#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

constexpr std::int64_t kBatch = 2, kLength = 7, kHeads = 4, kKvHeads = 2, kWidth = 16;
constexpr std::int64_t kAll = kHeads + 2 * kKvHeads;

Tensor values(Dtype dtype = Dtype::f64) {
    const Shape shape{kBatch, kLength, kAll * kWidth};
    return Tensor::from(random_values(shape.numel(), -1, 1, 3), shape, dtype);
}

TEST(Rotary, MultipliesPairsByComplexNumbers) {
    const Tensor x = values(), table = rotary_table(40, rotary_speeds(kWidth), Dtype::f64);
    const std::vector<double> in = x.to_vector<double>();
    const Tensor positions = Tensor::from(std::vector<std::int64_t>{3, 1, 4, 1, 5, 9, 2}, {kLength});
    for (const RotaryPositions& at : {RotaryPositions{}, RotaryPositions{30}, RotaryPositions{20, positions}}) {
        const std::vector<double> out = rotary(x, kHeads, kKvHeads, table, at).to_vector<double>();
        for (std::int64_t i = 0; i < x.numel(); ++i) {
            const std::int64_t column = i % kWidth, head = i / kWidth % kAll, row = i / kWidth / kAll % kLength;
            if (head >= kHeads + kKvHeads) {
                EXPECT_EQ(out[std::size_t(i)], in[std::size_t(i)]) << "values are copied";
                continue;
            }
            if (column >= kWidth / 2) continue;
            const std::size_t first = std::size_t(i), second = first + kWidth / 2;
            const std::int64_t place =
                (at.positions ? positions.to_vector<std::int64_t>()[std::size_t(row)] : row) + at.offset;
            const double angle = double(place) * std::pow(10000.0, -2.0 * double(column) / kWidth);
            const std::complex<double> turned = std::complex<double>(in[first], in[second]) * std::polar(1.0, angle);
            EXPECT_NEAR(out[first], turned.real(), 1e-14);
            EXPECT_NEAR(out[second], turned.imag(), 1e-14);
        }
    }
}

TEST(Rotary, MakesProductsThatDependOnDistanceAlone) {
    const Tensor table = rotary_table(100, rotary_speeds(kWidth), Dtype::f64);
    const Tensor q = Tensor::from(random_values(kWidth, -1, 1, 1), {1, 1, kWidth}),
                 k = Tensor::from(random_values(kWidth, -1, 1, 2), {1, 1, kWidth});
    const auto product = [&](std::int64_t i, std::int64_t j) {
        return sum(rotary(q, 1, 0, table, {i}) * rotary(k, 1, 0, table, {j})).item();
    };
    EXPECT_NEAR(product(5, 2), product(93, 90), 1e-13);
    EXPECT_GT(std::fabs(product(5, 2) - product(5, 3)), 1e-3);
}

TEST(Rotary, GoesBackByTheOppositeAngle) {
    Tensor x = values();
    x.set_requires_grad();
    const Tensor table = rotary_table(kLength, rotary_speeds(kWidth), Dtype::f64);
    const Tensor y = rotary(x, kHeads, kKvHeads, table);
    backward(y, y.detach());  // a rotation of what was rotated, back
    const std::vector<double> got = x.grad().to_vector<double>(), expected = x.to_vector<double>();
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-14);
}

TEST(Rotary, KeepsTheFormatAndRoundsOnce) {
    const Tensor table = rotary_table(kLength, rotary_speeds(kWidth));
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
        const Tensor x = values(dtype), y = rotary(x, kHeads, kKvHeads, table);
        EXPECT_EQ(y.dtype(), dtype);
        const std::vector<double> got = y.to_vector<double>(),
                                  exact = rotary(cast(x, Dtype::f64), kHeads, kKvHeads, table).to_vector<double>();
        const double half = dtype == Dtype::f32 ? 0x1p-23 : dtype == Dtype::f16 ? 0x1p-11 : 0x1p-8;
        for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_NEAR(got[i], exact[i], half * std::fabs(exact[i]) * 1.01 + 0x1p-23);
    }
}

TEST(Rotary, ScalesSpeedsAsLlama3Does) {
    const std::vector<double> plain = rotary_speeds(128, {.base = 500000});
    const std::vector<double> scaled = rotary_speeds(128, {.base = 500000,
                                                           .scaling = RotarySpeeds::Scaling::llama3,
                                                           .factor = 8,
                                                           .low_freq_factor = 1,
                                                           .high_freq_factor = 4,
                                                           .original_length = 8192});
    const std::vector<double> linear =
        rotary_speeds(128, {.base = 500000, .scaling = RotarySpeeds::Scaling::linear, .factor = 2});
    ASSERT_EQ(scaled.size(), 64u);
    for (std::size_t i = 0; i < 64; ++i) {
        EXPECT_DOUBLE_EQ(plain[i], std::pow(500000.0, -double(i) / 64));
        EXPECT_DOUBLE_EQ(linear[i], plain[i] / 2);
        const double wavelength = 2 * std::numbers::pi / plain[i];
        if (wavelength < 8192.0 / 4) {
            EXPECT_EQ(scaled[i], plain[i]) << i;
        } else if (wavelength > 8192) {
            EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8) << i;
        } else {
            const double smooth = (8192 / wavelength - 1) / 3;
            EXPECT_DOUBLE_EQ(scaled[i], (1 - smooth) * plain[i] / 8 + smooth * plain[i]) << i;
        }
    }
}

TEST(Rotary, SaysWhatDoesNotFit) {
    const Tensor x = values(), table = rotary_table(kLength, rotary_speeds(kWidth));
    EXPECT_ERROR(rotary(x, 5, 2, table), Error, "is not a floating [batch, length, (5 + 2 x 2) * width]");
    EXPECT_ERROR(rotary(x, kHeads, kKvHeads, rotary_table(9, rotary_speeds(32))), Error, "heads of width 16");
    EXPECT_ERROR(rotary(x, kHeads, kKvHeads, table, {1}), Error, "positions 1 to 8 of a table that has 7");
    const Tensor late = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 7}, {kLength});
    EXPECT_ERROR(rotary(x, kHeads, kKvHeads, table, {0, late}), Error, "index 7 at position 6 is outside [0, 7)");
    EXPECT_ERROR(rotary(x, kHeads, kKvHeads, table, {0, zeros({3}, Dtype::i64)}), Error, "[batch, length]");
    EXPECT_ERROR(rotary_speeds(7), Error, "even");
    EXPECT_ERROR(rotary_speeds(8, {.base = -1}), UsageError, "above 0");
}

}  // namespace
}  // namespace invar::testing
