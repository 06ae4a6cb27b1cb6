#include "invar/ops/creation.h"

#include "invar/core/error.h"
#include "invar/core/promised.h"
#include "invar/kernels/kernels.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

constexpr std::int64_t kWorthDeferring = 1024;  // elements: a page

// Draws now, or when somebody first reads the result; the numbers are reserved now.
template <class Draw>
Tensor drawn(const char* op, const Shape& shape, Dtype dtype, Device device, Generator& generator, const Draw& draw) {
    if (!is_floating(dtype)) fail<UsageError>("{}: makes floating tensors, not {}", op, name_of(dtype));
    const RngState numbers = generator.reserve(counters_for(shape.numel()));
    const Fill fill = [=](const Tensor& result) { draw(kernels_for(result.device()), result.view(), numbers); };
    if (DeferDraws::active() && device == Device{} && shape.numel() >= kWorthDeferring)
        return deferred_tensor(shape, dtype, fill);
    Tensor result = Tensor::empty(shape, dtype, device);
    fill(result);
    return result;
}

}  // namespace

Tensor full(const Shape& shape, double value, Dtype dtype, Device device) {
    return filled(shape, dtype, device, value);
}
Tensor zeros(const Shape& shape, Dtype dtype, Device device) {
    return full(shape, 0, dtype, device);
}
Tensor ones(const Shape& shape, Dtype dtype, Device device) {
    return full(shape, 1, dtype, device);
}
Tensor full_like(const Tensor& other, double value) {
    return full(other.shape(), value, other.dtype(), other.device());
}
Tensor zeros_like(const Tensor& other) {
    return full_like(other, 0);
}
Tensor ones_like(const Tensor& other) {
    return full_like(other, 1);
}

Tensor arange(std::int64_t count, Dtype dtype, Device device) {
    if (count < 0) fail<UsageError>("arange: cannot count to {}", count);
    Tensor result = Tensor::empty({count}, dtype, device);
    kernels_for(device).arange(result.view(), 0);
    return result;
}

Tensor uniform(const Shape& shape, double low, double high, Dtype dtype, Device device) {
    return uniform(shape, low, high, dtype, device, default_generator());
}

Tensor uniform(const Shape& shape, double low, double high, Dtype dtype, Device device, Generator& generator) {
    return drawn("uniform", shape, dtype, device, generator, [=](Kernels& kernels, const View& out, RngState numbers) {
        kernels.uniform(out, low, high, numbers);
    });
}

Tensor normal(const Shape& shape, double mean, double deviation, Dtype dtype, Device device) {
    return normal(shape, mean, deviation, dtype, device, default_generator());
}

Tensor normal(const Shape& shape, double mean, double deviation, Dtype dtype, Device device, Generator& generator) {
    return drawn("normal", shape, dtype, device, generator, [=](Kernels& kernels, const View& out, RngState numbers) {
        kernels.normal(out, mean, deviation, numbers);
    });
}

}  // namespace invar::ops
