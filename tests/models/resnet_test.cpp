// Residual networks against PyTorch: the numbers are golden_vision.py's, in f64.
#include "invar/models/resnet.h"

#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/config/part.h"
#include "invar/core/error.h"
#include "invar/io/safetensors.h"
#include "invar/models/registry.h"
#include "invar/train/weights.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"
#include "tests/models/golden_vision.h"

namespace invar {
namespace {

struct Golden {
    ResNetOptions options;
    std::int64_t height, width;
    double loss;
    std::vector<double> logits, in_evaluation;  // of the last image
    double all;
    std::vector<GoldenGradient> gradients;
};

std::vector<Golden> goldens() {
    return {
        {{.layers = 18, .stem = "imagenet", .width = 8},
         48,
         40,
         3.17966705653,
         {0.199853137, -1.00900827, -0.449017072, -0.286418923, -0.571003268, 0.851308277, 0.999955059, 3.01766065,
          0.911684394, 0.0516360356},
         {0.709881218, -0.906369071, -0.418834092, -0.179727533, 0.185167975, 1.21494048, 1.26488905, 3.40590306,
          0.754808439, -0.0237315325},
         11.6302136,
         {{"conv1.weight", 2.71233848, -4.71676554e-05},
          {"bn1.weight", 0.191248217, -0.0434546636},
          {"layer1.0.conv1.weight", 0.8710086, 0.155018255},
          {"layer2.0.downsample.0.weight", 0.401873993, -0.102416435},
          {"layer2.0.downsample.1.bias", 0.0631285567, 0.0807646558},
          {"layer4.1.conv2.weight", 1.59753775, -0.366218689},
          {"layer4.1.bn2.weight", 0.0707185927, 0.0408342838},
          {"fc.weight", 9.77963779, -14.1574388},
          {"fc.bias", 0.785949151, -0.364940009}}},
        {{.layers = 18, .stem = "cifar", .width = 8},
         16,
         12,
         3.28888529874,
         {0.58994383, -0.986607242, -0.409316894, -0.260049, -0.306862982, 0.737178734, 1.07697195, 3.085814,
          0.953647857, 0.00580797647},
         {0.758626394, -0.958952346, -0.417293606, -0.209861742, 0.150893118, 1.22107001, 1.23644057, 3.39475075,
          0.744334655, -0.0218687111},
         11.1968475,
         {{"conv1.weight", 0.792215092, -2.57958222e-06},
          {"bn1.weight", 0.151875491, -0.0516992684},
          {"layer1.0.conv1.weight", 0.825761542, 0.136146665},
          {"layer2.0.downsample.0.weight", 0.341527219, 0.0234101819},
          {"layer2.0.downsample.1.bias", 0.0627063311, 0.0164265824},
          {"layer4.1.conv2.weight", 1.74383, -0.131561229},
          {"layer4.1.bn2.weight", 0.0962122689, 0.0631970423},
          {"fc.weight", 9.68386782, -14.6975012},
          {"fc.bias", 0.777355931, -0.355880005}}},
        {{.layers = 50, .stem = "imagenet", .width = 8},
         48,
         40,
         3.8910042573,
         {3.24659468, 3.25862538, -1.28268091, -0.118595741, 1.7533565, 0.347898989, -1.42946182, 1.17456741,
          -1.44822549, -0.31353484},
         {3.62730569, 4.52527466, 0.212428881, -0.0447225863, 0.658106585, -0.123512118, -0.667703283, 0.985319912,
          -2.20916317, -1.25286667},
         25.4895327,
         {{"conv1.weight", 6.85847607, -7.5677396e-06},
          {"bn1.weight", 0.429818421, -0.549104021},
          {"layer1.0.conv1.weight", 0.669100523, -0.0349517031},
          {"layer2.0.downsample.0.weight", 1.13547019, -0.82136595},
          {"layer2.0.downsample.1.bias", 0.0775557921, -0.00124823709},
          {"layer4.1.conv3.weight", 0.89685429, 0.206141405},
          {"layer4.1.bn3.weight", 0.136559363, 0.0596901498},
          {"fc.weight", 21.0272658, -4.63872782},
          {"fc.bias", 0.642476864, 0.625748033}}},
    };
}

std::unique_ptr<Module> golden_model(const Golden& golden) {
    set_threads(1);  // small work: more threads only wait for each other on a busy machine
    auto model = make_resnet(golden.options, {{golden.height, golden.width, 3}, 10});
    fill_about_half(*model);
    return model;
}
Tensor images_of(const Golden& golden) {
    return formula_images(4, 0, golden.height, golden.width, 3);
}
Tensor loss_of(Module& model, const Golden& golden) {
    return ops::cross_entropy(model(images_of(golden)), formula_labels(4, 0));
}

TEST(ResNet, HasPyTorchsLossGradientsAndLogits) {
    for (const Golden& golden : goldens()) {
        const std::unique_ptr<Module> model = golden_model(golden);
        const Tensor logits = (*model)(images_of(golden));
        const Tensor loss = ops::cross_entropy(logits, formula_labels(4, 0));
        EXPECT_NEAR(loss.item(), golden.loss, 2e-5);
        backward(loss);
        expect_gradients(*model, golden.all, golden.gradients, 1e-4);
        const std::vector<double> ours = logits.to_vector<double>();
        for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(ours[30 + i], golden.logits[i], 1e-4) << i;

        // The running statistics were moved by that one pass.
        const NoGrad no_grad;
        model->eval();
        const std::vector<double> evaluated = (*model)(images_of(golden)).to_vector<double>();
        for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(evaluated[30 + i], golden.in_evaluation[i], 1e-4) << i;
    }
}

TEST(ResNet, HasThatLossIn16BitsToo) {
    const Golden golden = goldens()[0];
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const std::unique_ptr<Module> model = golden_model(golden);
        const Autocast cast(dtype);
        EXPECT_NEAR(loss_of(*model, golden).item(), golden.loss, dtype == Dtype::f16 ? 8e-3 : 6e-2);
    }
}

TEST(ResNet, HasTorchvisionsParameters) {
    for (const auto& [depth, count] : {std::pair<std::int64_t, std::int64_t>{18, 11689512},
                                       {34, 21797672},
                                       {50, 25557032},
                                       {101, 44549160},
                                       {152, 60192808}})
        EXPECT_EQ(make_resnet({.layers = depth}, {{224, 224, 3}, 1000})->parameter_count(), count);
}

TEST(ResNet, HasTorchvisionsNamesAndLayouts) {
    const StateDict small = make_resnet({.layers = 18}, {{224, 224, 3}, 1000})->state_dict();
    EXPECT_EQ(small.size(), 122u);
    EXPECT_EQ(small.at("conv1.weight").shape(), (Shape{64, 3, 7, 7}));
    EXPECT_EQ(small.at("layer1.0.conv1.weight").shape(), (Shape{64, 64, 3, 3}));
    EXPECT_EQ(small.at("layer2.0.downsample.0.weight").shape(), (Shape{128, 64, 1, 1}));
    EXPECT_EQ(small.at("layer2.0.downsample.1.num_batches_tracked").dtype(), Dtype::i64);
    EXPECT_EQ(small.at("layer4.1.bn2.running_var").shape(), (Shape{512}));
    EXPECT_EQ(small.at("fc.weight").shape(), (Shape{1000, 512}));
    EXPECT_FALSE(small.contains("layer1.0.downsample.0.weight"));

    const StateDict large = make_resnet({.layers = 50}, {{224, 224, 3}, 1000})->state_dict();
    EXPECT_EQ(large.size(), 320u);
    EXPECT_EQ(large.at("layer1.0.downsample.0.weight").shape(), (Shape{256, 64, 1, 1}));
    EXPECT_EQ(large.at("layer2.0.conv2.weight").shape(), (Shape{128, 128, 3, 3}));
    EXPECT_EQ(large.at("layer4.2.conv3.weight").shape(), (Shape{2048, 512, 1, 1}));
    EXPECT_EQ(large.at("fc.weight").shape(), (Shape{1000, 2048}));
}

TEST(ResNet, ReadsAndWritesFilesAsTheyAre) {
    const Golden golden = goldens()[0];
    const std::unique_ptr<Module> model = golden_model(golden), other = golden_model(golden);
    (*model)(images_of(golden));  // statistics of its own
    const Scratch folder;
    save_safetensors(folder / "weights.safetensors", model->state_dict());
    load_weights(*other, folder / "weights.safetensors");
    model->eval(), other->eval();
    EXPECT_EQ((*other)(images_of(golden)).to_vector<float>(), (*model)(images_of(golden)).to_vector<float>());
    EXPECT_EQ(other->state_dict().at("bn1.num_batches_tracked").item(), 1);
    EXPECT_EQ((*model->clone())(images_of(golden)).to_vector<float>(), (*model)(images_of(golden)).to_vector<float>());
}

TEST(ResNet, GivesTheFourStages) {
    for (const auto& [depth, growth] : {std::pair<std::int64_t, std::int64_t>{18, 1}, {50, 4}}) {
        ResNetBackbone backbone({.layers = depth, .width = 8}, 3);
        const Tensors stages = backbone(Tensors{ops::ones({2, 64, 96, 3})});
        ASSERT_EQ(stages.size(), 4u);
        for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(stages[std::size_t(i)].shape(), (Shape{2, 16 >> i, 24 >> i, (8 << i) * growth}));
            EXPECT_EQ(backbone.stage_channels(i), (8 << i) * growth);
        }
    }
}

TEST(ResNet, BeginsAsHeEtAlDrawIt) {
    default_generator().set_state({5, 0});
    const auto model = make_resnet({.layers = 18, .zero_init_last_gamma = true}, {{32, 32, 3}, 10});
    const StateDict state = model->state_dict();
    const auto deviation = [&](const char* name) {
        return sums_of(state.at(name)).norm / std::sqrt(double(state.at(name).numel()));
    };
    EXPECT_NEAR(deviation("layer3.0.conv1.weight"), std::sqrt(2.0 / (256 * 9)), 1e-3);
    EXPECT_NEAR(deviation("layer3.0.downsample.0.weight"), std::sqrt(2.0 / 256), 1e-3);
    EXPECT_EQ(deviation("layer2.1.bn2.weight"), 0);
    EXPECT_EQ(deviation("layer2.1.bn1.weight"), 1);
    EXPECT_EQ(deviation("layer2.0.downsample.1.weight"), 1);
}

TEST(ResNet, RecomputesToTheSameBits) {
    for (const Golden& golden : goldens())
        expect_recomputes([&] { return golden_model(golden); }, [&](Module& m) { return loss_of(m, golden); });
    EXPECT_EQ(golden_model(goldens()[0])->checkpoint_blocks().size(), 8u);
    EXPECT_EQ(golden_model(goldens()[2])->checkpoint_blocks().size(), 16u);
}

TEST(ResNet, DropsOutWhileTrainingAlone) {
    const auto model = make_resnet({.width = 8, .dropout = 0.5}, {{32, 32, 3}, 10});
    const Tensor x = formula_images(4, 0, 32, 32, 3);
    EXPECT_NE((*model)(x).to_vector<float>(), (*model)(x).to_vector<float>());
    model->eval();
    EXPECT_EQ((*model)(x).to_vector<float>(), (*model)(x).to_vector<float>());
}

TEST(ResNet, RefusesWhatDoesNotFit) {
    const DataInfo images{{32, 32, 3}, 10};
    EXPECT_ERROR(make_resnet({.layers = 20}, images), UsageError, "model.layers = 20");
    EXPECT_ERROR(make_resnet({.stem = "mnist"}, images), UsageError, "neither imagenet nor cifar");
    EXPECT_ERROR(make_resnet({.width = 0}, images), UsageError, "model.width = 0");
    EXPECT_ERROR(make_resnet({}, {{8}, 10}), UsageError, "model resnet takes images");
    EXPECT_ERROR((*make_resnet({.width = 4}, images))(ops::zeros({1, 32, 32, 1})), UsageError, "[n, height, width, 3]");
    EXPECT_ERROR(Part("model", "resnet").set("layers", "19"), UsageError, "18, 34, 50, 101 or 152");
}

}  // namespace
}  // namespace invar
