#include "invar/ops/number.h"

#include <fmt/format.h>

#include <limits>

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"

namespace invar {

std::string Number::str() const {
    return is_whole ? fmt::format("{}", whole) : fmt::format("{}", real);
}

namespace ops {

Dtype promote(Dtype x, Number constant) {
    if (is_floating(x)) return x;
    if (!constant.is_whole) return Dtype::f32;
    return x == Dtype::boolean ? Dtype::i64 : x;
}

void check_fits(const char* op, Number value, Dtype dtype) {
    if (is_floating(dtype) || dtype == Dtype::boolean) return;
    const auto range = [&](auto zero) {
        using T = decltype(zero);
        constexpr std::int64_t kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
        if (value.is_whole) return value.whole >= kLeast && value.whole <= kMost;
        const double low = double(kLeast), high = double(kMost);  // what has a fraction is cut off
        return (value.real >= low || value.real > low - 1) && value.real < high + 1;
    };
    const bool fits = dtype == Dtype::i64   ? range(std::int64_t{})
                      : dtype == Dtype::i32 ? range(std::int32_t{})
                                            : range(std::uint8_t{});
    check<UsageError>(fits, "{}: {} does not fit in {}", op, value.str(), name_of(dtype));
}

Tensor constant(const char* op, Number value, Dtype dtype, Device device) {
    check_fits(op, value, dtype);
    Tensor result = Tensor::empty({}, dtype, device);
    if (value.is_whole && dtype == Dtype::i64)
        kernels_for(device).arange(result.view(), value.whole);  // double has no place for the last digits
    else
        kernels_for(device).fill(result.view(), value.real);
    return result;
}

}  // namespace ops

}  // namespace invar
