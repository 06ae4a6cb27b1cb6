#include "invar/core/tensor.h"

#include <limits>

#include "invar/core/convert.h"
#include "invar/core/error.h"
#include "invar/core/promised.h"

namespace invar {

static_assert(View::kRank == kMaxRank);

struct TensorImpl {
    std::shared_ptr<Storage> storage;
    std::int64_t offset = 0;
    Shape shape;
    Shape strides;
    Dtype dtype = Dtype::f32;
    bool requires_grad = false;
    std::shared_ptr<Node> node;
    std::weak_ptr<Node> accumulator;
    Tensor grad;
    bool grad_forgotten = false;
    Tensor shadow;
};

namespace {

// Elements from the first to the last that the strides reach, gaps included.
std::int64_t extent(const Shape& shape, const Shape& strides) {
    if (shape.numel() == 0) return 0;
    std::int64_t count = 1;
    for (int i = 0; i < shape.rank(); ++i) count += (shape[i] - 1) * strides[i];
    return count;
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, Dtype dtype, Device device) {
    const std::int64_t count = shape.numel();
    if (count > std::numeric_limits<std::int64_t>::max() / std::int64_t(size_of(dtype)))
        fail("a tensor {}{} has more bytes than fit in 63 bits", name_of(dtype), shape.str());
    const std::size_t bytes = std::size_t(count) * size_of(dtype);
    auto impl = std::make_shared<TensorImpl>();
    impl->storage = std::make_shared<Storage>(bytes, device, PurposeScope::current());
    impl->shape = shape;
    impl->strides = contiguous_strides(shape);
    impl->dtype = dtype;
    return Tensor(std::move(impl));
}

Tensor Tensor::from_blob(void* data, const Shape& shape, const BlobOptions& options) {
    const std::string what = fmt::format("{}{}", name_of(options.dtype), shape.str());
    const Shape strides = options.strides.value_or(contiguous_strides(shape));
    if (strides.rank() != shape.rank()) fail("from_blob: strides {} for {}", strides.str(), what);
    for (const std::int64_t stride : strides)
        if (stride < 0) fail("from_blob: strides {} for {}; none may be negative", strides.str(), what);
    const std::int64_t count = shape.numel(), size = std::int64_t(size_of(options.dtype));
    if (data == nullptr && count > 0) fail("from_blob: no memory was given for {}", what);
    if (reinterpret_cast<std::uintptr_t>(data) % std::uintptr_t(size) != 0)
        fail("from_blob: {} lies at an address that is no multiple of {} bytes", what, size);
    // An absent tensor is one without an address; an empty one has one that nobody reads.
    static char nothing[sizeof(double)];
    std::function<void(void*)> deleter;
    if (options.deleter) deleter = [call = options.deleter, data](void*) { call(data); };
    auto impl = std::make_shared<TensorImpl>();
    impl->storage =
        std::make_shared<Storage>(data == nullptr ? nothing : data, std::size_t(extent(shape, strides) * size),
                                  options.device, std::move(deleter));
    impl->shape = shape;
    impl->strides = strides;
    impl->dtype = options.dtype;
    return Tensor(std::move(impl));
}

namespace {

// Calls f(linear index, element) over a host tensor in row-major order.
template <class T, class F>
void for_each_element(const Tensor& tensor, F&& f) {
    const Shape& shape = tensor.shape();
    const Shape& strides = tensor.strides();
    T* base = static_cast<T*>(tensor.raw());
    const std::int64_t count = shape.numel();
    if (tensor.is_contiguous()) {
        for (std::int64_t i = 0; i < count; ++i) f(i, base[i]);
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t rest = i, position = 0;
        for (int d = shape.rank() - 1; d >= 0; --d) {
            position += rest % shape[d] * strides[d];
            rest /= shape[d];
        }
        f(i, base[position]);
    }
}

}  // namespace

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape, Dtype dtype) {
    if (std::int64_t(values.size()) != shape.numel())
        fail("Tensor::from: {} values for shape {}", values.size(), shape.str());
    Tensor result = empty(shape, dtype);
    dispatch(dtype, [&](auto tag) {
        using To = typename decltype(tag)::type;
        To* out = static_cast<To*>(result.raw());
        const bool truth = dtype == Dtype::boolean;
        for (std::size_t i = 0; i < values.size(); ++i)
            out[i] = converted<To>(truth ? T(as_boolean(values[i])) : values[i]);
    });
    return result;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
    const Tensor host = on_host();
    std::vector<T> values(static_cast<std::size_t>(numel()));
    dispatch(dtype(), [&](auto tag) {
        using From = typename decltype(tag)::type;
        for_each_element<From>(host, [&](std::int64_t i, From value) { values[std::size_t(i)] = converted<T>(value); });
    });
    return values;
}

#define INVAR_HOST_VALUES(T)                                                     \
    template Tensor Tensor::from<T>(const std::vector<T>&, const Shape&, Dtype); \
    template std::vector<T> Tensor::to_vector<T>() const;
INVAR_HOST_VALUES(double)
INVAR_HOST_VALUES(float)
INVAR_HOST_VALUES(std::int64_t)
INVAR_HOST_VALUES(std::int32_t)
INVAR_HOST_VALUES(std::uint8_t)
#undef INVAR_HOST_VALUES

Tensor Tensor::scalar(double value, Dtype dtype) {
    return from(std::vector<double>{value}, {}, dtype);
}

TensorImpl& Tensor::impl() const {
    check(impl_ != nullptr, "an undefined tensor was used");
    return *impl_;
}

const Shape& Tensor::shape() const {
    return impl().shape;
}
const Shape& Tensor::strides() const {
    return impl().strides;
}
Dtype Tensor::dtype() const {
    return impl().dtype;
}
Device Tensor::device() const {
    return impl().storage->device();
}
const std::shared_ptr<Storage>& Tensor::storage() const {
    return impl().storage;
}
std::int64_t Tensor::offset() const {
    return impl().offset;
}
std::uint64_t Tensor::version() const {
    return impl().storage->version();
}
bool Tensor::is_sole_owner() const {
    return impl().storage->owned() && impl_.use_count() == 1 && impl().storage.use_count() == 1;
}
void Tensor::bump_version() const {
    impl().storage->bump_version();
}

void* Tensor::raw() const {
    if (!impl().storage->owned()) [[unlikely]]
        check_present(*impl().storage);
    return static_cast<char*>(impl().storage->data()) + impl().offset * std::int64_t(size_of(impl().dtype));
}

namespace {

// But for the address.
View layout_of(const TensorImpl& tensor) {
    View view;
    view.dtype = tensor.dtype;
    view.rank = tensor.shape.rank();
    for (int i = 0; i < view.rank; ++i) {
        view.size[i] = tensor.shape[i];
        view.stride[i] = tensor.strides[i];
    }
    return view;
}

}  // namespace

bool Tensor::is_contiguous() const {
    return layout_of(impl()).contiguous();
}

View Tensor::view() const {
    View view = layout_of(impl());
    view.data = raw();
    return view;
}

Tensor Tensor::window(std::int64_t offset, const Shape& shape) const {
    // The elements of a strided tensor are not side by side: a window would hold others, or these in another order.
    if (!is_contiguous()) fail("window: {} with strides {} is not dense; copy it first", str(), strides().str());
    const std::int64_t held = std::int64_t(storage()->bytes() / size_of(dtype()));
    const std::int64_t count = shape.numel();
    const bool inside = count <= held && offset >= -impl().offset && offset <= held - count - impl().offset;
    if (!inside) fail("window: {} elements at offset {} leave the memory of {}", shape.str(), offset, str());
    return as_strided(offset, shape, contiguous_strides(shape));
}

Tensor Tensor::as_strided(std::int64_t offset, const Shape& shape, const Shape& strides) const {
    auto view = std::make_shared<TensorImpl>();
    view->storage = impl().storage;
    view->offset = impl().offset + offset;
    view->shape = shape;
    view->strides = strides;
    view->dtype = impl().dtype;
    return Tensor(std::move(view));
}

Tensor Tensor::detach() const {
    return as_strided(0, shape(), strides());
}

Tensor Tensor::on_host() const {
    if (device().is_cpu()) return detach();
    const Tensor memory = empty({extent(shape(), strides())}, dtype());
    copy_to_host(device(), memory.raw(), raw(), memory.bytes());
    return memory.as_strided(0, shape(), strides());
}

double Tensor::item() const {
    if (numel() != 1) fail("item: a tensor of shape {} does not hold exactly one value", shape().str());
    return to_vector<double>()[0];
}

bool Tensor::requires_grad() const {
    return impl().requires_grad || impl().node != nullptr;
}

Tensor& Tensor::set_requires_grad(bool on) {
    if (on && !is_floating(dtype())) fail("only floating tensors can require gradients; this one is {}", str());
    check(impl().node == nullptr, "set_requires_grad: {} is the result of an operation, not a leaf", str());
    impl().requires_grad = on;
    return *this;
}

bool Tensor::is_leaf() const {
    return impl().node == nullptr;
}
Tensor Tensor::grad() const {
    return impl().grad_forgotten ? Tensor{} : impl().grad;
}
void Tensor::set_grad(Tensor grad) const {
    check(!grad || grad.shape() == shape(), "set_grad: {} is no gradient of {}", grad.str(), str());
    impl().grad = std::move(grad);
    impl().grad_forgotten = false;
}
void Tensor::forget_grad() const {
    impl().grad_forgotten = impl().grad.defined() && impl().grad.is_contiguous();
    if (impl().grad.defined() && !impl().grad_forgotten) fail("forget_grad: the gradient of {} is not dense", str());
}
bool Tensor::grad_forgotten() const {
    return impl().grad_forgotten;
}
Tensor Tensor::grad_to_overwrite() const {
    impl().grad_forgotten = false;
    return impl().grad;
}
const std::shared_ptr<Node>& Tensor::node() const {
    return impl().node;
}
void Tensor::set_node(std::shared_ptr<Node> node) const {
    impl().node = std::move(node);
}
std::weak_ptr<Node>& Tensor::accumulator() const {
    return impl().accumulator;
}
Tensor Tensor::shadow() const {
    return impl().shadow;
}
void Tensor::set_shadow(Tensor shadow) const {
    impl().shadow = std::move(shadow);
}

std::string Tensor::str() const {
    if (!defined()) return "undefined";
    return fmt::format("{}{} on {}", name_of(dtype()), shape().str(), device().str());
}

void Tensor::check_type(Dtype dtype) const {
    const bool bytes = dtype == Dtype::u8 && this->dtype() == Dtype::boolean;
    check(dtype == this->dtype() || bytes, "a {} tensor was read as {}", name_of(this->dtype()), name_of(dtype));
}

}  // namespace invar
