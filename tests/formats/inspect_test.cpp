// Rounding to smaller formats, counted: at the edges to the bit, the fast way against the plain one, and whole files.
#include "invar/formats/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>

#include "invar/core/error.h"
#include "invar/core/format_info.h"
#include "invar/io/file.h"
#include "invar/io/safetensors.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

const std::vector<Dtype> kFormats = {Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2};

Tally tally_of(const std::vector<float>& values, const std::vector<Dtype>& formats = kFormats) {
    Tally tally(formats.size());
    tally_values(Dtype::f32, values.data(), values.size(), formats, tally);
    return tally;
}

void expect_same(const Tally& a, const Tally& b) {
    EXPECT_EQ(a.values, b.values);
    EXPECT_EQ(a.zeros, b.zeros);
    EXPECT_EQ(a.nans, b.nans);
    EXPECT_EQ(a.infinities, b.infinities);
    EXPECT_EQ(a.largest, b.largest);
    EXPECT_EQ(a.smallest, b.smallest);
    EXPECT_EQ(a.exponents, b.exponents);
    for (std::size_t i = 0; i < a.formats.size(); ++i) {
        const FormatTally &f = a.formats[i], &g = b.formats[i];
        EXPECT_EQ(f.overflow, g.overflow) << i;
        EXPECT_EQ(f.subnormal, g.subnormal) << i;
        EXPECT_EQ(f.vanish, g.vanish) << i;
        EXPECT_EQ(f.kept, g.kept) << i;
        EXPECT_NEAR(f.error_sum, g.error_sum, 1e-5 * g.error_sum + 1e-30) << i;
        EXPECT_NEAR(f.max_error, g.max_error, 1e-6 * g.max_error) << i;
    }
}

TEST(Thresholds, AreThoseOfTheFormats) {
    const auto value = [](std::uint32_t bits) { return double(std::bit_cast<float>(bits)); };
    const auto next = [](std::uint32_t bits) { return double(std::bit_cast<float>(bits + 1)); };
    EXPECT_EQ(value(thresholds_of(Dtype::f16).overflow), 65520.0);
    EXPECT_EQ(value(thresholds_of(Dtype::f16).vanish), 0x1p-25) << "half the smallest subnormal ties to zero";
    EXPECT_EQ(value(thresholds_of(Dtype::f8e5m2).overflow), 61440.0);
    EXPECT_EQ(value(thresholds_of(Dtype::f8e4m3).overflow - 1), 464.0) << "the tie goes to 448, which is even";
    EXPECT_EQ(value(thresholds_of(Dtype::f8e4m3).vanish), 0x1p-10);
    EXPECT_EQ(next(thresholds_of(Dtype::bf16).vanish - 1), 0x1p-134);
    for (const Dtype format : kFormats) {
        const double normal = format_info(format).smallest_normal, unit = format_info(format).smallest_subnormal;
        EXPECT_EQ(value(thresholds_of(format).normal), normal - unit / 2) << name_of(format);
    }
}

TEST(TallyValues, CountsWhatOverflowsVanishesAndTurnsSubnormal) {
    //             ok     over    over   sub     vanish  zero  inf        nan   f16 max
    const Tally t =
        tally_of({1.0f, 65520.f, -1e9f, 0x1p-20f, -1e-9f, 0.0f, INFINITY, NAN, 65504.f, -0.0f}, {Dtype::f16});
    EXPECT_EQ(t.values, 10);
    EXPECT_EQ(t.zeros, 2);
    EXPECT_EQ(t.infinities, 1);
    EXPECT_EQ(t.nans, 1);
    EXPECT_EQ(t.counted(), 6);
    EXPECT_EQ(t.largest, 1e9f);
    EXPECT_EQ(t.smallest, 1e-9f);
    const FormatTally& f = t.formats[0];
    EXPECT_EQ(f.overflow, 2);
    EXPECT_EQ(f.vanish, 1);
    EXPECT_EQ(f.subnormal, 1);
    EXPECT_EQ(f.kept, 3);
    EXPECT_EQ(f.max_error, 0.0) << "1, 65504 and 2^-20 are values of f16";
    EXPECT_EQ(t.exponents[127], 1);
    EXPECT_EQ(t.exponents[127 - 20], 1);
}

TEST(TallyValues, MeasuresTheErrorOfRounding) {
    const std::vector<float> values(64, 1.0f + 0x1p-11f);  // a tie between two values of f16
    const Tally t = tally_of(values);
    EXPECT_NEAR(t.formats[0].max_error, 0x1p-11 / (1 + 0x1p-11), 1e-9);
    EXPECT_NEAR(t.formats[0].error_sum / 64, 0x1p-11 / (1 + 0x1p-11), 1e-8);
    EXPECT_NEAR(t.formats[2].max_error, 0x1p-11 / (1 + 0x1p-11), 1e-9) << "E4M3 rounds it to 1 too";
}

TEST(TallyValues, AgreesWithThePlainWayOnEveryExponentAndEdge) {
    std::vector<float> values;
    std::mt19937 random(1);
    for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
        for (int i = 0; i < 40; ++i)
            values.push_back(std::bit_cast<float>((std::uint32_t(random()) & 0x807f'ffffu) | exponent << 23));
    for (const Dtype format : kFormats) {
        const Thresholds at = thresholds_of(format);
        for (const std::uint32_t edge : {at.vanish, at.normal, at.overflow})
            for (std::uint32_t bits = edge - 3; bits <= edge + 3; ++bits)
                for (const std::uint32_t sign : {0u, 0x8000'0000u}) values.push_back(std::bit_cast<float>(bits | sign));
    }
    for (std::size_t n = 0; n < 10; ++n) values.push_back(0.0f);
    std::shuffle(values.begin(), values.end(), random);
    Tally plain(kFormats.size());
    tally_values_plainly(Dtype::f32, values.data(), values.size(), kFormats, plain);
    expect_same(tally_of(values), plain);
    // In pieces, at odd addresses, and of every length around a vector.
    std::vector<char> shifted(values.size() * 4 + 1);
    std::memcpy(shifted.data() + 1, values.data(), values.size() * 4);
    Tally pieces(kFormats.size());
    for (std::size_t at = 0, n = 0; at < values.size(); at += n) {
        n = std::min<std::size_t>(values.size() - at, 1 + at % 37);
        tally_values(Dtype::f32, shifted.data() + 1 + at * 4, n, kFormats, pieces);
    }
    expect_same(pieces, plain);
}

TEST(TallyValues, AgreesForEveryPatternOfTheSmallFormats) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2}) {
        std::vector<unsigned char> bytes;
        const std::uint32_t patterns = size_of(dtype) == 1 ? 256 : 65536;
        for (std::uint32_t p = 0; p < patterns; ++p)
            for (std::size_t b = 0; b < size_of(dtype); ++b) bytes.push_back(static_cast<unsigned char>(p >> (8 * b)));
        Tally fast(kFormats.size()), plain(kFormats.size());
        tally_values(dtype, bytes.data(), patterns, kFormats, fast);
        tally_values_plainly(dtype, bytes.data(), patterns, kFormats, plain);
        expect_same(fast, plain);
        for (std::size_t i = 0; i < kFormats.size(); ++i)
            if (kFormats[i] == dtype) {
                EXPECT_EQ(fast.formats[i].max_error, 0.0) << "a format holds itself";
                EXPECT_EQ(fast.formats[i].vanish + fast.formats[i].overflow, 0);
            }
    }
}

TEST(TallyValues, TakesDoublesBeyondTheRangeOfFloat) {
    const std::vector<double> values = {1e300, 1e-300, 1.0};
    Tally t(kFormats.size());
    tally_values(Dtype::f64, values.data(), values.size(), kFormats, t);
    for (const FormatTally& f : t.formats) {
        EXPECT_EQ(f.overflow, 1);
        EXPECT_EQ(f.vanish, 1);
    }
    EXPECT_EQ(t.largest, 1e300);
    EXPECT_THROW(tally_values(Dtype::i32, values.data(), 1, kFormats, t), UsageError);
}

TEST(FateOf, NamesTheScaleThatSaves) {
    // Gradients around 2^-30: all vanish in f16, and 2^16 lifts them to normal values.
    const Fate tiny = fate_of(tally_of(std::vector<float>(100, 0x1.8p-30f), {Dtype::f16}), 0, Dtype::f16);
    EXPECT_EQ(tiny.vanish, 1.0);
    EXPECT_EQ(tiny.bits, 0.0);
    EXPECT_EQ(tiny.scale, 16);
    EXPECT_EQ(tiny.lost_after, 0.0);
    EXPECT_EQ(tiny.head_room, 45) << "65504 / (1.5 * 2^-30) is a little below 2^45.4";
    const Fate huge = fate_of(tally_of({1e6f, 1.0f}, {Dtype::f16}), 0, Dtype::f16);
    EXPECT_EQ(huge.overflow, 0.5);
    EXPECT_EQ(huge.head_room, -4);
    EXPECT_EQ(huge.scale, -4);
    const Fate fine = fate_of(tally_of({1.0f, 0.5f}, {Dtype::f16}), 0, Dtype::f16);
    EXPECT_EQ(fine.scale, 0);
    EXPECT_EQ(fine.bits, 11.0);
    EXPECT_EQ(fine.head_room, 15);
    // Above the largest of the format, and rounded down to it: no overflow, and so no head room below zero.
    const auto bf16_room = [](double value) {
        Tally tally(1);
        tally_values(Dtype::f64, &value, 1, std::vector<Dtype>{Dtype::bf16}, tally);
        const Fate fate = fate_of(tally, 0, Dtype::bf16);
        EXPECT_EQ(fate.overflow > 0, fate.head_room < 0) << value;
        return fate.head_room;
    };
    EXPECT_EQ(bf16_room(0x1p128 * (1 - 0x1p-25) * (1 - 0x1p-9)), 0);
    EXPECT_EQ(bf16_room(0x1p128 * (1 - 0x1p-9)), -1);  // half way to 2^128: rounded up, away
    EXPECT_EQ(bf16_room(0x1p128 * (1 - 0x1p-8)), 0);
    EXPECT_EQ(bf16_room(0x1p100 * (1 - 0x1p-9)), 27);
    EXPECT_EQ(bf16_room(1e300), -869);
    EXPECT_EQ(bf16_room(5e-324), 1201);
    // Both at once: the largest value allows no scale that would save the smallest.
    const Fate wide = fate_of(tally_of({60000.f, 1e-9f}, {Dtype::f16}), 0, Dtype::f16);
    EXPECT_EQ(wide.scale, 0);
    EXPECT_EQ(wide.lost_after, 0.5);
    // One value so large that room for it would drown all others.
    std::vector<float> drowning(99, 1e-3f);
    drowning.push_back(1e30f);
    const Fate lone = fate_of(tally_of(drowning, {Dtype::f16}), 0, Dtype::f16);
    EXPECT_EQ(lone.scale, 0);
    EXPECT_DOUBLE_EQ(lone.lost_after, 0.01);
    EXPECT_TRUE(fate_of(tally_of({0.0f, NAN}, {Dtype::f16}), 0, Dtype::f16).empty);
}

TEST(FateOf, KeepsFewerBitsOfSubnormals) {
    const Fate fate = fate_of(tally_of({0x1p-16f, 0x1p-24f}, {Dtype::f16}), 0, Dtype::f16);
    EXPECT_EQ(fate.subnormal, 1.0);
    EXPECT_EQ(fate.bits, (9 + 1) / 2.0);
}

TEST(ParseFormats, KnowsWhatPeopleCallThem) {
    EXPECT_EQ(parse_formats("fp16,bf16,fp8"), kFormats);
    EXPECT_EQ(parse_formats("all"), kFormats);
    EXPECT_EQ(parse_formats("E4M3,float16,e4m3"), (std::vector<Dtype>{Dtype::f8e4m3, Dtype::f16}));
    for (const char* bad : {"fp17", "", "fp16,", "f32"})
        EXPECT_ERROR(parse_formats(bad), UsageError, "is none of fp16");
}

TEST(Inspect, ReadsFilesOfSeveralTensorsWithAnyNumberOfThreads) {
    const Scratch scratch;
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 1e-6f);
    std::vector<float> values(1'500'000);
    for (float& value : values) value = normal(random);
    TensorMap tensors;
    tensors["gradient"] = Tensor::from(values, Shape{1500, 1000});
    tensors["empty"] = Tensor::empty(Shape{0, 3}, Dtype::f32);
    tensors["one"] = Tensor::from(std::vector<float>{70000.0f}, Shape{});
    tensors["steps"] = Tensor::from(std::vector<std::int64_t>{1, 2}, Shape{2});
    save_safetensors(scratch / "a.safetensors", tensors);
    save_safetensors(scratch / "b.safetensors", {{"more", Tensor::from(std::vector<float>{1, 2}, Shape{2})}});
    Tally expected(kFormats.size());
    tally_values_plainly(Dtype::f32, values.data(), values.size(), kFormats, expected);
    for (const int threads : {1, 3, 0}) {
        const Inspection result = inspect({scratch / "a.safetensors", scratch / "b.safetensors"}, kFormats, threads);
        ASSERT_EQ(result.tensors.size(), 4u);
        ASSERT_EQ(result.left_out.size(), 1u);
        EXPECT_EQ(result.left_out[0].dtype, "I64");
        EXPECT_EQ(result.bytes, 1'500'003u * 4);
        for (const InspectedTensor& tensor : result.tensors)
            if (tensor.name == "gradient") expect_same(tensor.tally, expected);
        EXPECT_EQ(result.total.tally.values, 1'500'003);
        EXPECT_EQ(result.total.tally.formats[0].overflow, 1);
    }
}

// A file of one tensor of zeros that takes no room on the disk.
void put_hollow(const std::filesystem::path& path, std::string_view dtype, std::uint64_t count, std::uint64_t bytes) {
    const std::string json =
        fmt::format(R"({{"w":{{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}}}})", dtype, count, bytes);
    std::string head;
    for (int i = 0; i < 8; ++i) head += char(json.size() >> (8 * i));
    put(path, head + json);
    std::filesystem::resize_file(path, head.size() + json.size() + bytes);
}

TEST(Inspect, SaysInALineThatAFileBecameShorterWhileItWasBeingRead) {
    const Scratch scratch;
    const auto path = scratch / "a.safetensors";
    const std::uint64_t count = std::uint64_t(1) << 30;
    put_hollow(path, "F64", count, 8 * count);  // minutes of work
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::filesystem::resize_file(path, 1000);
    });
    const std::string message = message_of<IoError>([&] { inspect({path}, kFormats, 2); });
    other.join();
    EXPECT_TRUE(has(message, "a.safetensors") && has(message, "the file is truncated")) << message;
}

TEST(Inspect, KeepsLittleOfAFileInMemory) {
    const Scratch scratch;
    const auto peak = [] {
        std::ifstream status("/proc/self/status");
        std::string word;
        while (status >> word && word != "VmHWM:") continue;
        std::int64_t kilobytes = 0;
        status >> kilobytes;
        return kilobytes;
    };
    put_hollow(scratch / "a.safetensors", "F16", 128 << 20, 256 << 20);
    inspect({scratch / "a.safetensors"}, {Dtype::f16}, 1);  // code and tables come in
    std::ofstream("/proc/self/clear_refs") << 5;            // forgets the peak
    const std::int64_t before = peak();
    EXPECT_EQ(inspect({scratch / "a.safetensors"}, {Dtype::f16}).total.tally.zeros, 128 << 20);
    EXPECT_LT(peak() - before, 64 << 10) << "kB";
}

TEST(Inspect, RefusesADamagedTensorByItsNameWhicheverPieceItIsIn) {
    const Scratch scratch;
    const std::vector<float> values(400'000, 1.0f);
    save_safetensors(scratch / "a.safetensors", {{"large", Tensor::from(values, Shape{400, 1000})},
                                                 {"small", Tensor::from(std::vector<float>{1, 2}, Shape{2})}});
    ASSERT_NO_THROW(inspect({scratch / "a.safetensors"}, kFormats, 2));
    const std::string whole = read_file(scratch / "a.safetensors");
    for (const std::size_t from_end : {9u, 100'000u, 700'000u, 1'600'007u}) {
        std::string bytes = whole;
        bytes[bytes.size() - from_end] ^= 16;
        put(scratch / "a.safetensors", bytes);
        const std::string message = message_of<IoError>([&] { inspect({scratch / "a.safetensors"}, kFormats, 2); });
        EXPECT_TRUE(has(message, "a.safetensors: the bytes of tensor \"large\"")) << message;
    }
}

TEST(Inspect, RefusesWhatIsNoSafetensorsFile) {
    const Scratch scratch;
    put(scratch / "junk", "this is no safetensors file at all");
    put(scratch / "empty", "");
    EXPECT_THROW(inspect({scratch / "junk"}, kFormats), IoError);
    EXPECT_THROW(inspect({scratch / "empty"}, kFormats), IoError);
    EXPECT_THROW(inspect({scratch / "missing"}, kFormats), IoError);
    EXPECT_THROW(inspect({scratch.path()}, kFormats), IoError);
}

}  // namespace
}  // namespace invar
