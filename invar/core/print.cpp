#include "invar/core/print.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>
#include <vector>

#include "invar/core/error.h"

namespace invar {

namespace {

// The positions along a dimension that are shown; -1 stands for those left out.
std::vector<std::int64_t> shown_positions(std::int64_t size, std::int64_t edge, bool shortened) {
    std::vector<std::int64_t> positions;
    edge = std::max<std::int64_t>(edge, 1);
    const bool cut = shortened && size > 2 * edge;
    for (std::int64_t i = 0; i < size; ++i) {
        if (cut && i == edge) positions.push_back(-1), i = size - edge;
        positions.push_back(i);
    }
    return positions;
}

class Printer {
  public:
    Printer(const Tensor& tensor, const PrintOptions& options)
        : host_(tensor.on_host()), options_(options), shortened_(tensor.numel() > options.threshold) {
        collect(0, 0);
        choose_form();
    }
    std::string text() {
        next_ = 0;
        return brackets(0, 1);
    }

  private:
    // The elements that are shown, in order.
    void collect(int dim, std::int64_t offset) {
        if (dim == host_.rank()) {
            values_.push_back(element(offset));
            return;
        }
        for (const std::int64_t i : shown_positions(host_.size(dim), options_.edge_items, shortened_))
            if (i >= 0) collect(dim + 1, offset + i * host_.strides()[dim]);
    }
    std::string exact(std::int64_t offset) const {
        return fmt::format("{}", host_.as_strided(offset, {1}, {1}).to_vector<std::int64_t>()[0]);
    }
    std::string element(std::int64_t offset) {
        if (host_.dtype() == Dtype::boolean) return host_.as_strided(offset, {1}, {1}).item() != 0 ? "true" : "false";
        if (!is_floating(host_.dtype())) return exact(offset);
        numbers_.push_back(host_.as_strided(offset, {1}, {1}).item());
        return "";
    }
    // Like numbers are written alike: as whole ones, with so many digits behind the point, or with exponents.
    void choose_form() {
        if (numbers_.empty()) return pad();
        double largest = 0.0, smallest = INFINITY;
        bool whole = true;
        for (const double v : numbers_) {
            if (!std::isfinite(v)) continue;
            whole = whole && v == std::nearbyint(v);
            if (v == 0) continue;
            largest = std::max(largest, std::fabs(v)), smallest = std::min(smallest, std::fabs(v));
        }
        const bool scientific =
            largest >= 1e8 || (!whole && largest > 0 && (largest / smallest > 1e3 || smallest < 1e-4));
        for (std::size_t i = 0; i < numbers_.size(); ++i) {
            const double v = numbers_[i];
            values_[i] = std::isnan(v)   ? "nan"
                         : std::isinf(v) ? (v > 0 ? "inf" : "-inf")
                         : scientific    ? fmt::format("{:.{}e}", v, options_.precision)
                         : whole         ? fmt::format("{:.0f}.", v)
                                         : fmt::format("{:.{}f}", v, options_.precision);
        }
        pad();
    }
    void pad() {
        std::size_t width = 0;
        for (const std::string& value : values_) width = std::max(width, value.size());
        for (std::string& value : values_) value.insert(0, width - value.size(), ' ');
    }
    std::string brackets(int dim, std::size_t indent) {
        if (dim == host_.rank()) return values_[next_++];
        const bool innermost = dim + 1 == host_.rank();
        std::string between = ", ";
        if (!innermost)
            between =
                fmt::format(",{}{}", std::string(std::size_t(host_.rank() - dim - 1), '\n'), std::string(indent, ' '));
        std::string text = "[";
        bool first = true;
        for (const std::int64_t i : shown_positions(host_.size(dim), options_.edge_items, shortened_)) {
            if (!std::exchange(first, false)) text += between;
            text += i < 0 ? "..." : brackets(dim + 1, indent + 1);
        }
        return text + "]";
    }

    Tensor host_;
    PrintOptions options_;
    bool shortened_;
    std::vector<std::string> values_;
    std::vector<double> numbers_;
    std::size_t next_ = 0;
};

}  // namespace

std::string to_string(const Tensor& tensor, const PrintOptions& options) {
    if (!tensor) return "undefined tensor";
    return fmt::format("{} {}", Printer(tensor, options).text(), tensor.str());
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
    return out << to_string(tensor);
}

}  // namespace invar
