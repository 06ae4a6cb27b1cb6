// Indexing as people write it: x[2], x[{1, -1}], x[{Slice{0, 5, 2}, Ellipsis{}, 0}], x[mask], x[{Slice{}, ids}], with
// PyTorch's rules. Whole numbers, slices, Ellipsis and NewAxis make views that share x's memory; index tensors and
// masks copy. Gradients flow through all of them.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <variant>
#include <vector>

#include "invar/core/tensor.h"

namespace invar {

// [begin, end) by steps; negative bounds count from the end, bounds that are left out or too large are the tensor's
// own.
struct Slice {
    std::optional<std::int64_t> begin = {}, end = {};
    std::int64_t step = 1;
};
struct Ellipsis {};  // as many whole dimensions as are left
struct NewAxis {};   // a dimension of size 1

// What one place in the brackets may hold. A tensor is either i64, whose values pick places along one dimension
// (negative ones from the end), or a mask of booleans over as many dimensions as it has. What tensors pick stands where
// they stand where that is side by side, and comes first otherwise. A whole number takes its dimension away before
// that, as in PyTorch; NumPy counts it among the tensors.
struct Index {
    template <std::integral T>
    requires(!std::same_as<T, bool>) Index(T at) : what(std::int64_t(at)) {}  // NOLINT(google-explicit-constructor)
    Index(Slice slice) : what(slice) {}                                       // NOLINT(google-explicit-constructor)
    Index(Ellipsis) : what(Ellipsis{}) {}                                     // NOLINT(google-explicit-constructor)
    Index(NewAxis) : what(NewAxis{}) {}                                       // NOLINT(google-explicit-constructor)
    Index(Tensor tensor) : what(std::move(tensor)) {}                         // NOLINT(google-explicit-constructor)
    std::variant<std::int64_t, Slice, Ellipsis, NewAxis, Tensor> what;
};

// What stands in the brackets: one index, or several in braces.
struct Indices {
    Indices(std::initializer_list<Index> several) : all(several) {}
    template <std::convertible_to<Index> T>
    Indices(const T& one) : all{Index(one)} {}  // NOLINT(google-explicit-constructor)
    std::vector<Index> all;
};

namespace ops {

// x[indices]. On a GPU a mask is read back, which waits for the device, and values of index tensors are not checked.
Tensor index(const Tensor& x, const Indices& indices);

// Writes `from`, broadcast and converted, into the memory of `to`: copy_(x[{0, Slice{2, 4}}], y) is Python's
// x[0, 2:4] = y. Not recorded: throws where `to` or `from` takes part in a gradient and NoGrad does not hold.
void copy_(const Tensor& to, const Tensor& from);
// The same, but throws where nobody would ever see what is written, as in copy_(x[ids], y): x[ids] is a copy.
void copy_(Tensor&& to, const Tensor& from);

// Python's x[indices] = values for all indices, tensors and masks too. Where an index tensor names a place twice, the
// last of the values stays. Not recorded, as copy_; reads index tensors back, which waits for the device.
void index_put_(const Tensor& x, const Indices& indices, const Tensor& values);

}  // namespace ops

}  // namespace invar
