// Every precision on the GPU: what its operations are given is what it announces, and TF32 rounds as TF32 does.
#include "tests/train/deeds.h"

#include "invar/ops/ops.h"
#include "invar/tasks/classification.h"
#include "tests/gpu/fixture.h"
#include "tests/train/scratch_run.h"

namespace invar::testing {
namespace {

Config gpu_config(const ScratchFolder& scratch) {
    Config config = small_config(scratch.path());
    config.data.choose("synthetic",
                       SyntheticOptions{.size = 150, .height = 8, .width = 8, .channels = 1, .classes = 4});
    config.data.batch_size = 64;
    config.trainer.device = "cuda";
    return config;
}

TEST_F(Gpu, TheDeedsOfEveryPrecisionAreWhatItAnnounces) {
    expect_deeds(gpu_config(ScratchFolder()));
}

// 1 + 2^-12 has no place among TF32's ten digits, and FP32 holds it: no dtype tells the two apart, but this does.
struct Rounding : Module {
    Rounding() : w(add_parameter("w", ops::full({64, 64}, 1.0))) {}
    Tensor forward(const Tensor& x) override {
        product = ops::linear(x, w.value);
        return product;
    }
    Parameter& w;
    Tensor product;
};

TEST_F(Gpu, Tf32RoundsItsOperandsAndFp32DoesNot) {
    for (const auto& [name, expected] : {std::pair{"32-true", 64 * (1 + 0x1p-12)}, {"tf32", 64.0}}) {
        const Precision precision = Precision::parse(name);
        Rounding model;
        model.to(Device::cuda());
        Optimizer optimizer(model, OptimizerSpec{}, StoreOptions::for_precision(precision));
        ScalerOptions off;
        off.spec.enabled = false;
        GradScaler scaler(off, Device::cuda());
        const std::vector<Batch> group{Batch({{"x", ops::full({64, 64}, 1 + 0x1p-12, Dtype::f32, Device::cuda())},
                                              {"y", ops::zeros({64}, Dtype::i64, Device::cuda())}},
                                             64)};
        training_step(cross_entropy_loss, model, optimizer, scaler, precision, {}, group);
        EXPECT_EQ(model.product.to_vector<double>()[0], expected) << name;
    }
}

}  // namespace
}  // namespace invar::testing
