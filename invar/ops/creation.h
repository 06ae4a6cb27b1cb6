// New tensors from nothing: constants, ranges and random values. None of these is recorded.
#pragma once

#include "invar/core/rng.h"
#include "invar/core/tensor.h"

namespace invar::ops {

Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::f32, Device device = {});
Tensor zeros(const Shape& shape, Dtype dtype = Dtype::f32, Device device = {});
Tensor ones(const Shape& shape, Dtype dtype = Dtype::f32, Device device = {});
Tensor full_like(const Tensor& other, double value);
Tensor zeros_like(const Tensor& other);
Tensor ones_like(const Tensor& other);

// 0, 1, ... count - 1.
Tensor arange(std::int64_t count, Dtype dtype = Dtype::i64, Device device = {});

// Random values come from this thread's default generator, or from the one given.
Tensor uniform(const Shape& shape, double low = 0, double high = 1, Dtype dtype = Dtype::f32, Device device = {});
Tensor uniform(const Shape& shape, double low, double high, Dtype dtype, Device device, Generator& generator);
Tensor normal(const Shape& shape, double mean = 0, double deviation = 1, Dtype dtype = Dtype::f32, Device device = {});
Tensor normal(const Shape& shape, double mean, double deviation, Dtype dtype, Device device, Generator& generator);

// The Philox counters (four numbers each) that `count` random values take.
constexpr std::uint64_t counters_for(std::int64_t count) {
    return (std::uint64_t(count) + 3) / 4;
}

}  // namespace invar::ops
