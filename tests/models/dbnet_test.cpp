// DBNet against PyTorch: the numbers are golden_vision.py's, in f64. Its loss has tests of its own, in tests/tasks.
#include "invar/models/dbnet.h"

#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/core/error.h"
#include "invar/io/safetensors.h"
#include "invar/train/weights.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"
#include "tests/models/golden_vision.h"

namespace invar {
namespace {

constexpr std::int64_t kHeight = 64, kWidth = 96;
const DataInfo kImages{{kHeight, kWidth, 3}, 1};

std::unique_ptr<Module> golden_model() {
    set_threads(1);  // small work: more threads only wait for each other on a busy machine
    auto model = make_dbnet({.layers = 18, .width = 8, .inner = 16}, kImages);
    fill_about_half(*model);
    return model;
}
Tensor images() {
    return formula_images(2, 0, kHeight, kWidth, 3);
}

void expect_sums(const Tensor& x, double norm, double weighted, double tolerance) {
    const Sums sums = sums_of(x);
    EXPECT_NEAR(sums.norm, norm, tolerance * norm);
    EXPECT_NEAR(sums.weighted, weighted, 4 * tolerance * norm);
}

TEST(DbNet, HasPyTorchsMaps) {
    const std::unique_ptr<Module> model = golden_model();
    const Tensors maps = (*model)(Tensors{images()});
    ASSERT_EQ(maps.size(), 2u);
    EXPECT_EQ(maps[0].shape(), (Shape{2, kHeight, kWidth}));
    EXPECT_EQ(maps[1].shape(), (Shape{2, kHeight, kWidth}));
    expect_sums(maps[0], 50.7612347, 0.638033572, 1e-5);
    expect_sums(maps[1], 96.6656425, -15.6976479, 1e-5);

    // The running statistics were moved by that one pass.
    model->eval();
    const NoGrad no_grad;
    const Tensors evaluated = (*model)(Tensors{images()});
    expect_sums(evaluated[0], 37.7090336, 6.59676845, 1e-5);
    expect_sums(evaluated[1], 104.677532, -45.5946249, 1e-5);
}

TEST(DbNet, GivesBothMapsSideBySideWhenCalledWithATensor) {
    const std::unique_ptr<Module> model = golden_model();
    model->eval();
    const NoGrad no_grad;
    const Tensors maps = (*model)(Tensors{images()});
    const Tensor both = (*model)(images());
    EXPECT_EQ(both.shape(), (Shape{2, kHeight, kWidth, 2}));
    for (int i = 0; i < 2; ++i)
        EXPECT_EQ(ops::slice(both, -1, i, i + 1).to_vector<float>(), maps[std::size_t(i)].to_vector<float>());
}

TEST(DbNet, RunsIn16BitsThroughout) {
    const std::unique_ptr<Module> model = golden_model();
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const Autocast cast(dtype);
        const Tensors maps = (*model)(Tensors{images()});
        EXPECT_EQ(maps[0].dtype(), dtype);
        EXPECT_EQ(maps[1].dtype(), dtype);
        expect_sums(maps[0], 50.7612347, 0.638033572, dtype == Dtype::f16 ? 1e-2 : 5e-2);
    }
}

TEST(DbNet, HasTheAuthorsNamesAndLayouts) {
    const auto model = make_dbnet({}, {{640, 640, 3}, 1});
    const StateDict state = model->state_dict();
    EXPECT_EQ(state.at("backbone.conv1.weight").shape(), (Shape{64, 3, 7, 7}));
    EXPECT_EQ(state.at("decoder.in5.weight").shape(), (Shape{256, 512, 1, 1}));
    EXPECT_EQ(state.at("decoder.in2.weight").shape(), (Shape{256, 64, 1, 1}));
    EXPECT_EQ(state.at("decoder.out5.0.weight").shape(), (Shape{64, 256, 3, 3}));
    EXPECT_EQ(state.at("decoder.out2.weight").shape(), (Shape{64, 256, 3, 3}));
    for (const std::string head : {"decoder.binarize.", "decoder.thresh."}) {
        EXPECT_EQ(state.at(head + "0.weight").shape(), (Shape{64, 256, 3, 3}));
        EXPECT_EQ(state.at(head + "1.running_mean").shape(), (Shape{64}));
        EXPECT_EQ(state.at(head + "3.weight").shape(), (Shape{64, 64, 2, 2}));
        EXPECT_EQ(state.at(head + "3.bias").shape(), (Shape{64}));
        EXPECT_EQ(state.at(head + "6.weight").shape(), (Shape{64, 1, 2, 2}));
        EXPECT_EQ(state.at(head + "6.bias").shape(), (Shape{1}));
    }
    // ResNet-18 without its classifier; the pyramid; two heads.
    constexpr std::int64_t kLateral = (64 + 128 + 256 + 512) * 256, kOut = 4 * 256 * 64 * 9;
    constexpr std::int64_t kHead = 256 * 64 * 9 + 2 * 64 + (64 * 64 * 4 + 64) + 2 * 64 + (64 * 4 + 1);
    EXPECT_EQ(model->parameter_count(), 11176512 + kLateral + kOut + 2 * kHead);
}

TEST(DbNet, ReadsTheAuthorsFiles) {
    const std::unique_ptr<Module> model = golden_model(), other = make_dbnet({.width = 8, .inner = 16}, kImages);
    TensorMap theirs;
    for (const auto& [name, value] : model->state_dict()) theirs["model.module." + name] = value;
    theirs["model.module.backbone.fc.weight"] = ops::zeros({1000, 64});
    theirs["model.module.backbone.smooth.weight"] = ops::zeros({8, 8, 1, 1});
    const Scratch folder;
    save_safetensors(folder / "weights.safetensors", theirs);
    load_weights(*other, folder / "weights.safetensors");
    const NoGrad no_grad;
    EXPECT_EQ((*other)(images()).to_vector<float>(), (*model)(images()).to_vector<float>());
    model->eval();
    EXPECT_EQ((*model->clone())(images()).to_vector<float>(), (*model)(images()).to_vector<float>());
}

// A residual network for classes, as torchvision names its parts.
TensorMap classifier() {
    TensorMap theirs;
    const auto model = make_resnet({.layers = 18, .width = 8}, {{kHeight, kWidth, 3}, 10});
    for (const auto& [name, value] : model->state_dict()) theirs[name] = value;
    return theirs;
}

TEST(DbNet, BeginsOnAResidualNetworksWeights) {
    const TensorMap theirs = classifier();
    const Scratch folder;
    save_safetensors(folder / "resnet.safetensors", theirs);
    auto model = make_dbnet({.layers = 18, .width = 8, .inner = 16}, kImages);
    const StateDict before = model->state_dict();
    const std::vector<std::string> fresh = {"decoder"};
    load_weights(*model, folder / "resnet.safetensors", &fresh);
    for (const auto& [name, value] : model->state_dict()) {
        const bool in_backbone = name.starts_with("backbone.");
        const Tensor& expected = in_backbone ? theirs.at(name.substr(9)) : before.at(name);
        EXPECT_EQ(value.to_vector<float>(), expected.to_vector<float>()) << name;
    }
    EXPECT_NE(before.at("backbone.layer1.0.conv1.weight").to_vector<float>(),
              theirs.at("layer1.0.conv1.weight").to_vector<float>());
}

TEST(DbNet, SaysWhatAResidualNetworksWeightsLack) {
    TensorMap theirs = classifier();
    const Scratch folder;
    const std::filesystem::path file = folder / "resnet.safetensors";
    const std::vector<std::string> none, fresh = {"decoder"}, misspelt = {"decodr"};
    auto model = make_dbnet({.layers = 18, .width = 8, .inner = 16}, kImages);
    save_safetensors(file, theirs);
    EXPECT_ERROR(load_weights(*model, file, &none), Error, "; init_fresh=[decoder] begins with fresh ones there");
    EXPECT_ERROR(load_weights(*model, file, &misspelt), Error, "init_fresh: the model has no 'decodr'");
    theirs.erase("layer2.0.conv1.weight");
    theirs["layer9.0.conv1.weight"] = ops::zeros({2});
    theirs["bn1.weight"] = ops::zeros({64});
    save_safetensors(file, theirs);
    EXPECT_ERROR(load_weights(*model, file, &fresh), Error,
                 "missing backbone.layer2.0.conv1.weight; unexpected \"layer9.0.conv1.weight\" of shape [2] (8 bytes); "
                 "bn1.weight is [64] and should be [8]");
}

TEST(DbNet, RecomputesToTheSameBits) {
    expect_recomputes(golden_model, [](Module& model) {
        const Tensors maps = model(Tensors{images()});
        return ops::mean(maps[0] * maps[0]) + ops::mean(maps[1] * maps[1]);
    });
    EXPECT_EQ(golden_model()->checkpoint_blocks().size(), 10u);
}

TEST(DbNet, StandsOnBottlenecksToo) {
    const auto model = make_dbnet({.layers = 50, .width = 4, .inner = 8}, kImages);
    EXPECT_EQ((*model)(Tensors{images()})[0].shape(), (Shape{2, kHeight, kWidth}));
    EXPECT_EQ(model->state_dict().at("decoder.in5.weight").shape(), (Shape{8, 128, 1, 1}));
}

TEST(DbNet, RefusesWhatDoesNotFit) {
    EXPECT_ERROR(make_dbnet({}, {{640, 600, 3}, 1}), UsageError, "multiples of 32, not 640x600");
    EXPECT_ERROR(make_dbnet({}, {{64}, 1}), UsageError, "model dbnet takes images");
    EXPECT_ERROR(make_dbnet({.inner = 6}, kImages), UsageError, "model.inner = 6");
    EXPECT_ERROR(make_dbnet({.layers = 19}, kImages), UsageError, "model.layers = 19");
    EXPECT_ERROR((*golden_model())(ops::zeros({1, 64, 65, 3})), UsageError, "multiples of 32");
}

}  // namespace
}  // namespace invar
