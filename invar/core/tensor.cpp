#include "invar/core/tensor.h"

#include <cstring>

#include "invar/core/error.h"

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
    Tensor shadow;
};

Tensor Tensor::empty(const Shape& shape, Dtype dtype, Device device) {
    const std::size_t bytes = std::size_t(shape.numel()) * size_of(dtype);
    auto impl = std::make_shared<TensorImpl>();
    impl->storage = std::make_shared<Storage>(bytes, device, PurposeScope::current());
    impl->shape = shape;
    impl->strides = contiguous_strides(shape);
    impl->dtype = dtype;
    return Tensor(std::move(impl));
}

namespace {

template <class To, class From>
To convert_value(From value) {
    if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) return static_cast<To>(value);
    else return static_cast<To>(static_cast<double>(value));
}

// Calls f(linear index, element) over a host tensor in row-major order.
template <class T, class F>
void for_each_element(const Tensor& tensor, F&& f) {
    const Shape& shape = tensor.shape();
    const Shape& strides = tensor.strides();
    T* base = static_cast<T*>(tensor.raw());
    const std::int64_t count = shape.numel();
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
    check(std::int64_t(values.size()) == shape.numel(), "Tensor::from: {} values for shape {}", values.size(), shape.str());
    Tensor result = empty(shape, dtype);
    dispatch(dtype, [&](auto tag) {
        using To = typename decltype(tag)::type;
        To* out = static_cast<To*>(result.raw());
        for (std::size_t i = 0; i < values.size(); ++i) out[i] = convert_value<To>(values[i]);
    });
    return result;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
    check(device().is_cpu(), "to_vector: the tensor {} is not on the CPU; copy it there first", str());
    std::vector<T> values(static_cast<std::size_t>(numel()));
    dispatch(dtype(), [&](auto tag) {
        using From = typename decltype(tag)::type;
        for_each_element<From>(*this, [&](std::int64_t i, From value) { values[std::size_t(i)] = convert_value<T>(value); });
    });
    return values;
}

#define INVAR_HOST_VALUES(T)                                                       \
    template Tensor Tensor::from<T>(const std::vector<T>&, const Shape&, Dtype); \
    template std::vector<T> Tensor::to_vector<T>() const;
INVAR_HOST_VALUES(double)
INVAR_HOST_VALUES(float)
INVAR_HOST_VALUES(std::int64_t)
INVAR_HOST_VALUES(std::int32_t)
INVAR_HOST_VALUES(std::uint8_t)
#undef INVAR_HOST_VALUES

Tensor Tensor::scalar(double value, Dtype dtype) { return from(std::vector<double>{value}, {}, dtype); }

TensorImpl& Tensor::impl() const {
    check(impl_ != nullptr, "an undefined tensor was used");
    return *impl_;
}

const Shape& Tensor::shape() const { return impl().shape; }
const Shape& Tensor::strides() const { return impl().strides; }
Dtype Tensor::dtype() const { return impl().dtype; }
Device Tensor::device() const { return impl().storage->device(); }
const std::shared_ptr<Storage>& Tensor::storage() const { return impl().storage; }
std::int64_t Tensor::offset() const { return impl().offset; }
std::uint64_t Tensor::version() const { return impl().storage->version(); }
void Tensor::bump_version() const { impl().storage->bump_version(); }

void* Tensor::raw() const {
    return static_cast<char*>(impl().storage->data()) + impl().offset * std::int64_t(size_of(impl().dtype));
}

bool Tensor::is_contiguous() const { return view().contiguous(); }

View Tensor::view() const {
    View view;
    view.data = raw();
    view.dtype = dtype();
    view.rank = rank();
    for (int i = 0; i < view.rank; ++i) {
        view.size[i] = shape()[i];
        view.stride[i] = strides()[i];
    }
    return view;
}

Tensor Tensor::window(std::int64_t offset, const Shape& shape) const { return as_strided(offset, shape, contiguous_strides(shape)); }

Tensor Tensor::as_strided(std::int64_t offset, const Shape& shape, const Shape& strides) const {
    auto view = std::make_shared<TensorImpl>();
    view->storage = impl().storage;
    view->offset = impl().offset + offset;
    view->shape = shape;
    view->strides = strides;
    view->dtype = impl().dtype;
    return Tensor(std::move(view));
}

Tensor Tensor::detach() const { return as_strided(0, shape(), strides()); }

double Tensor::item() const {
    check(numel() == 1, "item: a tensor of shape {} does not hold exactly one value", shape().str());
    return to_vector<double>()[0];
}

bool Tensor::requires_grad() const { return impl().requires_grad || impl().node != nullptr; }

Tensor& Tensor::set_requires_grad(bool on) {
    check(!on || is_floating(dtype()), "only floating tensors can require gradients; this one is {}", str());
    check(impl().node == nullptr, "set_requires_grad: {} is the result of an operation, not a leaf", str());
    impl().requires_grad = on;
    return *this;
}

bool Tensor::is_leaf() const { return impl().node == nullptr; }
Tensor Tensor::grad() const { return impl().grad; }
void Tensor::set_grad(Tensor grad) const { impl().grad = std::move(grad); }
const std::shared_ptr<Node>& Tensor::node() const { return impl().node; }
void Tensor::set_node(std::shared_ptr<Node> node) const { impl().node = std::move(node); }
std::weak_ptr<Node>& Tensor::accumulator() const { return impl().accumulator; }
Tensor Tensor::shadow() const { return impl().shadow; }
void Tensor::set_shadow(Tensor shadow) const { impl().shadow = std::move(shadow); }

std::string Tensor::str() const {
    if (!defined()) return "undefined";
    return fmt::format("{}{} on {}", name_of(dtype()), shape().str(), device().str());
}

void Tensor::check_type(Dtype dtype) const {
    const bool bytes = dtype == Dtype::u8 && this->dtype() == Dtype::boolean;
    check(dtype == this->dtype() || bytes, "a {} tensor was read as {}", name_of(this->dtype()), name_of(dtype));
}

}  // namespace invar
