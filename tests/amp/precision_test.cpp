#include "invar/amp/precision.h"

#include <gtest/gtest.h>

#include <string>

#include "invar/core/error.h"

namespace invar {
namespace {

using Kind = Precision::Kind;

std::string message_of(auto&& call) {
    try {
        call();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "no UsageError was thrown";
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(Precision, ReadsEverySpellingPeopleUse) {
    const std::pair<const char*, const char*> kCases[] = {
        // Lightning
        {"32-true", "32-true"},
        {"16-mixed", "16-mixed"},
        {"bf16-mixed", "bf16-mixed"},
        {"16-true", "16-true"},
        {"bf16-true", "bf16-true"},
        {"tf32", "tf32"},
        {"16", "16-mixed"},
        {"32", "32-true"},
        // Accelerate
        {"no", "32-true"},
        {"fp16", "16-mixed"},
        {"bf16", "bf16-mixed"},
        // NeMo, PyTorch, Keras
        {"float32", "32-true"},
        {"float16", "16-mixed"},
        {"bfloat16", "bf16-mixed"},
        {"torch.bfloat16", "bf16-mixed"},
        {"half", "16-mixed"},
        {"mixed_float16", "16-mixed"},
        {"mixed_bfloat16", "bf16-mixed"},
        // Apex
        {"O0", "32-true"},
        {"O1", "16-mixed"},
        {"o2", "16-mixed"},
        {"O3", "16-true"},
        // in any case, with either separator, with space around
        {"BF16-Mixed", "bf16-mixed"},
        {"FP16_MIXED", "16-mixed"},
        {" fp32 ", "32-true"},
        {"TF32", "tf32"},
    };
    for (const auto& [text, name] : kCases) EXPECT_EQ(Precision::parse(text).name(), name) << text;
}

TEST(Precision, ItsCanonicalNamesReadBackAsThemselves) {
    EXPECT_EQ(Precision::names().size(), 6u);
    for (const std::string& name : Precision::names()) EXPECT_EQ(Precision::parse(name).name(), name);
}

TEST(Precision, RefusesUnknownNamesWithTheListAndTheNearest) {
    const std::string message = message_of([] { Precision::parse("bf16-mixd"); });
    EXPECT_TRUE(has(message, "unknown precision 'bf16-mixd'")) << message;
    EXPECT_TRUE(has(message, "did you mean 'bf16-mixed'?")) << message;
    EXPECT_TRUE(has(message, "use one of 32-true tf32 16-mixed bf16-mixed 16-true bf16-true")) << message;
    for (const char* bad : {"", " ", "64", "O4", "o", "-", "fp16-fp32", "quadruple"})
        EXPECT_THROW(Precision::parse(bad), UsageError) << bad;
    EXPECT_THROW(Precision::parse(std::string(100000, 'f')), UsageError);
    EXPECT_THROW(Precision::parse(std::string_view("16\0-mixed", 9)), UsageError);
}

TEST(Precision, RefusesFp8InAllItsSpellingsAndSaysWhatToUse) {
    for (const char* text :
         {"fp8", "FP8", "fp8-mixed", "fp8_mixed", "float8", "torch.float8_e4m3fn", "transformer-engine"})
        EXPECT_EQ(message_of([&] { Precision::parse(text); }),
                  "precision '" + std::string(text) + "': Invar does not train in FP8; use bf16-mixed or 16-mixed");
}

TEST(Precision, SaysWhatEachKindComputesInAndKeeps) {
    struct Case {
        const char* name;
        Dtype dtype;
        bool mixed, scaler, masters;
    };
    const Case kCases[] = {
        {"32-true", Dtype::f32, false, false, false}, {"tf32", Dtype::f32, false, false, false},
        {"16-mixed", Dtype::f16, true, true, true},   {"bf16-mixed", Dtype::bf16, true, false, true},
        {"16-true", Dtype::f16, false, false, false}, {"bf16-true", Dtype::bf16, false, false, false},
    };
    for (const Case& c : kCases) {
        const Precision precision = Precision::parse(c.name);
        EXPECT_EQ(precision.compute_dtype(), c.dtype) << c.name;
        EXPECT_EQ(precision.mixed(), c.mixed) << c.name;
        EXPECT_EQ(precision.needs_scaler(), c.scaler) << c.name;
        EXPECT_EQ(precision.has_masters(), c.masters) << c.name;
    }
}

TEST(Precision, LevelZeroOfSixteenBitsIsFp32InNameAndDeed) {
    for (const char* name : {"fp16", "bf16", "16-true", "bf16-true"})
        EXPECT_EQ(Precision::parse(name).with_level(Level::O0), Precision{}) << name;
    EXPECT_EQ(Precision::parse("tf32").with_level(Level::O0), Precision::parse("tf32"));
}

TEST(Precision, LevelThreeOfAMixedKindIsTheTrueKindAndBack) {
    EXPECT_EQ(Precision::parse("16-mixed").with_level(Level::O3), Precision::parse("16-true"));
    EXPECT_EQ(Precision::parse("bf16").with_level(Level::O3), Precision::parse("bf16-true"));
    EXPECT_EQ(Precision::parse("bf16-true").with_level(Level::O1), Precision::parse("bf16-mixed"));
    EXPECT_EQ(Precision::parse("fp16").with_level(Level::O2), Precision::parse("O2"));
}

TEST(Precision, FullPrecisionHasOneLevel) {
    for (const Level level : {Level::O0, Level::O1, Level::O2, Level::O3}) {
        EXPECT_EQ(Precision::parse("no").with_level(level), Precision{});
        EXPECT_EQ(Precision::parse("tf32").with_level(level), Precision::parse("tf32"));
    }
}

TEST(Precision, ReadsLevels) {
    EXPECT_EQ(Precision::parse_level("O0"), Level::O0);
    EXPECT_EQ(Precision::parse_level("o1"), Level::O1);
    EXPECT_EQ(Precision::parse_level("2"), Level::O2);
    EXPECT_EQ(name_of(Precision::parse_level("O3")), "O3");
    for (const char* bad : {"", "O", "O4", "O-1", "O11", "level"})
        EXPECT_THROW(Precision::parse_level(bad), UsageError) << bad;
    EXPECT_TRUE(has(message_of([] { Precision::parse_level("O9"); }), "O0"));
}

TEST(Precision, RefusesADeviceThatLacksItAndSaysWhatToUse) {
    for (const char* good : {"32-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true"})
        EXPECT_NO_THROW(Precision::parse(good).require(Device::cpu())) << good;
    EXPECT_TRUE(has(message_of([] { Precision::parse("tf32").require(Device::cpu()); }), "use 32-true"));
    for (const std::string& name : Precision::names()) EXPECT_NO_THROW(Precision::parse(name).require(Device::cuda()));
}

}  // namespace
}  // namespace invar
