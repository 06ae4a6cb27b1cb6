#include "invar/amp/precision.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "invar/core/error.h"
#include "invar/core/suggest.h"

namespace invar {
namespace {

using Kind = Precision::Kind;

struct Spelling {
    std::string_view text;
    Kind kind;
};

// Lower case, with '-' for '_' and ' ', and without "torch.". The canonical names come first, in the order of Kind.
constexpr Spelling kSpellings[] = {
    // Lightning
    {"32-true", Kind::fp32},
    {"tf32", Kind::tf32},
    {"16-mixed", Kind::fp16_mixed},
    {"bf16-mixed", Kind::bf16_mixed},
    {"16-true", Kind::fp16_true},
    {"bf16-true", Kind::bf16_true},
    {"32", Kind::fp32},
    {"16", Kind::fp16_mixed},
    // Accelerate
    {"no", Kind::fp32},
    {"fp16", Kind::fp16_mixed},
    {"bf16", Kind::bf16_mixed},
    // NeMo and PyTorch
    {"float32", Kind::fp32},
    {"float16", Kind::fp16_mixed},
    {"bfloat16", Kind::bf16_mixed},
    {"float", Kind::fp32},
    {"half", Kind::fp16_mixed},
    // Keras
    {"mixed-float16", Kind::fp16_mixed},
    {"mixed-bfloat16", Kind::bf16_mixed},
    // what people write by analogy with these
    {"fp32", Kind::fp32},
    {"f32", Kind::fp32},
    {"32-bit", Kind::fp32},
    {"fp32-true", Kind::fp32},
    {"float32-true", Kind::fp32},
    {"full", Kind::fp32},
    {"none", Kind::fp32},
    {"tensorfloat32", Kind::tf32},
    {"f16", Kind::fp16_mixed},
    {"16-bit", Kind::fp16_mixed},
    {"fp16-mixed", Kind::fp16_mixed},
    {"float16-mixed", Kind::fp16_mixed},
    {"mixed-fp16", Kind::fp16_mixed},
    {"bf16-bit", Kind::bf16_mixed},
    {"bfloat16-mixed", Kind::bf16_mixed},
    {"mixed-bf16", Kind::bf16_mixed},
    {"fp16-true", Kind::fp16_true},
    {"float16-true", Kind::fp16_true},
    {"half-true", Kind::fp16_true},
    {"bfloat16-true", Kind::bf16_true},
};

// What people write where they want FP8, which no operation here computes in.
constexpr std::string_view kFp8[] = {"fp8",        "fp8-mixed",     "fp8-true", "float8",
                                     "mixed-fp8",  "mixed-float8",  "f8",       "float8-mixed",
                                     "fp8-hybrid", "float8-e4m3fn", "e4m3",     "transformer-engine",
                                     "8-mixed",    "float8-e5m2",   "e5m2",     "transformer-engine-float16"};

std::string normalised(std::string_view text) {
    const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    while (!text.empty() && space(text.front())) text.remove_prefix(1);
    while (!text.empty() && space(text.back())) text.remove_suffix(1);
    std::string result(text);
    for (char& c : result) {
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        if (c == '_' || c == ' ') c = '-';
    }
    if (result.starts_with("torch.")) result.erase(0, 6);
    return result;
}

Level own_level(Kind kind) {
    switch (kind) {
        case Kind::fp32:
        case Kind::tf32:
            return Level::O0;
        case Kind::fp16_true:
        case Kind::bf16_true:
            return Level::O3;
        default:
            return Level::O1;
    }
}

}  // namespace

std::string_view name_of(Level level) {
    constexpr std::string_view kNames[] = {"O0", "O1", "O2", "O3"};
    return kNames[static_cast<int>(level)];
}

std::span<const std::string> Precision::names() {
    static const std::vector<std::string> kNames = [] {
        std::vector<std::string> names;
        for (int kind = 0; kind <= static_cast<int>(Kind::bf16_true); ++kind) names.emplace_back(kSpellings[kind].text);
        return names;
    }();
    return kNames;
}

Precision Precision::parse(std::string_view text) {
    const std::string wanted = normalised(text);
    for (const Spelling& spelling : kSpellings)
        if (spelling.text == wanted) return {spelling.kind, own_level(spelling.kind)};
    if (wanted.size() == 2 && wanted[0] == 'o' && wanted[1] >= '0' && wanted[1] <= '3') {
        const Level level = parse_level(wanted);  // Apex: the level alone, of FP16
        if (level == Level::O0) return {};
        return Precision{Kind::fp16_mixed, Level::O1}.with_level(level);
    }
    check<UsageError>(std::ranges::find(kFp8, wanted) == std::end(kFp8),
                      "precision '{}': Invar does not train in FP8; use bf16-mixed or 16-mixed", text.substr(0, 60));
    std::vector<std::string> known;
    for (const Spelling& spelling : kSpellings) known.emplace_back(spelling.text);
    fail<UsageError>("unknown precision '{}'{}; use one of {}", text.substr(0, 60), did_you_mean(wanted, known),
                     fmt::join(names(), " "));
}

Level Precision::parse_level(std::string_view text) {
    std::string_view digit = text;
    if (digit.size() == 2 && (digit[0] == 'O' || digit[0] == 'o' || digit[0] == '0')) digit.remove_prefix(1);
    const bool good = digit.size() == 1 && digit[0] >= '0' && digit[0] <= '3';
    check<UsageError>(
        good,
        "unknown AMP level '{}'; use O0 (no casts), O1 (mixed), O2 (almost all low) or O3 (so, and 16-bit weights)",
        text.substr(0, 60));
    return static_cast<Level>(digit[0] - '0');
}

Precision Precision::with_level(Level wanted) const {
    const bool all_low = wanted == Level::O3;
    if (wanted == Level::O0 && kind != Kind::tf32) return {};  // nothing is cast: that is FP32, and called so
    switch (kind) {
        case Kind::fp32:
        case Kind::tf32:
            return *this;  // nothing is cast at any level
        case Kind::fp16_mixed:
        case Kind::fp16_true:
            return {all_low ? Kind::fp16_true : Kind::fp16_mixed, wanted};
        case Kind::bf16_mixed:
        case Kind::bf16_true:
            break;
    }
    return {all_low ? Kind::bf16_true : Kind::bf16_mixed, wanted};
}

std::string Precision::name() const {
    return names()[static_cast<std::size_t>(kind)];
}

Dtype Precision::compute_dtype() const {
    if (level == Level::O0) return Dtype::f32;
    switch (kind) {
        case Kind::fp16_mixed:
        case Kind::fp16_true:
            return Dtype::f16;
        case Kind::bf16_mixed:
        case Kind::bf16_true:
            return Dtype::bf16;
        default:
            return Dtype::f32;
    }
}

bool Precision::mixed() const {
    return kind == Kind::fp16_mixed || kind == Kind::bf16_mixed;
}

void Precision::require(Device device) const {
    if (!device.is_cpu()) return;
    check<UsageError>(kind != Kind::tf32,
                      "precision tf32 needs an NVIDIA GPU and the device is {}; use 32-true, or --device cuda",
                      device.str());
}

}  // namespace invar
