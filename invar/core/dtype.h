// The element types of tensors, their names and sizes, and which of two is the wider;
// the one place where a run-time dtype becomes a template parameter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "invar/core/formats.h"

namespace invar {

enum class Dtype : std::uint8_t { f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, i32, u8, boolean };

inline constexpr Dtype kAllDtypes[] = {Dtype::f64,    Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::f8e4m3,
                                       Dtype::f8e5m2, Dtype::i64, Dtype::i32, Dtype::u8,   Dtype::boolean};

constexpr std::size_t size_of(Dtype dtype) {
    constexpr std::uint8_t kSize[] = {8, 4, 2, 2, 1, 1, 8, 4, 1, 1};
    return kSize[static_cast<int>(dtype)];
}

constexpr std::string_view name_of(Dtype dtype) {
    constexpr std::string_view kName[] = {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "u8", "bool"};
    return kName[static_cast<int>(dtype)];
}

constexpr bool is_floating(Dtype dtype) {
    return dtype <= Dtype::f8e5m2;
}
constexpr bool is_sixteen_bit(Dtype dtype) {
    return dtype == Dtype::f16 || dtype == Dtype::bf16;
}

// The wider of two types, a floating one before any integer. Where neither of two floating types holds the other
// (f16 with bf16, the two eight-bit ones), the narrowest that holds both.
constexpr Dtype promote(Dtype a, Dtype b) {
    if (a == b) return a;
    if (is_sixteen_bit(a) && is_sixteen_bit(b)) return Dtype::f32;
    if (is_floating(a) && is_floating(b) && size_of(a) == 1 && size_of(b) == 1) return Dtype::f16;
    return a < b ? a : b;  // the enumeration runs from wide to narrow, floating types first
}

template <class T>
struct TypeTag {
    using type = T;
};

// Calls f(TypeTag<T>{}) with the C++ type that stores `dtype`.
template <class F>
decltype(auto) dispatch(Dtype dtype, F&& f) {
    switch (dtype) {
        case Dtype::f64:
            return f(TypeTag<double>{});
        case Dtype::f32:
            return f(TypeTag<float>{});
        case Dtype::f16:
            return f(TypeTag<f16>{});
        case Dtype::bf16:
            return f(TypeTag<bf16>{});
        case Dtype::f8e4m3:
            return f(TypeTag<f8e4m3>{});
        case Dtype::f8e5m2:
            return f(TypeTag<f8e5m2>{});
        case Dtype::i64:
            return f(TypeTag<std::int64_t>{});
        case Dtype::i32:
            return f(TypeTag<std::int32_t>{});
        case Dtype::u8:
        case Dtype::boolean:
            break;
    }
    return f(TypeTag<std::uint8_t>{});
}

// How a bool is stored: anything but zero is true, NaN and 0.5 too.
template <class T>
INVAR_HD constexpr std::uint8_t as_boolean(T value) {
    return value != T(0) ? 1 : 0;
}

// What users and other frameworks write for a dtype ("float16", "half", "F16", ...). Throws UsageError.
Dtype parse_dtype(std::string_view text);

template <class T>
constexpr Dtype find_dtype() {
    if constexpr (std::is_same_v<T, double>)
        return Dtype::f64;
    else if constexpr (std::is_same_v<T, float>)
        return Dtype::f32;
    else if constexpr (std::is_same_v<T, f16>)
        return Dtype::f16;
    else if constexpr (std::is_same_v<T, bf16>)
        return Dtype::bf16;
    else if constexpr (std::is_same_v<T, f8e4m3>)
        return Dtype::f8e4m3;
    else if constexpr (std::is_same_v<T, f8e5m2>)
        return Dtype::f8e5m2;
    else if constexpr (std::is_same_v<T, std::int64_t>)
        return Dtype::i64;
    else if constexpr (std::is_same_v<T, std::int32_t>)
        return Dtype::i32;
    else if constexpr (std::is_same_v<T, std::uint8_t>)
        return Dtype::u8;
    else
        static_assert(!sizeof(T), "no dtype stores this C++ type");
}

// The dtype that stores a C++ type; anything else, bool and long long included, does not compile.
template <class T>
inline constexpr Dtype dtype_of = find_dtype<std::remove_const_t<T>>();

}  // namespace invar
