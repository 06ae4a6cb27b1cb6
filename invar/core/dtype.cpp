#include "invar/core/dtype.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "invar/core/error.h"

namespace invar {

Dtype parse_dtype(std::string_view text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    struct Spelling {
        std::string_view text;
        Dtype dtype;
    };
    static constexpr Spelling kSpellings[] = {
        {"f64", Dtype::f64},
        {"float64", Dtype::f64},
        {"double", Dtype::f64},
        {"f32", Dtype::f32},
        {"float32", Dtype::f32},
        {"float", Dtype::f32},
        {"fp32", Dtype::f32},
        {"f16", Dtype::f16},
        {"float16", Dtype::f16},
        {"fp16", Dtype::f16},
        {"half", Dtype::f16},
        {"bf16", Dtype::bf16},
        {"bfloat16", Dtype::bf16},
        {"f8e4m3", Dtype::f8e4m3},
        {"f8_e4m3", Dtype::f8e4m3},
        {"float8_e4m3fn", Dtype::f8e4m3},
        {"f8e5m2", Dtype::f8e5m2},
        {"f8_e5m2", Dtype::f8e5m2},
        {"float8_e5m2", Dtype::f8e5m2},
        {"i64", Dtype::i64},
        {"int64", Dtype::i64},
        {"i32", Dtype::i32},
        {"int32", Dtype::i32},
        {"u8", Dtype::u8},
        {"uint8", Dtype::u8},
        {"bool", Dtype::boolean},
    };
    for (const Spelling& spelling : kSpellings)
        if (spelling.text == lower) return spelling.dtype;
    fail<UsageError>("unknown dtype '{}'; use one of f64 f32 f16 bf16 f8e4m3 f8e5m2 i64 i32 u8 bool", text);
}

}  // namespace invar
