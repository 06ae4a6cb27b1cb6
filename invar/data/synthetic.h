// A data set that needs no files: every class has a smooth random pattern, every sample is its class's pattern under
// noise. Sample n is a function of (seed, split, n) alone.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "invar/data/pixels.h"

namespace invar {

struct SyntheticOptions {
    std::int64_t size = 10000;  // samples to train on; the test split has a fifth of it
    std::int64_t height = 28;
    std::int64_t width = 28;
    std::int64_t channels = 1;
    std::int64_t classes = 10;
    double mean = 0.5;  // a pixel v in [0, 1] becomes (v - mean) / std
    double std = 0.5;
};

// Batches hold x, f32 [n, h, w, c] and normalised, and y, i64 [n].
class SyntheticDataset final : public Dataset {
  public:
    SyntheticDataset(const SyntheticOptions& options, Split split, std::uint64_t seed = 0);

    std::string name() const override { return "synthetic"; }
    std::int64_t size() const override { return size_; }
    DataInfo info() const override { return {shape_, classes_}; }
    Batch read(std::span<const std::int64_t> indices) const override;
    std::optional<PixelScale> pixels() const override { return same_scale(shape_[2], mean_, std_); }

  private:
    std::uint64_t seed_;
    Split split_;
    std::int64_t size_;
    Shape shape_;
    std::int64_t classes_;
    double mean_, std_;
    float noise_;  // half the width of the noise, in normalised units
    // A class's pattern [h, w, c], the same for both splits; drawn when it is first read.
    struct Pattern {
        std::once_flag drawn;
        std::vector<float> values;
    };
    const float* pattern_of(std::int64_t label) const;
    std::unique_ptr<Pattern[]> patterns_;
};

}  // namespace invar
