// DLPack both ways, with a producer and a consumer that another library might be.
#include "invar/core/dlpack.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "invar/core/dlpack_abi.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

// The published layout: what another library reads at which place.
static_assert(sizeof(DLDevice) == 8 && sizeof(DLDataType) == 4 && sizeof(DLTensor) == 48);
static_assert(offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20);
static_assert(offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32);
static_assert(offsetof(DLTensor, byte_offset) == 40);
static_assert(offsetof(DLManagedTensor, manager_ctx) == 48 && offsetof(DLManagedTensor, deleter) == 56);

// A library with memory of its own, which it counts the deletions of.
struct Producer {
    alignas(8) std::int64_t memory[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    std::int64_t shape[8] = {2, 3}, strides[8] = {1, 2};
    int deleted = 0;
    DLManagedTensor managed{{memory, {kDLCPU, 0}, 2, {kDLInt, 64, 1}, shape, nullptr, 0},
                            this,
                            [](DLManagedTensor* self) { ++static_cast<Producer*>(self->manager_ctx)->deleted; }};
};

TEST(FromDlpack, SeesTheProducersMemoryAndGivesItBackOnce) {
    Producer producer;
    {
        const Tensor x = from_dlpack(&producer.managed), row = x[0];
        EXPECT_EQ(x.raw(), producer.memory);
        EXPECT_EQ(x.str(), "i64[2, 3] on cpu");
        EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
        producer.memory[0] = 10;
        EXPECT_EQ(row.to_vector<std::int64_t>()[0], 10);
    }
    EXPECT_EQ(producer.deleted, 1);
}

TEST(FromDlpack, TakesStridesOffsetsPinnedMemoryAndAbsentDeleters) {
    Producer producer;
    producer.managed.dl_tensor.strides = producer.strides;
    producer.managed.dl_tensor.byte_offset = 8;
    producer.managed.dl_tensor.device.device_type = kDLCUDAHost;
    producer.managed.deleter = nullptr;
    const Tensor x = from_dlpack(&producer.managed);
    EXPECT_EQ(x.to_vector<std::int64_t>(), (std::vector<std::int64_t>{2, 4, 6, 3, 5, 7}));
    EXPECT_TRUE(x.device().is_cpu());
}

TEST(FromDlpack, SaysWhatItCannotTakeAndLeavesItToTheCaller) {
    Producer producer;
    const auto refused = [&](auto change, const char* says) {
        Producer other;
        change(other.managed.dl_tensor);
        EXPECT_ERROR(from_dlpack(&other.managed), Error, says);
        EXPECT_EQ(other.deleted, 0);
    };
    refused([](DLTensor& t) { t.dtype = {kDLInt, 16, 1}; }, "type code 0, 16 bits and 1 lanes");
    refused([](DLTensor& t) { t.dtype.lanes = 2; }, "2 lanes");
    refused([](DLTensor& t) { t.ndim = 7; }, "7 dimensions; a tensor has at most 6");
    refused([](DLTensor& t) { t.device = {kDLCUDA, 1}; }, "device 1 of type 2");
    refused([](DLTensor& t) { t.device.device_type = DLDeviceType(10); }, "device 0 of type 10");
    refused([](DLTensor& t) { t.byte_offset = 3; }, "no multiple of 8 bytes");
    refused([](DLTensor& t) { t.shape[0] = -1; }, "negative");
    refused([](DLTensor& t) { t.strides = t.shape, t.shape[0] = -2; }, "negative");
    EXPECT_ERROR(from_dlpack(nullptr), Error, "no tensor was given");
}

TEST(ToDlpack, DescribesEveryDtypeSoThatItComesBack) {
    for (const Dtype dtype : kAllDtypes) {
        const Tensor x = Tensor::from<float>({0, 1, 1, 0, 1, 1}, {2, 3}, dtype);
        DLManagedTensor* const managed = to_dlpack(ops::transpose(x, 0, 1));
        EXPECT_EQ(managed->dl_tensor.dtype.bits, 8 * size_of(dtype));
        EXPECT_EQ(managed->dl_tensor.ndim, 2);
        EXPECT_EQ(managed->dl_tensor.strides[1], 3);
        const Tensor back = from_dlpack(managed);
        EXPECT_EQ(back.raw(), x.raw());
        EXPECT_EQ(name_of(back.dtype()), name_of(dtype));
        EXPECT_EQ(back.to_vector<float>(), (std::vector<float>{0, 0, 1, 1, 1, 1})) << name_of(dtype);
    }
}

TEST(ToDlpack, KeepsTheMemoryUntilTheConsumerIsDone) {
    const std::int64_t before = memory_stats(Device::cpu()).live_total;
    Tensor x = Tensor::from<float>({1, 2, 3}, {3});
    DLManagedTensor* const managed = to_dlpack(x);
    x = {};
    EXPECT_EQ(memory_stats(Device::cpu()).live_total, before + 12);
    EXPECT_EQ(static_cast<const float*>(managed->dl_tensor.data)[2], 3);
    managed->deleter(managed);
    EXPECT_EQ(memory_stats(Device::cpu()).live_total, before);
}

TEST(ToDlpack, HandsOutNothingThatRequiresAGradient) {
    const Tensor x = ops::ones({2}).set_requires_grad();
    EXPECT_ERROR(to_dlpack(x), Error, "hand out detach()");
    EXPECT_ERROR(to_dlpack(x * 2.0), Error, "requires a gradient");
    DLManagedTensor* const managed = to_dlpack(x.detach());
    managed->deleter(managed);
}

}  // namespace
}  // namespace invar
