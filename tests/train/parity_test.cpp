// Twenty steps of transformers against PyTorch's in f64: weights and batches are made by the formulas of
// bench/torch_transformers.py, whose losses stand in torch_losses.inc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "invar/models/gpt.h"
#include "invar/models/llama.h"
#include "invar/models/models.h"
#include "invar/tasks/classification.h"
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
const std::vector<Reference>& references() {
    static const std::vector<Reference> all = {
#include "tests/train/torch_losses.inc"
    };
    return all;
}

// Behind each token comes, more often than not, the one that a rule names.
Batch token_batch(std::int64_t step) {
    constexpr std::int64_t kRows = 4, kLength = 64, kVocabulary = 64;
    std::vector<std::int64_t> x, y;
    for (std::int64_t r = step * kRows; r < (step + 1) * kRows; ++r) {
        std::int64_t token = hashed(r * 1000, 77) % kVocabulary;
        for (std::int64_t t = 1; t <= kLength; ++t) {
            const std::int64_t drawn = hashed(r * 1000 + t, 77);
            x.push_back(token);
            token = (drawn % 8 < 6 ? token * 5 + 3 : drawn / 8) % kVocabulary;
            y.push_back(token);
        }
    }
    return Batch({{"x", Tensor::from(x, {kRows, kLength})}, {"y", Tensor::from(y, {kRows, kLength})}}, kRows);
}

std::unique_ptr<Module> make(const std::string& model) {
    if (model == "gpt") return make_gpt({.layers = 6, .heads = 4, .width = 96, .vocabulary = 64, .length = 64});
    if (model == "llama")
        return make_llama({.layers = 4,
                           .heads = 6,
                           .kv_heads = 2,
                           .width = 96,
                           .hidden = 256,
                           .vocabulary = 64,
                           .length = 64,
                           .tied = true});
    return make_vit({.patch = 4, .layers = 6, .heads = 3, .width = 192}, {{32, 32, 3}, 10});
}

Tensor loss_of(Module& model, const Batch& batch) {
    const bool tokens = batch["x"].dtype() == Dtype::i64;
    return tokens ? model(batch["x"], batch["y"])[0] : cross_entropy_loss(model, batch);
}

// How far the losses of a run are from PyTorch's in f64.
double distance(const Reference& reference, const char* name) {
    set_threads(1);  // small work: more threads only wait for each other on a busy machine
    const Precision precision = Precision::parse(name);
    const std::unique_ptr<Module> model = make(reference.model);
    fill(*model, reference.seed);
    Optimizer optimizer(*model, {.kind = OptimizerSpec::Kind::adamw, .lr = 3e-4, .weight_decay = 0.01},
                        StoreOptions::for_precision(precision));
    ScalerOptions scaling;
    scaling.init_scale = 1024;
    scaling.spec.enabled = precision.needs_scaler();
    GradScaler scaler(scaling);
    double largest = 0;
    for (std::size_t step = 0; step < reference.losses.size(); ++step) {
        const Batch batch =
            reference.model == "vit" ? image_batch(std::int64_t(step), 2) : token_batch(std::int64_t(step));
        const Tensor loss = training_step(loss_of, *model, optimizer, scaler, precision, {ClipSpec::Kind::norm, 1.0f},
                                          std::vector<Batch>{batch});
        largest = std::max(largest, std::fabs(loss.item() - reference.losses[step]));
    }
    EXPECT_EQ(optimizer.state().taken, std::int64_t(reference.losses.size())) << "steps were skipped";
    return largest;
}

class Parity : public ::testing::TestWithParam<const char*> {
  protected:
    static std::vector<Reference> seeds() {
        std::vector<Reference> some;
        for (const Reference& reference : references())
            if (reference.model == GetParam()) some.push_back(reference);
        return some;
    }
};

TEST_P(Parity, Fp32IsAsCloseToF64AsPyTorchsOwn) {
    std::vector<double> ours, theirs;
    for (const Reference& reference : seeds()) {
        ours.push_back(distance(reference, "32-true"));
        theirs.push_back(reference.of_fp32);
    }
    ASSERT_EQ(ours.size(), 5u);
    std::ranges::sort(ours), std::ranges::sort(theirs);
    EXPECT_LE(ours[2], 3 * theirs[2]) << "median of the seeds";
    EXPECT_LE(ours[4], 3 * theirs[4]) << "worst of the seeds";
}

// A run in 16 bits rounds everywhere, but mostly at random: its losses stay within a few roundings of the format.
TEST_P(Parity, SixteenBitsStayWithinAFewRoundingsOfF64) {
    for (const auto& [precision, epsilon] : {std::pair("16-mixed", 0x1p-11), {"bf16-mixed", 0x1p-8}})
        for (const Reference& reference : seeds()) {
            if (reference.seed > 2) continue;  // the others say no more
            EXPECT_LE(distance(reference, precision), 8 * epsilon) << precision << ", seed " << reference.seed;
        }
}

INSTANTIATE_TEST_SUITE_P(Transformers, Parity, ::testing::Values("gpt", "llama", "vit"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace invar
