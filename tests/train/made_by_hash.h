// Weights and batches by hashing, the same here and in bench/torch_transformers.py and torch_vision.py, so that the
// losses of runs can be compared with PyTorch's.
#pragma once

#include <cmath>
#include <vector>

#include "invar/data/batch.h"
#include "invar/nn/module.h"

namespace invar {

// 32 well mixed bits of an index and a key.
inline std::uint32_t hashed(std::int64_t i, std::int64_t key) {
    std::uint32_t h = std::uint32_t(std::uint64_t(i) + std::uint64_t(key) * 0x9E3779B9);
    h ^= h >> 16, h *= 0x85EBCA6B;
    h ^= h >> 13, h *= 0xC2B2AE35;
    return h ^ (h >> 16);
}
// Evenly distributed over [-1, 1).
inline double even(std::int64_t i, std::int64_t key) {
    return hashed(i, key) * 0x1p-31 - 1;
}

// Norms begin at one, biases small, and the rest as wide as its inputs are many.
inline void fill(Module& model, std::int64_t seed) {
    StateDict state = model.state_dict();
    std::int64_t key = 1000 * seed;
    for (const Parameter* parameter : model.parameters()) {
        Tensor& value = state.at(parameter->name);
        const bool vector = value.rank() == 1, norm = vector && parameter->name.ends_with("weight");
        const double width = vector ? 0.02 : 0.5 * std::sqrt(3.0) / std::sqrt(double(value.numel() / value.size(0)));
        std::vector<float> values;
        for (std::int64_t i = 0; i < value.numel(); ++i) values.push_back(norm ? 1.0f : float(width * even(i, key)));
        value = Tensor::from(values, value.shape());
        ++key;
    }
    model.load_state_dict(state);
}

// A pattern for each class, in squares of 4x4, under as much noise.
inline Batch image_batch(std::int64_t step, std::int64_t rows) {
    constexpr std::int64_t kSide = 32, kChannels = 3, kClasses = 10;
    std::vector<float> x;
    std::vector<std::int64_t> labels;
    for (std::int64_t r = step * rows; r < (step + 1) * rows; ++r) {
        labels.push_back(hashed(r, 78) % kClasses);
        for (std::int64_t i = 0; i < kSide * kSide * kChannels; ++i) {
            const std::int64_t row = i / (kSide * kChannels), column = i / kChannels % kSide, channel = i % kChannels;
            const std::int64_t square = (row / 4 * (kSide / 4) + column / 4) * kChannels + channel;
            x.push_back(float(even(labels.back() * 100000 + square, 79) + even(r * 100000 + i, 80)));
        }
    }
    return Batch({{"x", Tensor::from(x, {rows, kSide, kSide, kChannels})}, {"y", Tensor::from(labels, {rows})}}, rows);
}

}  // namespace invar
