// Steps of a residual network and of DBNet: recorded as a whole, to the bit of the step itself, and near the CPU's.
#include <cmath>

#include "invar/models/dbnet.h"
#include "invar/ops/ops.h"
#include "invar/tasks/classification.h"
#include "invar/tasks/db_loss.h"
#include "invar/train/recorded_step.h"
#include "invar/train/step.h"
#include "tests/gpu/fixture.h"
#include "tests/tasks/rectangles.h"
#include "tests/train/made_by_hash.h"

namespace invar::testing {
namespace {

constexpr int kSteps = 6;

struct Outcome {
    std::vector<double> losses;
    std::vector<std::vector<float>> state;  // weights and running statistics
    std::int64_t parts = 0;                 // of the last step's recording
    std::string why_not;
};

Tensor loss_of(Module& model, const Batch& batch) {
    if (batch.has("y")) return cross_entropy_loss(model, batch);
    const Tensors maps = model(Tensors{batch["x"]});
    return db_loss(maps[0], maps[1], batch).total;
}

Outcome train(bool text, const char* name, Device device, bool record) {
    const Precision precision = Precision::parse(name);
    const std::unique_ptr<Module> model = text ? make_dbnet({.width = 16, .inner = 64}, {{64, 64, 3}, 1})
                                               : make_resnet({.stem = "cifar", .width = 16}, {{32, 32, 3}, 10});
    fill(*model, 1);
    model->to(device);
    Optimizer optimizer(*model, {.kind = OptimizerSpec::Kind::sgd, .lr = 5e-4, .momentum = 0.9},
                        StoreOptions::for_precision(precision));
    ScalerOptions scaling;
    scaling.init_scale = 1024;
    scaling.spec.enabled = precision.needs_scaler();
    GradScaler scaler(scaling, device);
    RecordedStep step(
        device,
        [&](std::span<const Batch> group) {
            return training_step(loss_of, *model, optimizer, scaler, precision, {ClipSpec::Kind::norm, 1.0f}, group);
        },
        {.record = record});
    const Rectangles rectangles({.size = 4 * kSteps}, Split::train, 1);
    Outcome outcome;
    for (std::int64_t i = 0; i < kSteps; ++i) {
        const std::vector<std::int64_t> indices = {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
        const Batch batch = text ? rectangles.read(indices) : image_batch(i, 4);
        outcome.losses.push_back(step(batch.map([&](const Tensor& x) { return ops::to(x, device); })).item());
    }
    for (const auto& [path, value] : model->state_dict()) outcome.state.push_back(value.to_vector<float>());
    outcome.parts = step.parts(), outcome.why_not = step.why_not();
    return outcome;
}

TEST_F(Gpu, VisionModelsAreRecordedToTheBit) {
    for (const bool text : {false, true})
        for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"}) {
            const std::string what = std::string(text ? "dbnet " : "resnet ") + precision;
            const Outcome plain = train(text, precision, Device::cuda(), false),
                          recorded = train(text, precision, Device::cuda(), true);
            EXPECT_EQ(recorded.losses, plain.losses) << what;
            EXPECT_TRUE(recorded.state == plain.state) << what << ": other weights or statistics";
            EXPECT_EQ(recorded.why_not, "") << what;
            EXPECT_GT(recorded.parts, 0) << what;
        }
}

TEST_F(Gpu, VisionModelsHaveTheLossesOfTheCpu) {
    for (const bool text : {false, true}) {
        const Outcome here = train(text, "32-true", Device::cuda(), false),
                      there = train(text, "32-true", Device{}, false);
        for (std::size_t i = 0; i < kSteps; ++i)
            EXPECT_NEAR(here.losses[i], there.losses[i], 1e-3 * there.losses[i]) << (text ? "dbnet" : "resnet") << i;
    }
}

}  // namespace
}  // namespace invar::testing
