// How one tensor fares in a small format, judged from its statistics alone: the tally of all its values and a sample of
// them. Whose tensor it is, and how the statistics were come by, is not known here.
#pragma once

#include <span>
#include <string_view>

#include "invar/formats/format_tally.h"

namespace invar {

enum class Trouble : std::uint8_t {
    none,
    significance,  // values vary by less than rounding moves them
    underflow,     // more than a tenth of its magnitude rounds to zero, or of its values is next to it
    overflow,
};
std::string_view name_of(Trouble trouble);

struct TensorStatistics {
    const Tally* tally = nullptr;
    std::span<const float> sample;  // rows of `features` values; none: significance is not judged
    std::int64_t features = 1;
    Dtype held = Dtype::f32;   // the format the values were in when they were tallied
    bool should_vary = false;  // it was made of something that varies: what is constant, or all zero, has lost that
};

struct FormatVerdict {
    Trouble trouble = Trouble::none;
    double share = 0.0;       // of the values, or for significance of the features
    bool by_scaling = false;  // the format serves with a power of two for this tensor alone, and not without
    void take_worse(const FormatVerdict& other);
};

// Values times 2^shift, as gradients are under a loss scale. FP8 is judged with the power of two that suits the tensor,
// as its recipes have one; the 16-bit formats without. A tensor that was held in the format already shows what it has
// lost by infinities, and by values in the last binades above zero.
FormatVerdict judge(const TensorStatistics& tensor, Dtype format, int shift = 0);

// The share of a tensor's magnitude that vanishes in the format when multiplied by 2^shift: values that are next to
// nothing beside the others do not count, however many they are.
double lost_magnitude(const Tally& tally, Dtype format, int shift);
constexpr double kTooMuchLost = 0.1;

// The share of the counted values that overflow in the format when multiplied by 2^shift: exact but for the binade that
// the limit runs through, which is divided as the sample is.
double overflowing_share(const TensorStatistics& tensor, Dtype format, int shift);

// The share of features whose rounding error in the format is more than half of what they vary by. Features are judged
// one by one, since an offset that is the same in all rows carries nothing; 0 where there are too few rows to say.
double insignificant_share(const TensorStatistics& tensor, Dtype format);

}  // namespace invar
