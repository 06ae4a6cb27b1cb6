// An examination of a machine that is right, and of machines with one fault each, which has to be found and named.
#include "invar/diagnose/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "invar/diagnose/doctor_parts.h"
#include "invar/kernels/cpu/reference.h"
#include "invar/kernels/stand_in.h"
#include "tests/diagnose/faulty_kernels.h"

namespace invar {
namespace {

using testing::FaultyKernels;

Examined on(Kernels& kernels, Dtype dtype) {
    return {Device::cpu(), kernels, dtype, false, 1};
}

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != text.npos;
}

View part_of(const View& view, int dim, std::int64_t begin, std::int64_t count) {
    View part = view;
    part.data = static_cast<char*>(view.data) + begin * view.stride[dim] * std::int64_t(size_of(view.dtype));
    part.size[dim] = count;
    return part;
}

TEST(Doctor, FindsNothingWrongWithKernelsThatAreRight) {
    DoctorOptions options;
    options.memory = 1 << 20;
    options.speed = false;
    std::vector<std::string> told;
    options.progress = [&](std::string_view what) { told.emplace_back(what); };
    const DeviceHealth health = examine(Device::cpu(), options);
    std::vector<std::string> formats;
    for (const FormatHealth& format : health.formats) {
        formats.push_back(format.format);
        EXPECT_EQ(format.checks().size(), format.multiplies ? 5u : 1u);
        for (const FormatHealth::Check& check : format.checks()) {
            EXPECT_TRUE(check.values.ok())
                << format.format << " " << check.name << ": "
                << (check.values.worst ? check.values.worst->operation : "") << check.values.problem;
            EXPECT_GT(check.values.values, 500) << format.format << " " << check.name;
        }
        if (!format.multiplies) continue;
        // A bound that nothing comes near would let a fault through.
        EXPECT_GT(format.products.worst->share(), 1e-3) << format.format;
        EXPECT_GT(format.convolutions.worst->share(), 1e-3) << format.format;
        EXPECT_EQ(format.flops_per_s, 0) << "nobody asked for it";
    }
    EXPECT_EQ(formats, (std::vector<std::string>{"f32", "f16", "bf16", "f8e4m3", "f8e5m2"}));
    EXPECT_TRUE(health.ok());
    EXPECT_EQ(health.memory.tried, 1 << 20);
    EXPECT_GT(health.memory.free, health.memory.tried);
    EXPECT_GE(health.memory.total, health.memory.free);
    EXPECT_TRUE(has(health.description, "16-bit") || has(health.description, "BF16")) << health.description;
    EXPECT_EQ(told.front(), "cpu f32 conversions");
}

// Ties go away from zero; all else is rounded right.
class TiesAway final : public FaultyKernels {
    void copy(const View& from, const View& to) override {
        FaultyKernels::copy(from, to);
        if (from.dtype != Dtype::f32 || to.dtype != Dtype::bf16 || from.rank != 1) return;
        for (std::int64_t i = 0; i < from.size[0]; ++i) {
            const auto bits = std::bit_cast<std::uint32_t>(from.as<float>()[i * from.stride[0]]);
            if ((bits & 0xffff) == 0x8000 && (bits & 0x7f800000) != 0x7f800000)
                to.as<bf16>()[i * to.stride[0]].bits = std::uint16_t((bits + 0x8000) >> 16);
        }
    }
};

TEST(Doctor, FindsATieThatIsRoundedTheWrongWay) {
    TiesAway kernels;
    const ComparedValues found = check_conversions(on(kernels, Dtype::bf16));
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.worst->operation, "f32 to bf16");
    EXPECT_TRUE(has(found.worst->place, "f32 ")) << found.worst->place;
    EXPECT_NE(found.worst->got, found.worst->expected);
    EXPECT_GT(found.values, 10 * found.wrong);
    EXPECT_TRUE(check_conversions(on(kernels, Dtype::f16)).ok()) << "the other formats are right";
}

// The largest value in the place of infinity, NaN in the place of neither.
class Saturating final : public FaultyKernels {
    void copy(const View& from, const View& to) override {
        FaultyKernels::copy(from, to);
        if (from.dtype == to.dtype || to.dtype != Dtype::f8e5m2 || to.stride[0] != 1) return;
        for (std::int64_t i = 0; i < to.size[0]; ++i)
            if (f8e5m2& each = to.as<f8e5m2>()[i]; std::isinf(double(each))) --each.bits;
    }
};

TEST(Doctor, FindsAnOverflowThatSaturates) {
    Saturating kernels;
    const ComparedValues found = check_conversions(on(kernels, Dtype::f8e5m2));
    ASSERT_FALSE(found.ok());
    EXPECT_TRUE(std::isinf(found.worst->expected)) << found.worst->expected;
    EXPECT_EQ(std::fabs(found.worst->got), 57344);
    EXPECT_TRUE(std::isinf(found.worst->share()));
}

// f64 by way of f32: rounded twice.
class RoundsTwice final : public FaultyKernels {
    void copy(const View& from, const View& to) override {
        if (from.dtype != Dtype::f64 || to.dtype != Dtype::f16) return FaultyKernels::copy(from, to);
        const Tensor between = Tensor::empty({from.size[0]});
        FaultyKernels::copy(from, between.view());
        FaultyKernels::copy(between.view(), to);
    }
};

TEST(Doctor, FindsAConversionThatRoundsTwice) {
    RoundsTwice kernels;
    const ComparedValues found = check_conversions(on(kernels, Dtype::f16));
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.worst->operation, "f64 to f16");
}

// The digits of a NaN are cut off with all others, and infinity is left of it.
class CutsNan final : public FaultyKernels {
    void copy(const View& from, const View& to) override {
        FaultyKernels::copy(from, to);
        if (from.dtype != Dtype::f64 || to.dtype != Dtype::f16) return;
        for (std::int64_t i = 0; i < to.size[0]; ++i)
            if (f16& each = to.as<f16>()[i * to.stride[0]]; std::isnan(double(each))) each.bits &= 0xfc00;
    }
};

TEST(Doctor, FindsANanThatDoesNotComeBack) {
    CutsNan kernels;
    const ComparedValues found = check_conversions(on(kernels, Dtype::f16));
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.worst->operation, "f16 to f64 and back");
    EXPECT_TRUE(std::isnan(found.worst->expected) && std::isinf(found.worst->got)) << found.worst->got;
}

// Sums that are kept in the format of the operands from one piece to the next.
class SumsInSixteenBits final : public FaultyKernels {
    void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) override {
        constexpr std::int64_t kPiece = 16;
        if (a.dtype == Dtype::f32) return FaultyKernels::matmul(a, b, bias, out, accumulate);
        for (std::int64_t k = 0; k < a.size[2]; k += kPiece) {
            const std::int64_t count = std::min(kPiece, a.size[2] - k);
            FaultyKernels::matmul(part_of(a, 2, k, count), part_of(b, 1, k, count), k == 0 ? bias : View{}, out,
                                  accumulate || k > 0);
        }
    }
};

TEST(Doctor, FindsAProductThatSumsInSixteenBits) {
    SumsInSixteenBits kernels;
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const ComparedValues found = check_products(on(kernels, dtype));
        ASSERT_FALSE(found.ok()) << name_of(dtype);
        EXPECT_GT(found.worst->share(), 1);
        EXPECT_TRUE(has(found.worst->operation, "linear") || has(found.worst->operation, "matmul"));
        EXPECT_TRUE(has(found.worst->shapes, " x [1, ") || has(found.worst->shapes, " x [3, ")) << found.worst->shapes;
        EXPECT_TRUE(has(found.worst->place, "[")) << found.worst->place;
        EXPECT_TRUE(check_convolutions(on(kernels, dtype)).ok()) << "convolutions are right";
    }
    EXPECT_TRUE(check_products(on(kernels, Dtype::f32)).ok());
}

// The same pieces in FP32, the last one first: another order, and no fault.
class SumsInPieces final : public FaultyKernels {
    void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) override {
        const std::int64_t half = a.size[2] / 2;
        if (a.dtype != Dtype::f32 || half == 0) return FaultyKernels::matmul(a, b, bias, out, accumulate);
        FaultyKernels::matmul(part_of(a, 2, half, a.size[2] - half), part_of(b, 1, half, a.size[2] - half), bias, out,
                              accumulate);
        FaultyKernels::matmul(part_of(a, 2, 0, half), part_of(b, 1, 0, half), {}, out, true);
    }
};

TEST(Doctor, AllowsSumsInAnyOrder) {
    SumsInPieces kernels;
    EXPECT_TRUE(check_products(on(kernels, Dtype::f32)).ok());
}

// FP32 results that were 16 bits on the way.
class RoundsGradients final : public FaultyKernels {
    void conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx,
                       const View& gw, const View& gb, bool accumulate, const View& y, const View& pending) override {
        FaultyKernels::conv_backward(spec, x, w, gy, gx, gw, gb, accumulate, y, pending);
        if (!gw || gy.dtype != Dtype::bf16) return;
        for (std::int64_t i = 0; i < gw.numel(); ++i) gw.as<float>()[i] = float(bf16(gw.as<float>()[i]));
    }
};

TEST(Doctor, FindsAWeightGradientThatWasRoundedToSixteenBits) {
    RoundsGradients kernels;
    const ComparedValues found = check_convolutions(on(kernels, Dtype::bf16));
    ASSERT_FALSE(found.ok());
    EXPECT_TRUE(has(found.worst->operation, "weight gradient")) << found.worst->operation;
    EXPECT_TRUE(check_convolutions(on(kernels, Dtype::f32)).ok());
}

TEST(Doctor, AllowsAChannelOfItsOwnTheErrorOfItsOwnTermsAlone) {
    FaultyKernels kernels;
    std::map<std::string, std::int64_t> terms;
    for (const TriedOperation& tried : try_convolutions(on(kernels, Dtype::f32), TrySize::small))
        terms[tried.operation] = tried.terms;
    EXPECT_EQ(terms["conv2d 3x3"], 9 * 16 + 1) << "of 16 channels, and the bias";
    EXPECT_EQ(terms["conv2d 3x3, a group each channel"], 9 + 1);
}

TEST(Doctor, KeepsTheWorstElement) {
    const auto place = [](std::int64_t index) { return fmt::format("{}", index); };
    Comparing compared;
    compared.see(0, 1.0, 1.0, 1.0, false);
    compared.see(1, 1.75, 1.0, 1.0, false);
    compared.see(2, 1.5, 1.0, 1.0, false);
    EXPECT_EQ(compared.result("", "", place).worst->place, "1") << "of those that are right";
    compared.see(3, 1.25, 1.0, 0.125, true);
    compared.see(4, 9.0, 1.0, 10.0, false);
    compared.see(5, 2.0, 1.0, 0.125, true);
    const ComparedValues all = compared.result("", "", place);
    EXPECT_EQ(all.worst->place, "5") << "of those that are wrong";
    EXPECT_EQ(all.values, 6);
    EXPECT_EQ(all.wrong, 2);
}

// A gradient of the input is made of weights and gradients, one of the weight of inputs and gradients.
TEST(Doctor, PlantsWhatIsNotFiniteWhereItSays) {
    using Where = Planted::Where;
    FaultyKernels kernels;
    const auto nan_in = [&](Where where, const char* operation) {
        for (const TriedOperation& tried :
             try_products(on(kernels, Dtype::f32), TrySize::small, {.planted = {where, NAN}}))
            if (tried.operation == operation)
                for (const float value : tried.got.to_vector<float>())
                    if (std::isnan(value)) return true;
        return false;
    };
    EXPECT_TRUE(nan_in(Where::weight, "linear, input gradient"));
    EXPECT_FALSE(nan_in(Where::input, "linear, input gradient"));
    EXPECT_TRUE(nan_in(Where::input, "linear, weight gradient"));
    EXPECT_FALSE(nan_in(Where::weight, "linear, weight gradient"));
    EXPECT_TRUE(nan_in(Where::gradient, "linear, bias gradient"));
}

// As libraries do with max(0, x), and one with sums that overflow.
class DropsNonFinite final : public FaultyKernels {
  public:
    explicit DropsNonFinite(bool infinite) : infinite_(infinite) {}
    void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) override {
        FaultyKernels::conv_forward(spec, x, w, bias, y);
        if (y.dtype != Dtype::f16) return;
        for (std::int64_t i = 0; i < y.numel(); ++i) {
            f16& each = y.as<f16>()[i];
            if (infinite_ ? double(each) == -INFINITY : std::isnan(double(each))) each.bits = 0;
        }
    }

  private:
    bool infinite_;
};

TEST(Doctor, FindsAConvolutionThatDropsNan) {
    DropsNonFinite kernels(false);
    const ComparedValues found = check_non_finite(on(kernels, Dtype::f16));
    ASSERT_FALSE(found.ok());
    EXPECT_TRUE(has(found.worst->operation, "conv2d") && has(found.worst->operation, "NaN in the "))
        << found.worst->operation;
    EXPECT_EQ(found.worst->got, 0);
    EXPECT_TRUE(std::isnan(found.worst->expected));
    EXPECT_TRUE(check_non_finite(on(kernels, Dtype::bf16)).ok());
    EXPECT_TRUE(check_convolutions(on(kernels, Dtype::f16)).ok()) << "all finite values are right";
}

TEST(Doctor, FindsAnOverflowThatBecomesZero) {
    DropsNonFinite kernels(true);
    const ComparedValues found = check_non_finite(on(kernels, Dtype::f16));
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.worst->expected, -INFINITY);
    EXPECT_EQ(found.worst->got, 0);
}

// Every third call adds up in another order, as threads that race do: one last digit of one element differs.
class Races final : public FaultyKernels {
    void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) override {
        FaultyKernels::matmul(a, b, bias, out, accumulate);
        if (out.dtype == Dtype::f32 && ++calls_ % 3 == 0)
            out.as<float>()[out.numel() / 2] = std::nextafter(out.as<float>()[out.numel() / 2], 1e30f);
    }
    int calls_ = 0;
};

TEST(Doctor, FindsAProductThatDoesNotRepeat) {
    Races kernels;
    const ComparedValues found = check_repeats(on(kernels, Dtype::bf16));
    EXPECT_GT(found.wrong, 0);
    EXPECT_LE(found.wrong, 6) << "one element of each of two products in three repetitions";
    ASSERT_TRUE(found.worst);
    EXPECT_EQ(found.worst->operation, "linear, weight gradient");
    EXPECT_NE(found.worst->got, found.worst->expected);
    EXPECT_TRUE(check_products(on(kernels, Dtype::bf16)).ok()) << "a last digit is within the bound";
}

// What an earlier product of another size left behind shows in one digit of the next large one.
class Remembers final : public FaultyKernels {
    void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) override {
        FaultyKernels::matmul(a, b, bias, out, accumulate);
        const bool large = out.numel() > 100000;
        if (large && small_before_) out.as<float>()[7] = std::nextafter(out.as<float>()[7], 1e30f);
        small_before_ = !large;
    }
    bool small_before_ = false;
};

TEST(Doctor, FindsAProductThatIsAnotherAfterOtherWork) {
    Remembers kernels;
    const ComparedValues found = check_repeats(on(kernels, Dtype::f32));
    EXPECT_EQ(found.wrong, 1);
    ASSERT_TRUE(found.worst);
    EXPECT_EQ(found.worst->operation, "linear");
    EXPECT_EQ(found.worst->place, "[0, 0, 7]");
}

// Counts the threads of this program each time that a large convolution ends.
class CountsThreads final : public FaultyKernels {
  public:
    std::vector<std::ptrdiff_t> threads;

  private:
    void conv_backward(const ConvSpec& spec, const View& x, const View& w, const View& gy, const View& gx,
                       const View& gw, const View& gb, bool accumulate, const View& y, const View& pending) override {
        FaultyKernels::conv_backward(spec, x, w, gy, gx, gw, gb, accumulate, y, pending);
        const std::filesystem::directory_iterator tasks("/proc/self/task");
        if (spec.batch > 2) threads.push_back(std::distance(begin(tasks), end(tasks)));
    }
};

TEST(Doctor, RepeatsWhileAnotherThreadIsBusy) {
    CountsThreads kernels;
    EXPECT_TRUE(check_repeats(on(kernels, Dtype::f32)).ok());
    ASSERT_EQ(kernels.threads.size(), 4u) << "once, and three times again";
    EXPECT_EQ(kernels.threads[3], kernels.threads[2] + 1) << "to the end of the last time";
}

// Gradients below f16's smallest normal value are lost.
class FlushesSubnormals final : public FaultyKernels {
    void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) override {
        if (a.dtype == Dtype::f16)
            for (std::int64_t i = 0; i < a.size[1] * a.size[2] && a.contiguous(); ++i)
                if (f16& each = a.as<f16>()[i]; (each.bits & f16::kMagnitude) < f16::kSmallestNormal) each.bits = 0;
        FaultyKernels::matmul(a, b, bias, out, accumulate);
    }
};

TEST(Doctor, FindsAProductThatFlushesSubnormalsOfF16) {
    FlushesSubnormals kernels;
    const ComparedValues found = check_products(on(kernels, Dtype::f16));
    ASSERT_FALSE(found.ok());
    EXPECT_TRUE(has(found.worst->shapes, "[1, 24, 48]")) << found.worst->shapes;
}

// In double, with or without what is subnormal in f32.
class Multiplies final : public FaultyKernels {
  public:
    explicit Multiplies(bool flushes) : flushes_(flushes) {}
    void matmul(const View& a, const View& b, const View&, const View& out, bool) override {
        const Tensor wide_a = widened(a), wide_b = widened(b), product = Tensor::empty(shape_of(out), Dtype::f64);
        for (std::int64_t i = 0; i < wide_a.numel() && flushes_; ++i)
            if (double& each = wide_a.data<double>()[i]; std::fabs(each) < double(FLT_MIN)) each = 0;
        reference::matmul(wide_a.view(), wide_b.view(), {}, product.view(), false);
        copy(product.view(), out);
    }

  private:
    static Shape shape_of(const View& view) { return {view.size[0], view.size[1], view.size[2]}; }
    Tensor widened(const View& view) {
        Tensor wide = Tensor::empty(shape_of(view), Dtype::f64);
        copy(view, wide.view());
        return wide;
    }
    bool flushes_;
};

TEST(Doctor, TellsAProductThatKeepsSubnormalsFromOneThatFlushesThem) {
    Multiplies keeps(false), flushes(true);
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        EXPECT_TRUE(keeps_subnormals(on(keeps, dtype))) << name_of(dtype);
        EXPECT_FALSE(keeps_subnormals(on(flushes, dtype))) << name_of(dtype);
    }
}

class LosesABit final : public FaultyKernels {
  public:
    LosesABit(std::size_t byte, std::uint8_t bit) : byte_(byte), bit_(bit) {}
    void download(void* host, const void* device, std::size_t bytes) override {
        FaultyKernels::download(host, device, bytes);
        if (bytes > byte_) static_cast<std::uint8_t*>(host)[byte_] &= std::uint8_t(~bit_);
    }

  private:
    std::size_t byte_;
    std::uint8_t bit_;
};

TEST(Doctor, FindsMemoryThatLosesABit) {
    for (const auto& [byte, bit] : {std::pair{805, 0x20}, {800, 0x01}, {807, 0x80}}) {
        LosesABit kernels{std::size_t(byte), std::uint8_t(bit)};
        const MemoryHealth health = check_memory(on(kernels, Dtype::f32), 1 << 16);
        EXPECT_FALSE(health.ok()) << byte;
        EXPECT_EQ(health.wrong, 1) << "the bit is set in the pattern or in its inverse, byte " << byte;
        EXPECT_EQ(health.first_wrong, 800) << byte;
    }
}

class Refuses final : public FaultyKernels {
    void conv_forward(const ConvSpec&, const View& x, const View&, const View&, const View&) override {
        fail("no convolution in {}", name_of(x.dtype));
    }
};

TEST(Doctor, TellsOfADeviceThatRefusesAndLooksAtTheRest) {
    Refuses kernels;
    const KernelsStandIn in_place(Device::Kind::cpu, kernels);
    DoctorOptions options;
    options.memory = 1 << 16;
    options.speed = false;
    const DeviceHealth health = examine(Device::cpu(), options);
    EXPECT_FALSE(health.ok());
    const FormatHealth& f32 = health.formats.front();
    EXPECT_EQ(f32.convolutions.problem, "no convolution in f32");
    EXPECT_TRUE(f32.products.ok() && f32.products.values > 0 && !f32.ok());
    EXPECT_EQ(health.formats.size(), 5u);
}

struct Death {};

class Dies final : public FaultyKernels {
    void matmul(const View& a, const View& b, const View& bias, const View& out, bool accumulate) override {
        if (a.dtype == Dtype::f16) throw Death();
        FaultyKernels::matmul(a, b, bias, out, accumulate);
    }
};

TEST(Doctor, LeavesAFormatAloneThatWouldEndTheProgram) {
    Dies kernels;
    const KernelsStandIn in_place(Device::Kind::cpu, kernels);
    DoctorOptions options;
    options.memory = 1 << 16;
    options.speed = false;
    options.try_aside = [](const std::function<void()>& work) -> std::string {
        try {
            work();
        } catch (const Death&) {
            return "it dies";
        }
        return "";
    };
    const DeviceHealth health = examine(Device::cpu(), options);
    EXPECT_FALSE(health.ok());
    for (const FormatHealth& format : health.formats) {
        const bool dies = format.format == "f16";
        EXPECT_EQ(format.deadly, dies ? "it dies" : "") << format.format;
        EXPECT_EQ(format.ok(), !dies) << format.format;
        EXPECT_GT(format.conversions.values, 0) << format.format;
    }
}

TEST(Doctor, TakesOtherNumbersForAnotherSeed) {
    FaultyKernels kernels;
    Examined first = on(kernels, Dtype::f32), second = first;
    second.seed = 2;
    EXPECT_EQ(random_values(first, 1, 100), random_values(first, 1, 100));
    EXPECT_NE(random_values(first, 1, 100), random_values(second, 1, 100));
}

}  // namespace
}  // namespace invar
