#include "invar/train/scale_text.h"

#include <fmt/format.h>

#include <cmath>

namespace invar {

std::string scale_text(double scale) {
    if (std::isnan(scale)) return "nan";  // whose sign means nothing
    int exponent = 0;
    const bool power = std::isfinite(scale) && std::frexp(scale, &exponent) == 0.5;
    --exponent;
    if (power && (exponent >= 20 || exponent <= -4)) return fmt::format("2^{}", exponent);
    return fmt::format("{:g}", scale);
}

}  // namespace invar
