// Tensor: a handle to a strided view of device memory that carries its own autograd edge.
// Copying a Tensor copies the handle; maths lives in ops/.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "invar/core/device.h"
#include "invar/core/dtype.h"
#include "invar/core/memory.h"
#include "invar/core/shape.h"
#include "invar/core/view.h"

namespace invar {

class Node;  // autograd/node.h
struct TensorImpl;
struct Indices;  // ops/index.h

// What from_blob is told of the caller's memory beside its address and shape.
struct BlobOptions {
    Dtype dtype = Dtype::f32;
    Device device = {};
    std::optional<Shape> strides = {};             // in elements; dense in rows where there are none
    std::function<void(void* data)> deleter = {};  // called once, when the last tensor that sees the memory is gone
};

class Tensor {
  public:
    Tensor() = default;  // no tensor at all; defined() is false
    static Tensor empty(const Shape& shape, Dtype dtype = Dtype::f32, Device device = {});
    static Tensor empty_like(const Tensor& other) { return empty(other.shape(), other.dtype(), other.device()); }
    static Tensor empty_like(const Tensor& other, Dtype dtype) { return empty(other.shape(), dtype, other.device()); }

    // A dense host tensor that holds these values, converted to `dtype`.
    template <class T>
    static Tensor from(const std::vector<T>& values, const Shape& shape, Dtype dtype = dtype_of<T>);
    static Tensor scalar(double value, Dtype dtype = Dtype::f32);
    // The caller's memory seen as a tensor, without a copy: both see what the other writes. It must last as long as any
    // tensor that sees it, results recorded for backward included, and is in no MemoryStats. A leaf like any other,
    // which may learn; who writes to it behind Invar's back says so by bump_version(), so that backward does not use
    // what has changed. Throws where the address does not fit the dtype, or strides are negative.
    static Tensor from_blob(void* data, const Shape& shape, const BlobOptions& options = {});

    bool defined() const { return impl_ != nullptr; }
    explicit operator bool() const { return defined(); }
    const Shape& shape() const;
    const Shape& strides() const;  // in elements
    std::int64_t size(int dim) const { return shape()[dim]; }
    int rank() const { return shape().rank(); }
    std::int64_t numel() const { return shape().numel(); }
    std::size_t bytes() const { return std::size_t(numel()) * size_of(dtype()); }
    Dtype dtype() const;
    Device device() const;
    bool is_contiguous() const;
    View view() const;  // what kernels see

    void* raw() const;
    // Checked: T must store this tensor's dtype. Host tensors only, when dereferenced.
    template <class T>
    T* data() const {
        check_type(dtype_of<T>);
        return static_cast<T*>(raw());
    }

    // A dense window onto the same storage: `offset` elements from this tensor's first. No autograd edge. Throws for a
    // tensor that is not contiguous itself, whose elements do not lie side by side, and for a window that leaves the
    // storage.
    Tensor window(std::int64_t offset, const Shape& shape) const;
    // x[1], x[{-1, Slice{2, 5}}], x[mask]; include ops/index.h, which has the rules.
    Tensor operator[](const Indices& indices) const;
    // Any strided window; the caller vouches for its bounds.
    Tensor as_strided(std::int64_t offset, const Shape& shape, const Shape& strides) const;
    // The same memory without the autograd edge.
    Tensor detach() const;

    // The same values in the same strides on the CPU: this tensor itself where it is there. Waits for the device;
    // carries no autograd edge.
    Tensor on_host() const;
    // Host values, converted; for tests, metrics and files, not for speed.
    double item() const;
    template <class T>
    std::vector<T> to_vector() const;

    std::uint64_t version() const;
    void bump_version() const;
    const std::shared_ptr<Storage>& storage() const;
    std::int64_t offset() const;  // in elements, into the storage

    // --- autograd ---
    bool requires_grad() const;  // a leaf that wants a gradient, or the result of one
    Tensor& set_requires_grad(bool on = true);
    bool is_leaf() const;
    Tensor grad() const;  // undefined where there is none
    void set_grad(Tensor grad) const;
    // From here on there is no gradient, but its memory is kept: whoever adds first overwrites what is there.
    void forget_grad() const;
    bool grad_forgotten() const;
    Tensor grad_to_overwrite() const;           // that memory, a gradient from here on; the caller writes all of it
    const std::shared_ptr<Node>& node() const;  // what made this tensor
    void set_node(std::shared_ptr<Node> node) const;
    // Leaves: the node that adds into grad(), kept so that all uses of the leaf share it.
    std::weak_ptr<Node>& accumulator() const;

    // A low-precision copy of a leaf, kept current by the optimizer; autocast uses it instead of casting.
    Tensor shadow() const;
    void set_shadow(Tensor shadow) const;

    // Whether this handle is the only one to its memory, which is Invar's own: with it goes what was written there.
    bool is_sole_owner() const;
    bool same_as(const Tensor& other) const { return impl_ == other.impl_; }
    std::string str() const;  // "f32[128, 10] on cpu"

  private:
    explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}
    TensorImpl& impl() const;
    void check_type(Dtype dtype) const;
    std::shared_ptr<TensorImpl> impl_;
};

using Tensors = std::vector<Tensor>;

}  // namespace invar
