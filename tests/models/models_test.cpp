#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/models/formula.h"
#include "tests/models/image_model.h"

namespace invar {
namespace {

constexpr double kLossScale = 1024;

struct Gradient {
    const char* name;
    double norm, weighted;  // over the file's layout: a permutation shows in the second
};

struct Golden {
    ImageModel options;
    std::vector<float> logits;
    std::vector<Gradient> gradients, in_f16, in_bf16;
};

// Made by golden.py with PyTorch 1.13, in FP32; the 16-bit gradients by rounding every operand and result there. (They
// are further from FP32's than the format's rounding alone: a unit of fc1 lies so close to 0 that it changes its side.)
Golden convnet_golden() {
    return {{.name = "convnet", .height = 10, .width = 12, .channels = 2, .dropout = 0},
            {0.32836011f,  0.045232959f,  -0.19511485f,  -0.18042371f,  -0.11399102f, 0.28825435f,
             -0.31990191f, 0.062681407f,  -0.026981793f, -0.014461614f, 0.31447166f,  0.066547528f,
             -0.16965076f, -0.097588316f, -0.067852624f, 0.32971087f,   -0.30869594f, 0.1284124f,
             0.032421447f, -0.020402165f, 0.33658028f,   0.042779416f,  -0.19596833f, -0.071363218f,
             -0.1848489f,  0.26248163f,   -0.2812219f,   0.16406858f,   0.030969866f, -0.12192103f},
            {{"conv1.weight", 0.26567893, 0.34508916},
             {"conv1.bias", 0.097799354, -0.022873276},
             {"conv2.weight", 1.096307, -1.2517122},
             {"conv2.bias", 0.19300642, -0.08255043},
             {"fc1.weight", 2.0818612, -2.1183792},
             {"fc1.bias", 0.27603281, -0.92033108},
             {"fc2.weight", 1.0245352, 0.72956816},
             {"fc2.bias", 0.49029224, 0.067789142}},
            {{"conv1.weight", 0.26441258, 0.34192654},
             {"conv1.bias", 0.098443512, -0.024841524},
             {"conv2.weight", 1.0869684, -1.2446695},
             {"conv2.bias", 0.19006293, -0.079378388},
             {"fc1.weight", 2.0724117, -2.1236498},
             {"fc1.bias", 0.27457317, -0.90913983},
             {"fc2.weight", 1.0243126, 0.72918451},
             {"fc2.bias", 0.49021966, 0.067837463}},
            {{"conv1.weight", 0.2636467, 0.34636925},
             {"conv1.bias", 0.098947894, -0.024376625},
             {"conv2.weight", 1.0858939, -1.2147906},
             {"conv2.bias", 0.19033284, -0.075071031},
             {"fc1.weight", 2.0729081, -2.1201586},
             {"fc1.bias", 0.27457398, -0.90785598},
             {"fc2.weight", 1.0245297, 0.73035151},
             {"fc2.bias", 0.49037608, 0.067502722}}};
}

Golden mlp_golden() {
    return {{.name = "mlp", .height = 5, .width = 4, .channels = 3, .dropout = 0, .hidden = {48}},
            {0.63596219f,  0.013122089f,  -0.16936468f,  0.0097829401f, 0.21108997f,    0.19421038f,
             0.018862247f, 0.62235641f,   -0.13476424f,  0.42245063f,   0.44158143f,    0.03447976f,
             0.083780423f, -0.070904836f, -0.20170565f,  0.51887321f,   -0.0002880618f, 0.40469462f,
             0.27494335f,  0.16290578f,   -0.13962087f,  -0.2606875f,   -0.24213658f,   0.12706943f,
             -0.11997548f, -0.12581816f,  -0.070124887f, 0.46278268f,   -0.025825731f,  0.4362326f},
            {{"1.weight", 1.4059054, 0.34293609},
             {"1.bias", 0.29971765, 0.30121245},
             {"3.weight", 1.2981504, -0.46191779},
             {"3.bias", 0.49092508, -0.012901626}},
            {{"1.weight", 1.4060489, 0.34260037},
             {"1.bias", 0.29975414, 0.30115418},
             {"3.weight", 1.298205, -0.46117978},
             {"3.bias", 0.49096655, -0.012825797}},
            {{"1.weight", 1.407103, 0.34414711},
             {"1.bias", 0.30004656, 0.30143268},
             {"3.weight", 1.2998212, -0.46278396},
             {"3.bias", 0.49126919, -0.013926888}}};
}

// `epsilon` is the compute format's. Logits have gone through four roundings; gradients are compared with ones that
// were rounded in the same places, where only a tie may fall the other way.
void expect_golden(const Golden& golden, const std::vector<Gradient>& gradients, const char* precision,
                   double epsilon) {
    const ImageModel& o = golden.options;
    const std::unique_ptr<Module> model = make_image_model(o);
    fill_by_formula(*model);
    Tensor logits, loss;
    {
        const Autocast cast(Precision::parse(precision));
        logits = (*model)(formula_images(3, 0, o.height, o.width, o.channels));
        loss = ops::cross_entropy(logits, formula_labels(3, 0));
    }
    backward(loss * kLossScale);  // as a scaler does: small gradients are subnormal in FP16
    ASSERT_EQ(logits.shape(), (Shape{3, 10}));
    const std::vector<float> ours = logits.to_vector<float>();
    for (std::size_t i = 0; i < ours.size(); ++i)
        EXPECT_NEAR(ours[i], golden.logits[i], 8 * epsilon) << precision << " logit " << i;
    std::size_t next = 0;
    for (const Parameter* parameter : model->parameters()) {
        const Gradient& expected = gradients.at(next++);
        ASSERT_EQ(parameter->name, expected.name);
        const Parameter gradient{parameter->name, parameter->value.grad(), parameter->layout};
        double squares = 0, weighted = 0;
        std::int64_t i = 0;
        for (const double g : gradient.to_file().to_vector<float>()) squares += g * g, weighted += g * formula(i++, 0);
        squares /= kLossScale * kLossScale, weighted /= kLossScale;
        EXPECT_NEAR(std::sqrt(squares), expected.norm, epsilon * expected.norm) << precision << " " << expected.name;
        EXPECT_NEAR(weighted, expected.weighted, 2 * epsilon * expected.norm) << precision << " " << expected.name;
    }
}

// FP32 sums of a thousand terms, in another order: some units of 2^-24.
constexpr double kFp32 = 32 * 0x1p-24, kFp16 = 0x1p-11, kBf16 = 0x1p-8;

TEST(ConvNet, GivesPyTorchsLogitsAndGradientsFromPyTorchsFiles) {
    expect_golden(convnet_golden(), convnet_golden().gradients, "32-true", kFp32);
}
TEST(Mlp, GivesPyTorchsLogitsAndGradientsFromPyTorchsFiles) {
    expect_golden(mlp_golden(), mlp_golden().gradients, "32-true", kFp32);
}
TEST(ConvNet, RoundsWhereSixteenBitsRoundAndNowhereElse) {
    expect_golden(convnet_golden(), convnet_golden().in_f16, "16-mixed", kFp16);
    expect_golden(convnet_golden(), convnet_golden().in_bf16, "bf16-mixed", kBf16);
}
TEST(Mlp, RoundsWhereSixteenBitsRoundAndNowhereElse) {
    expect_golden(mlp_golden(), mlp_golden().in_f16, "16-mixed", kFp16);
    expect_golden(mlp_golden(), mlp_golden().in_bf16, "bf16-mixed", kBf16);
}

TEST(ConvNet, HasTheParametersOfTheOriginal) {
    const std::unique_ptr<Module> model = make_image_model({});
    EXPECT_EQ(model->parameter_count(), 1199882);
    const StateDict state = model->state_dict();
    EXPECT_EQ(state.size(), 8u);
    EXPECT_EQ(state.at("conv1.weight").shape(), (Shape{32, 1, 3, 3}));
    EXPECT_EQ(state.at("conv2.weight").shape(), (Shape{64, 32, 3, 3}));
    EXPECT_EQ(state.at("fc1.weight").shape(), (Shape{128, 9216}));
    EXPECT_EQ(state.at("fc2.bias").shape(), (Shape{10}));
}

TEST(ConvNet, DropsOutAtItsOwnRatesUnlessTold) {
    const Tensor x = formula_images(2, 0, 28, 28, 1);
    const std::unique_ptr<Module> own = make_image_model({}), none = make_image_model({.dropout = 0});
    EXPECT_NE((*own)(x).to_vector<float>(), (*own)(x).to_vector<float>());
    EXPECT_EQ((*none)(x).to_vector<float>(), (*none)(x).to_vector<float>());
    own->eval();
    EXPECT_EQ((*own)(x).to_vector<float>(), (*own)(x).to_vector<float>());
}

TEST(ConvNet, TakesImagesDownToSixBySixAndNoSmaller) {
    const std::unique_ptr<Module> model = make_image_model({.height = 6, .width = 7, .classes = 4});
    EXPECT_EQ((*model)(ops::ones({1, 6, 7, 1})).shape(), (Shape{1, 4}));
    EXPECT_ERROR(make_image_model({.height = 5}), UsageError, "6x6");
}

TEST(Mlp, HasTheLayersItIsAskedFor) {
    EXPECT_EQ(make_image_model({.name = "mlp"})->parameter_count(), 784 * 512 + 512 + 512 * 10 + 10);
    EXPECT_EQ(make_image_model({.name = "mlp", .hidden = {}})->parameter_count(), 7850);
    const std::unique_ptr<Module> deep = make_image_model({.name = "mlp", .dropout = 0.1, .hidden = {7, 5}});
    EXPECT_EQ(deep->state_dict().at("4.weight").shape(), (Shape{5, 7}));  // behind flatten, linear, relu, dropout
    EXPECT_ERROR(make_image_model({.name = "mlp", .hidden = {0}}), UsageError, "width 0");
}

TEST(Models, AnUnknownNameSuggestsTheNearest) {
    EXPECT_ERROR(make_image_model({.name = "convent"}), UsageError, "did you mean 'convnet'?");
    EXPECT_ERROR(make_image_model({.name = "zzz"}), UsageError, "there are convnet, ");
}

TEST(Models, RefuseAnotherModelsWeights) {
    const std::unique_ptr<Module> convnet = make_image_model({.dropout = 0}), mlp = make_image_model({.name = "mlp"});
    const std::vector<float> before = convnet->state_dict().at("fc2.weight").to_vector<float>();
    EXPECT_ERROR(convnet->load_state_dict(mlp->state_dict()), Error, "another model");
    EXPECT_ERROR(convnet->load_state_dict(make_image_model({.classes = 12})->state_dict()), Error,
                 "fc2.weight is [12, 128]");
    EXPECT_EQ(convnet->state_dict().at("fc2.weight").to_vector<float>(), before);
}

}  // namespace
}  // namespace invar
