#include "invar/core/shape.h"

#include <algorithm>
#include <limits>

#include "invar/core/error.h"

namespace invar {

Shape::Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const std::int64_t> sizes) {
    for (const std::int64_t size : sizes) push_back(size);
}

Shape Shape::filled(int rank, std::int64_t value) {
    Shape shape;
    for (int i = 0; i < rank; ++i) shape.push_back(value);
    return shape;
}

std::int64_t Shape::numel() const {
    std::int64_t count = 1;
    for (const std::int64_t size : *this) {
        // Not check(): its arguments are built even when all is well, and this runs on every access.
        if (size < 0) fail("shape {} has a negative size", str());
        const bool overflows = size != 0 && count > std::numeric_limits<std::int64_t>::max() / size;
        if (overflows) fail("shape {} has more elements than fit in 63 bits", str());
        count *= size;
    }
    return count;
}

int Shape::axis(int dim) const {
    const int positive = dim < 0 ? dim + rank_ : dim;
    if (positive < 0 || positive >= rank_) fail("dimension {} does not exist in shape {}", dim, str());
    return positive;
}

void Shape::push_back(std::int64_t size) {
    check(rank_ < kMaxRank, "a tensor has at most {} dimensions", kMaxRank);
    sizes_[rank_++] = size;
}

void Shape::insert(int dim, std::int64_t size) {
    const int position = dim < 0 ? dim + rank_ + 1 : dim;
    check(position >= 0 && position <= rank_, "cannot insert at dimension {}: there are {}", dim, rank_);
    push_back(size);
    std::rotate(sizes_.begin() + position, sizes_.begin() + rank_ - 1, sizes_.begin() + rank_);
}

void Shape::erase(int dim) {
    const int position = axis(dim);
    std::copy(sizes_.begin() + position + 1, sizes_.begin() + rank_, sizes_.begin() + position);
    --rank_;
}

bool Shape::operator==(const Shape& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
}

std::string Shape::str() const {
    return fmt::format("[{}]", fmt::join(begin(), end(), ", "));
}

Shape contiguous_strides(const Shape& shape) {
    Shape strides = shape;
    std::int64_t stride = 1;
    for (int i = shape.rank() - 1; i >= 0; --i) {
        strides[i] = stride;
        stride *= shape[i];
    }
    return strides;
}

Shape broadcast(const Shape& a, const Shape& b, const char* op) {
    const int rank = std::max(a.rank(), b.rank());
    Shape result = Shape::filled(rank, 1);
    for (int i = 1; i <= rank; ++i) {
        const std::int64_t from_a = i <= a.rank() ? a[-i] : 1;
        const std::int64_t from_b = i <= b.rank() ? b[-i] : 1;
        if (from_a != from_b && from_a != 1 && from_b != 1)
            fail("{}: shapes {} and {} do not broadcast (dimension -{}: {} against {})", op, a.str(), b.str(), i,
                 from_a, from_b);
        result[-i] = from_a == 1 ? from_b : from_a;
    }
    return result;
}

}  // namespace invar
