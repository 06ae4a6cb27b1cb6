#include "invar/core/dlpack.h"

#include <memory>
#include <span>

#include "invar/core/dlpack_abi.h"
#include "invar/core/error.h"

namespace invar {

namespace {

DLDataType type_of(Dtype dtype) {
    const auto bits = std::uint8_t(8 * size_of(dtype));
    switch (dtype) {
        case Dtype::f64:
        case Dtype::f32:
        case Dtype::f16:
            return {kDLFloat, bits, 1};
        case Dtype::bf16:
            return {kDLBfloat, bits, 1};
        case Dtype::f8e4m3:
            return {kDLFloat8_e4m3fn, bits, 1};
        case Dtype::f8e5m2:
            return {kDLFloat8_e5m2, bits, 1};
        case Dtype::i64:
        case Dtype::i32:
            return {kDLInt, bits, 1};
        case Dtype::u8:
            return {kDLUInt, bits, 1};
        case Dtype::boolean:
            break;
    }
    return {kDLBool, bits, 1};
}

Dtype dtype_from(DLDataType type) {
    for (const Dtype dtype : kAllDtypes) {
        const DLDataType ours = type_of(dtype);
        if (ours.code == type.code && ours.bits == type.bits && ours.lanes == type.lanes) return dtype;
    }
    fail("from_dlpack: elements of type code {}, {} bits and {} lanes have no dtype here; convert them first",
         type.code, type.bits, type.lanes);
}

Device device_from(DLDevice device) {
    // Pinned memory is the host's.
    if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost) return Device::cpu();
    if (device.device_type == kDLCUDA && device.device_id == 0) return Device::cuda();
    fail(
        "from_dlpack: the memory is on device {} of type {}; Invar takes the CPU's (type {}) and the first GPU's (type "
        "{})",
        device.device_id, int(device.device_type), int(kDLCPU), int(kDLCUDA));
}

// What a consumer holds on to.
struct Exported {
    Tensor tensor;
    Shape shape, strides;
    DLManagedTensor managed;
};

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& tensor) {
    check(!tensor.requires_grad(), "to_dlpack: {} requires a gradient; hand out detach()", tensor.str());
    const Device device = tensor.device();
    synchronize(device);
    auto exported = std::make_unique<Exported>(Exported{tensor, tensor.shape(), tensor.strides(), {}});
    DLTensor& out = exported->managed.dl_tensor;
    out.data = tensor.raw();
    out.device = {device.is_cpu() ? kDLCPU : kDLCUDA, device.index};
    out.ndim = tensor.rank();
    out.dtype = type_of(tensor.dtype());
    out.shape = const_cast<std::int64_t*>(exported->shape.begin());
    out.strides = const_cast<std::int64_t*>(exported->strides.begin());
    out.byte_offset = 0;
    exported->managed.manager_ctx = exported.get();
    exported->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Exported*>(self->manager_ctx); };
    return &exported.release()->managed;
}

Tensor from_dlpack(DLManagedTensor* managed) {
    check(managed != nullptr, "from_dlpack: no tensor was given");
    const DLTensor& in = managed->dl_tensor;
    check(in.ndim >= 0 && in.ndim <= kMaxRank, "from_dlpack: {} dimensions; a tensor has at most {}", in.ndim,
          kMaxRank);
    BlobOptions options;
    options.dtype = dtype_from(in.dtype);
    options.device = device_from(in.device);
    const auto dimensions = std::size_t(in.ndim);
    if (in.strides != nullptr) options.strides = Shape(std::span<const std::int64_t>(in.strides, dimensions));
    options.deleter = [managed](void*) {
        if (managed->deleter != nullptr) managed->deleter(managed);
    };
    void* const data = in.data == nullptr ? nullptr : static_cast<char*>(in.data) + in.byte_offset;
    return Tensor::from_blob(data, Shape(std::span<const std::int64_t>(in.shape, dimensions)), options);
}

}  // namespace invar
