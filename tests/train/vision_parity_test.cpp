// Twenty steps of a residual network and of DBNet against PyTorch's in f64: weights and batches are made by the
// formulas of bench/torch_vision.py, whose losses stand in torch_vision_losses.inc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "invar/data/text_batch.h"
#include "invar/models/dbnet.h"
#include "invar/tasks/classification.h"
#include "invar/tasks/db_loss.h"
#include "invar/train/step.h"
#include "tests/train/made_by_hash.h"

namespace invar {
namespace {

struct Reference {
    std::string model;
    std::int64_t seed;
    double of_fp32;              // the largest distance of PyTorch's FP32 losses from ...
    std::vector<double> losses;  // ... its losses in f64
};
std::vector<Reference> references(const std::string& model) {
    std::vector<Reference> all = {
#include "tests/train/torch_vision_losses.inc"
    };
    std::erase_if(all, [&](const Reference& reference) { return reference.model != model; });
    return all;
}

// Bright rectangles in noise: shrunk by 3 pixels for the probability map, grown by 3 for the threshold's mask.
Batch rectangle_batch(std::int64_t step) {
    constexpr std::int64_t kRows = 4, kSide = 64;
    const Batch batch = make_text_batch(kRows, {kSide, kSide, 3});
    for (std::int64_t row = 0; row < kRows; ++row) {
        const std::int64_t r = step * kRows + row;
        const detect::LabelPlanes planes = label_planes(batch, row);
        float* image = batch["x"].data<float>() + row * kSide * kSide * 3;
        std::vector<double> pixels;
        for (std::int64_t i = 0; i < kSide * kSide * 3; ++i) pixels.push_back(even(r * 100000 + i, 81));
        for (std::int64_t i = 0; i < kSide * kSide; ++i)
            planes.probability[i] = 0, planes.probability_mask[i] = 1, planes.threshold[i] = 0.3f,
            planes.threshold_mask[i] = 0;
        for (std::int64_t n = 0; n < 3; ++n) {
            const std::int64_t drawn = hashed(r * 10 + n, 82);
            const std::int64_t top = drawn % (kSide - 16), left = drawn / 64 % (kSide - 24);
            for (std::int64_t i = 0; i < kSide * kSide; ++i) {
                const std::int64_t y = i / kSide, x = i % kSide;
                const std::int64_t inset = std::min({y - top, top + 11 - y, x - left, left + 19 - x});
                if (n == 2) {
                    if (inset >= 0) planes.probability_mask[i] = 0;
                    continue;
                }
                if (inset >= 0)
                    for (int c = 0; c < 3; ++c) pixels[std::size_t(i * 3 + c)] += 1;
                if (inset >= 3) planes.probability[i] = 1;
                if (inset < -3) continue;
                planes.threshold[i] = float(0.7 - 0.1 * double(std::min<std::int64_t>(std::abs(inset), 4)));
                planes.threshold_mask[i] = 1;
            }
        }
        std::ranges::copy(pixels, image);
    }
    return batch;
}

Tensor loss_of(Module& model, const Batch& batch) {
    if (batch.has("y")) return cross_entropy_loss(model, batch);
    const Tensors maps = model(Tensors{batch["x"]});
    return db_loss(maps[0], maps[1], batch).total;
}

// How far the losses of a run are from PyTorch's in f64.
double distance(const Reference& reference, const char* name) {
    set_threads(1);  // small work: more threads only wait for each other on a busy machine
    const Precision precision = Precision::parse(name);
    const bool text = reference.model == "dbnet";
    const std::unique_ptr<Module> model =
        text ? make_dbnet({.layers = 18, .width = 16, .inner = 64}, {{64, 64, 3}, 1})
             : make_resnet({.layers = 18, .stem = "cifar", .width = 16}, {{32, 32, 3}, 10});
    fill(*model, reference.seed);
    Optimizer optimizer(*model, {.kind = OptimizerSpec::Kind::sgd, .lr = 5e-4, .momentum = 0.9},
                        StoreOptions::for_precision(precision));
    ScalerOptions scaling;
    scaling.init_scale = 1024;
    scaling.spec.enabled = precision.needs_scaler();
    GradScaler scaler(scaling);
    double largest = 0;
    for (std::size_t step = 0; step < reference.losses.size(); ++step) {
        const Batch batch = text ? rectangle_batch(std::int64_t(step)) : image_batch(std::int64_t(step), 4);
        const Tensor loss = training_step(loss_of, *model, optimizer, scaler, precision, {ClipSpec::Kind::norm, 1.0f},
                                          std::vector<Batch>{batch});
        largest = std::max(largest, std::fabs(loss.item() - reference.losses[step]));
    }
    EXPECT_EQ(optimizer.state().taken, std::int64_t(reference.losses.size())) << "steps were skipped";
    return largest;
}

class VisionParity : public ::testing::TestWithParam<const char*> {};

TEST_P(VisionParity, Fp32IsAsCloseToF64AsPyTorchsOwn) {
    std::vector<double> ours, theirs;
    for (const Reference& reference : references(GetParam())) {
        ours.push_back(distance(reference, "32-true"));
        theirs.push_back(reference.of_fp32);
    }
    ASSERT_EQ(ours.size(), 5u);
    std::ranges::sort(ours), std::ranges::sort(theirs);
    EXPECT_LE(ours[2], 3 * theirs[2]) << "median of the seeds";
    EXPECT_LE(ours[4], 3 * theirs[4]) << "worst of the seeds";
}

// What a rounding moves grows from step to step, as ReLUs decide otherwise; in 16 bits by as much more as those are
// coarser.
TEST_P(VisionParity, SixteenBitsLearnTheSame) {
    for (const auto& [precision, epsilon] : {std::pair("16-mixed", 0x1p-11), {"bf16-mixed", 0x1p-8}}) {
        const Reference reference = references(GetParam()).front();
        EXPECT_LE(distance(reference, precision), 16 * epsilon) << precision;
    }
}

INSTANTIATE_TEST_SUITE_P(Vision, VisionParity, ::testing::Values("resnet", "dbnet"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace invar
