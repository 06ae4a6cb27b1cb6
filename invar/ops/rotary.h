// Rotary positions: queries and keys turned by angles that grow with their position, so that their products depend on
// distance alone. The convention is that of Llama in Hugging Face's library: pairs are (i, i + half of the width).
#pragma once

#include <vector>

#include "invar/core/tensor.h"

namespace invar::ops {

// How fast the pairs turn. Scaling reaches further than a model was trained for: `linear` slows every pair down by the
// factor, `llama3` only those that turn slowly.
struct RotarySpeeds {
    enum class Scaling { none, linear, llama3 };
    double base = 10000;
    Scaling scaling = Scaling::none;
    double factor = 1;
    double low_freq_factor = 1, high_freq_factor = 4;  // of llama3, as its configuration files name them
    double original_length = 8192;                     // original_max_position_embeddings
};

// Radians from one position to the next, for each of the width / 2 pairs.
std::vector<double> rotary_speeds(std::int64_t width, const RotarySpeeds& options = {});

// [positions, 2 * pairs]: the cosines of each position's angles, then the sines, computed in double. Made once and kept
// beside the weights.
Tensor rotary_table(std::int64_t positions, const std::vector<double>& speeds, Dtype dtype = Dtype::f32,
                    Device device = {});

struct RotaryPositions {
    std::int64_t offset = 0;  // of the first position in the table
    Tensor positions = {};    // i64 [length] or [batch, length]; where absent 0, 1, 2, ...
};

// Turns the queries and keys of [batch, length, (heads + 2 kv_heads) * width], and copies the values; with kv_heads 0
// all of [batch, length, heads * width]. Where the table is narrower than a head, the rest of the head is copied too.
Tensor rotary(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads, const Tensor& table,
              const RotaryPositions& at = {});

}  // namespace invar::ops
