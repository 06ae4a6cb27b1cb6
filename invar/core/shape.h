// Shape: the sizes of a tensor's dimensions, at most kMaxRank of them, held in place.
// Strides are a Shape too; broadcasting follows NumPy.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace invar {

inline constexpr int kMaxRank = 6;

class Shape {
  public:
    Shape() = default;
    Shape(std::initializer_list<std::int64_t> sizes);
    explicit Shape(std::span<const std::int64_t> sizes);
    static Shape filled(int rank, std::int64_t value);

    int rank() const { return rank_; }
    std::int64_t numel() const;
    // Negative dimensions count from the end. Throws on a dimension that does not exist.
    int axis(int dim) const;
    std::int64_t operator[](int dim) const { return sizes_[axis(dim)]; }
    std::int64_t& operator[](int dim) { return sizes_[axis(dim)]; }
    void push_back(std::int64_t size);
    void insert(int dim, std::int64_t size);
    void erase(int dim);

    const std::int64_t* begin() const { return sizes_.data(); }
    const std::int64_t* end() const { return sizes_.data() + rank_; }
    bool operator==(const Shape& other) const;
    std::string str() const;  // "[128, 28, 28, 1]"

  private:
    int rank_ = 0;
    std::array<std::int64_t, kMaxRank> sizes_{};
};

// Strides, in elements, of a dense row-major tensor of this shape.
Shape contiguous_strides(const Shape& shape);

// The shape two operands broadcast to, as in NumPy. `op` names the caller in the error.
Shape broadcast(const Shape& a, const Shape& b, const char* op);

}  // namespace invar
