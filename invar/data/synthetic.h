// A data set that needs no files: every class has a smooth random pattern, every sample is its class's pattern under
// noise. Sample n is a function of (seed, split, n) alone.
#pragma once

#include <vector>

#include "invar/data/dataset.h"

namespace invar {

class SyntheticDataset final : public Dataset {
  public:
    SyntheticDataset(const DatasetOptions& options, Split split);

    std::string name() const override { return "synthetic"; }
    std::int64_t size() const override { return size_; }
    Shape sample_shape() const override { return shape_; }
    std::int64_t classes() const override { return classes_; }
    void read(std::span<const std::int64_t> indices, float* x, std::int64_t* y) const override;

  private:
    std::uint64_t seed_;
    Split split_;
    std::int64_t size_;
    Shape shape_;
    std::int64_t classes_;
    float noise_;                    // half the width of the noise, in normalised units
    std::vector<float> prototypes_;  // [classes, h, w, c], the same for both splits
};

}  // namespace invar
