// Separable filters: each pixel of the result is a weighted sum of some columns, then of some rows. Resizing and
// blurring are tables of such weights. Sums are of integers, so that every machine makes the same pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "invar/image/image.h"

namespace invar {

// For each place of the result along one side: where its run of source pixels begins, and their weights.
class FilterTable {
  public:
    // What a sum begins with, so that cutting off its bits behind the point rounds it. Weights are not negative and
    // sum to one but for their own rounding, so that what is left is a byte.
    static constexpr std::int32_t kHalf = 1 << 21;
    static constexpr int kBits = 22;  // of a weight behind the point: with 8 of a pixel and a sign they fill 31

    // A triangle as wide as a pixel of the result, or of the source where that is wider, over [begin, begin + length)
    // of a side of `source` pixels; those outside have no say.
    static FilterTable bilinear(double begin, double length, std::int64_t source, std::int64_t result);
    // A bell of `radius` pixels to either side; at the border the image is mirrored about its last pixel.
    static FilterTable gaussian(double sigma, std::int64_t radius, std::int64_t size);

    struct Run {
        std::int64_t first;
        std::int64_t count;
        const std::int32_t* weights;
    };
    Run run(std::int64_t i) const {
        const Span& span = spans_[std::size_t(i)];
        return {span.first, span.count, weights_.data() + span.offset};
    }
    std::int64_t size() const { return std::int64_t(spans_.size()); }
    // All source pixels that are asked for: [first, end).
    std::int64_t first() const { return first_; }
    std::int64_t end() const { return end_; }

  private:
    struct Span {
        std::int64_t first, count;
        std::size_t offset;
    };
    // Takes weights of any sum; they are made to sum to one.
    void add(std::int64_t first, const std::vector<double>& weights);
    std::vector<Span> spans_;
    std::vector<std::int32_t> weights_;
    std::int64_t first_ = 0, end_ = 0;
};

struct RowKernels;  // resample_rows.h

Image filter(const Image& image, const FilterTable& columns, const FilterTable& rows);
Image filter(const Image& image, const FilterTable& columns, const FilterTable& rows, const RowKernels& kernels);

}  // namespace invar
