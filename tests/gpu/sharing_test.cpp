// Memory of a GPU that is shared with the caller or another library, and indexing there.
#include "invar/core/dlpack.h"
#include "invar/core/dlpack_abi.h"
#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"

namespace invar::testing {
namespace {

TEST_F(Gpu, SeesTheCallersMemoryAndGivesItBackWhenItIsDone) {
    const Tensor owner = ops::full({4, 4}, 2, Dtype::f32, Device::cuda());
    int deleted = 0;
    {
        const Tensor x =
            Tensor::from_blob(owner.raw(), {4, 2},
                              {.device = Device::cuda(), .strides = Shape{4, 1}, .deleter = [&](void*) { ++deleted; }});
        EXPECT_EQ(ops::sum(x).item(), 16);
        ops::copy_(x[1], ops::zeros({}));
    }
    EXPECT_EQ(deleted, 1);
    EXPECT_EQ(ops::sum(owner).item(), 28);
}

TEST_F(Gpu, GoesThereAndBackByDlpack) {
    const Tensor x = ops::to(ops::arange(6, Dtype::f32), Device::cuda());
    DLManagedTensor* const managed = to_dlpack(ops::reshape(x, {2, 3}));
    EXPECT_EQ(int(managed->dl_tensor.device.device_type), int(kDLCUDA));
    const Tensor back = from_dlpack(managed);
    EXPECT_EQ(back.raw(), x.raw());
    EXPECT_EQ((back[{1, 2}]).item(), 5);
}

TEST_F(Gpu, IndexesByMasksAndTensorsAsTheCpuDoes) {
    const Tensor x = ops::reshape(ops::arange(24, Dtype::f32), {2, 3, 4}), y = on_gpu(x);
    const Tensor ids = Tensor::from<std::int64_t>({2, -1, 0}, {3}), rows = Tensor::from<std::int64_t>({0, 1}, {2, 1});
    const Tensor mask = Tensor::from<std::uint8_t>({1, 0, 1, 0, 1, 0}, {2, 3}, Dtype::boolean);
    EXPECT_EQ((y[{Slice{}, on_gpu(ids)}]).to_vector<float>(), (x[{Slice{}, ids}]).to_vector<float>());
    EXPECT_EQ((y[{rows, Slice{}, ids}]).to_vector<float>(), (x[{rows, Slice{}, ids}]).to_vector<float>());
    EXPECT_EQ(y[on_gpu(mask)].to_vector<float>(), x[mask].to_vector<float>());
}

}  // namespace
}  // namespace invar::testing
