// The fast way to tally: eight values at a time. Everything that widens to f32 without loss.
#pragma once

#include "invar/formats/format_tally.h"

namespace invar {

// False, with nothing done, where the CPU cannot.
bool tally_with_avx2(Dtype dtype, const void* data, std::size_t count, std::span<const Dtype> formats, Tally& tally);

}  // namespace invar
