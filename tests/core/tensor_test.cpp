#include "invar/core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

class EveryDtype : public ::testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Tensor, EveryDtype, ::testing::ValuesIn(kAllDtypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(EveryDtype, HoldsTheValuesItWasMadeFrom) {
    const std::vector<double> values{0, 1, 0, 1, 1, 0};
    const Tensor tensor = Tensor::from(values, {2, 3}, GetParam());
    EXPECT_EQ(tensor.dtype(), GetParam());
    EXPECT_EQ(tensor.bytes(), 6 * size_of(GetParam()));
    EXPECT_EQ(tensor.to_vector<double>(), values);
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(values.begin(), values.end()));
    EXPECT_EQ(tensor.to_vector<std::int64_t>(), std::vector<std::int64_t>(values.begin(), values.end()));
    EXPECT_EQ(tensor.to_vector<std::uint8_t>(), std::vector<std::uint8_t>(values.begin(), values.end()));
}

TEST_P(EveryDtype, GivesItsOneValueAsItem) {
    EXPECT_EQ(Tensor::scalar(1, GetParam()).item(), 1);
    EXPECT_EQ(Tensor::from<float>({1}, {1, 1, 1}, GetParam()).item(), 1);
}

TEST_P(EveryDtype, ReadsStridedViewsInTheirOwnOrder) {
    const Tensor tensor = Tensor::from<std::int32_t>({1, 0, 1, 1, 0, 0}, {2, 3}, GetParam());
    EXPECT_EQ(tensor.as_strided(0, {3, 2}, {1, 3}).to_vector<double>(), (std::vector<double>{1, 1, 0, 0, 1, 0}));
}

TEST(Tensor, RoundsValuesToItsFormat) {
    EXPECT_EQ(Tensor::from<double>({1 + 0x1p-11, 70000, 0x1p-25}, {3}, Dtype::f16).to_vector<double>(),
              (std::vector<double>{1, INFINITY, 0}));
    EXPECT_EQ(Tensor::from<double>({1.00390625, 1e39}, {2}, Dtype::bf16).to_vector<float>(),
              (std::vector<float>{1, INFINITY}));
    EXPECT_EQ(Tensor::scalar(1 + 0x1p-11 + 0x1p-40, Dtype::f16).item(), 1 + 0x1p-10) << "rounded once, not twice";
}

TEST(Tensor, KeepsLargeIntegersExactly) {
    const std::int64_t large = (std::int64_t(1) << 53) + 1;
    EXPECT_EQ(Tensor::from<std::int64_t>({large}, {1}).to_vector<std::int64_t>()[0], large);
}

TEST(Tensor, ClampsWhatAnIntegerCannotHold) {
    const Tensor wild = Tensor::from<double>({NAN, 1e30, -1e30, INFINITY, -1.9}, {5}, Dtype::f64);
    constexpr auto kMax = std::numeric_limits<std::int64_t>::max(), kMin = std::numeric_limits<std::int64_t>::min();
    EXPECT_EQ(wild.to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, kMax, kMin, kMax, -1}));
    // The low bits of the whole number, as in PyTorch: those of -1.
    EXPECT_EQ(wild.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 255, 0, 255, 255}));
}

TEST(Tensor, OfBooleansHoldsOnlyZeroAndOne) {
    const Tensor truth = Tensor::from<double>({0, 0.5, -3, NAN, 256}, {5}, Dtype::boolean);
    EXPECT_EQ(truth.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 1, 1, 1}));
}

TEST(Tensor, RefusesAsManyValuesAsDoNotFit) {
    EXPECT_ERROR(Tensor::from<float>({1, 2, 3}, {2, 2}), Error, "Tensor::from: 3 values for shape [2, 2]");
    EXPECT_ERROR(Tensor::from<float>({}, {}), Error, "Tensor::from: 0 values for shape []");
    EXPECT_ERROR(Tensor::empty({2, -3}), Error, "negative size");
}

TEST(Tensor, RefusesToBeReadAsAnotherType) {
    const Tensor tensor = Tensor::from<float>({1, 2}, {2});
    EXPECT_EQ(tensor.data<float>()[1], 2);
    EXPECT_EQ(tensor.data<const float>()[0], 1);
    EXPECT_ERROR(tensor.data<double>(), Error, "a f32 tensor was read as f64");
    EXPECT_ERROR(tensor.data<f16>(), Error, "a f32 tensor was read as f16");
    EXPECT_ERROR(Tensor::scalar(1, Dtype::f16).data<bf16>(), Error, "a f16 tensor was read as bf16");
    EXPECT_EQ(*Tensor::scalar(1, Dtype::boolean).data<std::uint8_t>(), 1) << "booleans are stored as bytes";
    EXPECT_ERROR(Tensor::scalar(1, Dtype::u8).data<std::int32_t>(), Error, "a u8 tensor was read as i32");
}

TEST(Tensor, RefusesItemOfManyOrNone) {
    EXPECT_ERROR(Tensor::empty({2}).item(), Error, "item: a tensor of shape [2] does not hold exactly one value");
    EXPECT_ERROR(Tensor::empty({0}).item(), Error, "item: a tensor of shape [0]");
}

TEST(Tensor, SaysSoWhenItIsUndefined) {
    const Tensor nothing;
    EXPECT_FALSE(nothing.defined());
    EXPECT_FALSE(bool(nothing));
    EXPECT_EQ(nothing.str(), "undefined");
    EXPECT_ERROR(nothing.shape(), Error, "undefined tensor");
    EXPECT_ERROR(nothing.item(), Error, "undefined tensor");
    EXPECT_ERROR(nothing.data<float>(), Error, "undefined tensor");
}

TEST(Tensor, DescribesItselfInOneLine) {
    EXPECT_EQ(Tensor::empty({128, 10}).str(), "f32[128, 10] on cpu");
}

TEST(Window, SharesTheMemoryAndItsVersion) {
    const Tensor whole = Tensor::from<float>({0, 1, 2, 3, 4, 5}, {6});
    const Tensor part = whole.window(2, {2, 2});
    EXPECT_EQ(part.to_vector<float>(), (std::vector<float>{2, 3, 4, 5}));
    part.data<float>()[0] = 9;
    EXPECT_EQ(whole.data<float>()[2], 9);
    part.bump_version();
    EXPECT_EQ(whole.version(), 1u);
    EXPECT_EQ(part.window(1, {2}).to_vector<float>(), (std::vector<float>{3, 4})) << "offsets add up";
}

TEST(Window, KeepsTheMemoryAliveAfterTheWholeIsGone) {
    Tensor part;
    {
        const Tensor whole = Tensor::from<float>({1, 2, 3}, {3});
        part = whole.window(1, {2});
    }
    EXPECT_EQ(part.to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST(Window, OutsideTheMemoryIsRefused) {
    const Tensor whole = Tensor::empty({6});
    EXPECT_NO_THROW(whole.window(0, {6}));
    EXPECT_NO_THROW(whole.window(6, {0}));
    EXPECT_ERROR(whole.window(1, {6}), Error, "window: [6] elements at offset 1 leave the memory of f32[6] on cpu");
    EXPECT_ERROR(whole.window(-1, {2}), Error, "leave the memory");
    EXPECT_ERROR(whole.window(std::numeric_limits<std::int64_t>::max(), {2}), Error, "leave the memory");
    EXPECT_ERROR(whole.window(std::numeric_limits<std::int64_t>::min(), {2}), Error, "leave the memory");
    EXPECT_ERROR(whole.window(4, {2}).window(1, {2}), Error, "leave the memory");
    EXPECT_ERROR(whole.window(0, {std::int64_t(1) << 62, 4}), Error, "63 bits");
}

TEST(Window, OfAStridedTensorIsRefused) {
    const Tensor whole = Tensor::empty({2, 3});
    EXPECT_ERROR(whole.as_strided(0, {3, 2}, {1, 3}).window(0, {6}), Error, "is not dense; copy it first");
    EXPECT_ERROR(whole.as_strided(0, {4, 3}, {0, 1}).window(0, {3}), Error, "strides [0, 1] is not dense");
    EXPECT_NO_THROW(whole.as_strided(3, {1, 3}, {77, 1}).window(0, {3}));
}

TEST(Contiguity, IsSeenThroughViews) {
    const Tensor tensor = Tensor::empty({2, 3});
    EXPECT_TRUE(tensor.is_contiguous());
    EXPECT_FALSE(tensor.as_strided(0, {3, 2}, {1, 3}).is_contiguous());
    EXPECT_FALSE(tensor.as_strided(0, {2, 3}, {0, 1}).is_contiguous()) << "broadcast";
    EXPECT_TRUE(tensor.as_strided(0, {1, 3}, {77, 1}).is_contiguous()) << "the stride of one row does not matter";
    EXPECT_TRUE(Tensor::empty({2, 0, 3}).is_contiguous()) << "nothing is always dense";
    EXPECT_TRUE(Tensor::scalar(1).is_contiguous());
}

TEST(Contiguity, BroadcastViewsRepeatTheirValues) {
    const Tensor row = Tensor::from<float>({1, 2}, {2});
    EXPECT_EQ(row.as_strided(0, {2, 2}, {0, 1}).to_vector<float>(), (std::vector<float>{1, 2, 1, 2}));
}

TEST(Leaf, RefusesGradientsOfIntegers) {
    Tensor indices = Tensor::empty({3}, Dtype::i64);
    EXPECT_ERROR(indices.set_requires_grad(), Error, "only floating tensors can require gradients");
    EXPECT_NO_THROW(indices.set_requires_grad(false));
    Tensor weights = Tensor::empty({3}, Dtype::bf16);
    EXPECT_TRUE(weights.set_requires_grad().requires_grad());
    EXPECT_TRUE(weights.is_leaf());
    EXPECT_FALSE(weights.detach().requires_grad());
    EXPECT_EQ(weights.detach().raw(), weights.raw());
}

TEST(Leaf, HandlesShareGradientAndShadow) {
    const Tensor weights = Tensor::empty({}), handle = weights;
    EXPECT_FALSE(handle.grad().defined());
    weights.set_grad(Tensor::scalar(2));
    weights.set_shadow(Tensor::scalar(1, Dtype::f16));
    EXPECT_EQ(handle.grad().item(), 2);
    EXPECT_EQ(handle.shadow().dtype(), Dtype::f16);
    EXPECT_ERROR(weights.set_grad(Tensor::empty({3})), Error, "f32[3] on cpu is no gradient of f32[] on cpu");
    EXPECT_TRUE(handle.same_as(weights));
    EXPECT_FALSE(weights.detach().same_as(weights));
}

TEST(Device, ParsesNamesAndRefusesTheRest) {
    EXPECT_TRUE(Device::parse("cpu").is_cpu());
    EXPECT_NO_THROW(Device::parse("auto"));
    for (const char* text : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:x", "cuda:1x", "cudax"})
        EXPECT_ERROR(Device::parse(text), UsageError, "unknown device '");
}

}  // namespace
}  // namespace invar
