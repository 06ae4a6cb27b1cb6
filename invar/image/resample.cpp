#include "invar/image/resample.h"

#include <algorithm>
#include <cmath>

#include "invar/image/resample_rows.h"

namespace invar {

void FilterTable::add(std::int64_t first, const std::vector<double>& weights) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    const std::int64_t end = first + std::int64_t(weights.size());
    first_ = spans_.empty() ? first : std::min(first_, first);
    end_ = std::max(end_, end);
    spans_.push_back({first, std::int64_t(weights.size()), weights_.size()});
    for (const double weight : weights)
        weights_.push_back(std::int32_t(std::lround(weight / sum * double(std::int32_t(1) << kBits))));
}

FilterTable FilterTable::bilinear(double begin, double length, std::int64_t source, std::int64_t result) {
    FilterTable table;
    table.spans_.reserve(std::size_t(result));
    const double scale = length / double(result);
    const double reach = std::max(scale, 1.0);  // to either side
    const std::int64_t lowest = std::max<std::int64_t>(std::int64_t(std::floor(begin)), 0);
    const std::int64_t highest = std::min(std::int64_t(std::ceil(begin + length)), source);
    std::vector<double> weights;
    for (std::int64_t i = 0; i < result; ++i) {
        const double centre = begin + (double(i) + 0.5) * scale;
        const std::int64_t first = std::max(std::int64_t(std::floor(centre - reach + 0.5)), lowest);
        const std::int64_t end = std::min(std::int64_t(std::floor(centre + reach + 0.5)), highest);
        weights.clear();
        for (std::int64_t x = first; x < end; ++x)
            weights.push_back(std::max(0.0, 1.0 - std::abs((double(x) - centre + 0.5) / reach)));
        table.add(first, weights);
    }
    return table;
}

FilterTable FilterTable::gaussian(double sigma, std::int64_t radius, std::int64_t size) {
    FilterTable table;
    std::vector<double> weights;
    for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t first = std::max<std::int64_t>(i - radius, 0), end = std::min(i + radius + 1, size);
        weights.assign(std::size_t(end - first), 0.0);
        for (std::int64_t offset = -radius; offset <= radius; ++offset) {
            std::int64_t x = i + offset;
            if (x < 0) x = -x;
            if (x >= size) x = 2 * (size - 1) - x;
            x = std::clamp(x, first, end - 1);  // where the image is smaller than the bell
            weights[std::size_t(x - first)] += std::exp(-0.5 * double(offset * offset) / (sigma * sigma));
        }
        table.add(first, weights);
    }
    return table;
}

namespace {

// Kernels take rows in groups.
constexpr std::size_t kGroup = RowKernels::kGroup;

// Rows of the image through the table of columns, made when they are first asked for and kept while they are needed:
// few enough to stay in the cache.
class NarrowRows {
  public:
    NarrowRows(const Image& image, const FilterTable& columns, const RowKernels& kernels, std::int64_t first,
               std::int64_t most_rows)
        : image_(image),
          columns_(columns),
          kernels_(kernels),
          stride_(std::size_t(columns.size() * image.channels)),
          slots_(std::size_t(most_rows) + kGroup),
          rows_(slots_ * stride_),
          end_(first) {
        const std::uint8_t* last = image.row(image.height - 1);
        padded_.assign(last, last + image.stride());
        padded_.push_back(0);
    }
    const std::uint8_t* row(std::int64_t y) {
        while (y >= end_) make_group();
        return slot(y);
    }
    std::size_t stride() const { return stride_; }

  private:
    std::uint8_t* slot(std::int64_t y) { return rows_.data() + std::size_t(y) % slots_ * stride_; }
    void make_group() {
        const std::uint8_t* from[kGroup];
        std::uint8_t* to[kGroup];
        for (std::size_t i = 0; i < kGroup; ++i) {
            const std::int64_t y = end_ + std::int64_t(i);
            // A kernel may read a byte more than a row has, and only the last one has none behind it.
            from[i] = y < image_.height - 1 ? image_.row(y) : padded_.data();
            to[i] = slot(y);
        }
        (image_.channels == 3 ? kernels_.columns_rgb : kernels_.columns_grey)(from, to, columns_);
        end_ += kGroup;
    }

    const Image& image_;
    const FilterTable& columns_;
    const RowKernels& kernels_;
    std::size_t stride_, slots_;
    std::vector<std::uint8_t> rows_, padded_;
    std::int64_t end_;  // rows before it were made
};

}  // namespace

Image filter(const Image& image, const FilterTable& columns, const FilterTable& rows) {
    return filter(image, columns, rows, row_kernels());
}

Image filter(const Image& image, const FilterTable& columns, const FilterTable& rows, const RowKernels& kernels) {
    std::int64_t most = 0;
    for (std::int64_t y = 0; y < rows.size(); ++y) most = std::max(most, rows.run(y).count);
    NarrowRows narrow(image, columns, kernels, rows.first(), most);
    Image out(rows.size(), columns.size(), image.channels);
    std::vector<const std::uint8_t*> from(static_cast<std::size_t>(most));
    for (std::int64_t y = 0; y < out.height; ++y) {
        const FilterTable::Run run = rows.run(y);
        for (std::int64_t k = 0; k < run.count; ++k) from[std::size_t(k)] = narrow.row(run.first + k);
        kernels.rows(from.data(), run, out.row(y), narrow.stride());
    }
    return out;
}

}  // namespace invar
