// The Vision Transformer against PyTorch: the numbers are golden_vit.py's, in f64.
#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/core/memory.h"
#include "invar/data/synthetic.h"
#include "invar/io/safetensors.h"
#include "invar/kernels/kernels.h"
#include "invar/models/models.h"
#include "invar/ops/ops.h"
#include "invar/optim/optimizer.h"
#include "invar/train/weights.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"
#include "tests/models/formula.h"
#include "tests/ops/gradcheck.h"

namespace invar {
namespace {

struct Gradient {
    const char* name;
    double norm, weighted;  // over the file's layout: a permutation shows in the second
};
struct Golden {
    const char* pool;
    double loss;
    std::vector<double> logits;  // of the last image
    std::vector<Gradient> gradients;
};

Golden with_the_class_token() {
    return {"cls",
            2.29566227361,
            {0.0820117907, -0.0292062846, 0.0143832401, 0.105821385, -0.00425983606, -0.00899162371, -0.208903596,
             -0.0903657168, 0.0747974452, -0.131527203},
            {
                {"cls_token", 0.0657027294, -0.0409215342},
                {"pos_embed", 0.065813213, -0.0403976236},
                {"patch_embed.proj.weight", 0.0238197794, -0.0133680067},
                {"patch_embed.proj.bias", 0.00913866479, -0.00193010054},
                {"blocks.0.norm1.weight", 0.0137254959, -0.00507778865},
                {"blocks.0.norm1.bias", 0.034496036, -0.015052147},
                {"blocks.0.attn.qkv.weight", 0.0234751675, -0.000807306994},
                {"blocks.0.attn.qkv.bias", 0.0414088098, 0.00242413648},
                {"blocks.0.attn.proj.weight", 0.0384061026, -0.0168205784},
                {"blocks.0.attn.proj.bias", 0.06400322, -0.0427265051},
                {"blocks.0.norm2.weight", 0.0205893875, 0.0105781809},
                {"blocks.0.norm2.bias", 0.0190387191, -0.0116953506},
                {"blocks.0.mlp.fc1.weight", 0.0189673011, -0.0396136262},
                {"blocks.0.mlp.fc1.bias", 0.0243014827, 0.00527522639},
                {"blocks.0.mlp.fc2.weight", 0.0510401421, 0.0332087125},
                {"blocks.0.mlp.fc2.bias", 0.0639105844, -0.0345709893},
                {"blocks.1.norm1.weight", 0.0205505895, -0.0195033104},
                {"blocks.1.norm1.bias", 0.0359337843, 0.00286900263},
                {"blocks.1.attn.qkv.weight", 0.0262390762, 0.0248099437},
                {"blocks.1.attn.qkv.bias", 0.0481692627, -0.02839283},
                {"blocks.1.attn.proj.weight", 0.0409997241, -0.0556485277},
                {"blocks.1.attn.proj.bias", 0.0680534112, -0.0315611586},
                {"blocks.1.norm2.weight", 0.0197253715, -0.0112281976},
                {"blocks.1.norm2.bias", 0.0191266449, -0.00468331474},
                {"blocks.1.mlp.fc1.weight", 0.0131835788, 0.0039800455},
                {"blocks.1.mlp.fc1.bias", 0.0240647153, 0.0049035148},
                {"blocks.1.mlp.fc2.weight", 0.0444297739, 0.027113809},
                {"blocks.1.mlp.fc2.bias", 0.0680730728, -0.0324974716},
                {"norm.weight", 0.246500448, -0.225031987},
                {"norm.bias", 0.251147039, 0.088183492},
                {"head.weight", 0.26658709, 0.698730467},
                {"head.bias", 0.479887687, 0.0770798087},
            }};
}

Golden with_the_mean() {
    return {"mean",
            2.29626743737,
            {0.0716704483, -0.0620249451, 0.0553037371, 0.0704585981, -0.0869605185, 0.070630945, -0.205887826,
             -0.172861378, 0.0464962667, -0.0804579837},
            {
                {"cls_token", 0.0031521974, -0.00021199165},
                {"pos_embed", 0.0172007684, -0.00350033636},
                {"patch_embed.proj.weight", 0.128024864, -0.0284921865},
                {"patch_embed.proj.bias", 0.0414061922, -0.00919181035},
                {"blocks.0.norm1.weight", 0.00861270049, -0.00452257974},
                {"blocks.0.norm1.bias", 0.0220549566, -0.00296167901},
                {"blocks.0.attn.qkv.weight", 0.0153310342, 0.0056436801},
                {"blocks.0.attn.qkv.bias", 0.0269485607, 0.00203924854},
                {"blocks.0.attn.proj.weight", 0.0249210492, -0.0153950415},
                {"blocks.0.attn.proj.bias", 0.0414341837, -0.0101930891},
                {"blocks.0.norm2.weight", 0.0071560185, -0.00609855169},
                {"blocks.0.norm2.bias", 0.011740785, -0.00683032776},
                {"blocks.0.mlp.fc1.weight", 0.00921225853, -0.00578205945},
                {"blocks.0.mlp.fc1.bias", 0.0156760461, 0.00454209355},
                {"blocks.0.mlp.fc2.weight", 0.0279151051, -0.000471548446},
                {"blocks.0.mlp.fc2.bias", 0.0416245071, -0.00739591206},
                {"blocks.1.norm1.weight", 0.0135402393, -0.0117204073},
                {"blocks.1.norm1.bias", 0.0228770797, 0.00704411705},
                {"blocks.1.attn.qkv.weight", 0.0169140601, 0.0190247773},
                {"blocks.1.attn.qkv.bias", 0.0309608001, -0.0174981363},
                {"blocks.1.attn.proj.weight", 0.0267364733, -0.0361493042},
                {"blocks.1.attn.proj.bias", 0.044324536, -0.00665063715},
                {"blocks.1.norm2.weight", 0.00794473216, -0.00381723091},
                {"blocks.1.norm2.bias", 0.0122032866, -0.00316684454},
                {"blocks.1.mlp.fc1.weight", 0.00913786808, 0.00330441938},
                {"blocks.1.mlp.fc1.bias", 0.0155864044, 0.00372584651},
                {"blocks.1.mlp.fc2.weight", 0.0305217913, 0.00495053252},
                {"blocks.1.mlp.fc2.bias", 0.0443442482, -0.00684546662},
                {"fc_norm.weight", 0.288961588, -0.227087991},
                {"fc_norm.bias", 0.25034037, 0.0914578303},
                {"head.weight", 0.318282044, 0.640620851},
                {"head.bias", 0.481300825, 0.0749666936},
            }};
}

const DataInfo kImages{{8, 12, 3}, 10};

std::unique_ptr<Module> golden_model(const char* pool = "cls") {
    auto model = make_vit({.patch = 4, .layers = 2, .heads = 4, .width = 32, .pool = pool}, kImages);
    fill_by_formula(*model);
    return model;
}

Tensor golden_images() {
    return formula_images(3, 0, 8, 12, 3);
}
Tensor golden_loss(Module& model) {
    return ops::cross_entropy(model(golden_images()), formula_labels(3, 0));
}

TEST(Vit, HasPyTorchsLossLogitsAndGradients) {
    for (const Golden& golden : {with_the_class_token(), with_the_mean()}) {
        const std::unique_ptr<Module> model = golden_model(golden.pool);
        const Tensor loss = golden_loss(*model);
        EXPECT_NEAR(loss.item(), golden.loss, 4e-7);
        backward(loss);
        const auto parameters = model->parameters();
        ASSERT_EQ(parameters.size(), golden.gradients.size());
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const Gradient& expected = golden.gradients[i];
            EXPECT_EQ(parameters[i]->name, expected.name);
            const auto g = to_file(parameters[i]->value.grad(), parameters[i]->layout).to_vector<double>();
            double squares = 0, weighted = 0;
            for (std::size_t k = 0; k < g.size(); ++k)
                squares += g[k] * g[k], weighted += g[k] * formula(std::int64_t(k), 0);
            EXPECT_NEAR(std::sqrt(squares), expected.norm, 1e-5 * expected.norm) << expected.name;
            EXPECT_NEAR(weighted, expected.weighted, 2e-5 * expected.norm) << expected.name;
        }
        const NoGrad no_grad;
        const std::vector<double> logits = (*model)(golden_images()).to_vector<double>();
        for (std::size_t i = 0; i < golden.logits.size(); ++i)
            EXPECT_NEAR(logits[20 + i], golden.logits[i], 1e-6) << golden.pool << " " << i;
    }
}

// Some roundings of each format on the way through 2 blocks and the head.
TEST(Vit, HasThatLossIn16BitsToo) {
    for (const Golden& golden : {with_the_class_token(), with_the_mean()}) {
        const std::unique_ptr<Module> model = golden_model(golden.pool);
        for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
            const Autocast cast(dtype);
            EXPECT_NEAR(golden_loss(*model).item(), golden.loss, dtype == Dtype::f16 ? 1e-3 : 8e-3) << golden.pool;
        }
    }
}

TEST(Vit, HasTheGradientThatDifferencesGiveInF64) {
    for (const char* pool : {"cls", "mean"}) {
        const auto model =
            make_vit({.patch = 2, .layers = 2, .heads = 2, .width = 4, .mlp_ratio = 1.5, .pool = pool}, {{4, 2, 1}, 3});
        fill_by_formula(*model);
        Tensors leaves;
        for (Parameter* parameter : model->parameters()) {
            parameter->value = ops::cast(parameter->value.detach(), Dtype::f64).set_requires_grad();
            leaves.push_back(parameter->value);
        }
        const Tensor images = Tensor::from(testing::random_values(16, -1, 1, 7), {2, 4, 2, 1}, Dtype::f64);
        const auto logits = [&](const Tensors&) { return (*model)(images); };
        EXPECT_EQ(testing::gradient_mismatch(logits, leaves), "") << pool;
    }
}

TEST(Vit, HasTheParametersOfTimmsViTTinyAtPatch16And224) {
    const auto model = make_vit({.patch = 16, .layers = 12, .heads = 3, .width = 192}, {{224, 224, 3}, 1000});
    EXPECT_EQ(model->parameter_count(), 5717416);
    const StateDict state = model->state_dict();
    EXPECT_EQ(state.at("pos_embed").shape(), (Shape{1, 197, 192}));
    EXPECT_EQ(state.at("cls_token").shape(), (Shape{1, 1, 192}));
    EXPECT_EQ(state.at("patch_embed.proj.weight").shape(), (Shape{192, 3, 16, 16}));
    EXPECT_EQ(state.at("blocks.11.attn.qkv.weight").shape(), (Shape{576, 192}));
}

// Weights by torchvision's names, old and new, as its files have them.
TensorMap as_torchvision_has_it(const StateDict& state, bool old) {
    const std::map<std::string, std::string> outside = {{"cls_token", "class_token"},
                                                        {"pos_embed", "encoder.pos_embedding"},
                                                        {"patch_embed.proj.weight", "conv_proj.weight"},
                                                        {"patch_embed.proj.bias", "conv_proj.bias"},
                                                        {"norm.weight", "encoder.ln.weight"},
                                                        {"norm.bias", "encoder.ln.bias"},
                                                        {"head.weight", "heads.head.weight"},
                                                        {"head.bias", "heads.head.bias"}};
    const std::string first = old ? "mlp.linear_1" : "mlp.0", second = old ? "mlp.linear_2" : "mlp.3";
    TensorMap theirs;
    for (const auto& [name, value] : state) {
        if (const auto found = outside.find(name); found != outside.end()) {
            theirs[found->second] = value;
            continue;
        }
        const std::string number = name.substr(7, 1), kind = name.substr(name.rfind('.') + 1);
        const std::string inside = name.substr(9, name.rfind('.') - 9);
        const std::map<std::string, std::string> named = {{"norm1", "ln_1." + kind},
                                                          {"norm2", "ln_2." + kind},
                                                          {"attn.qkv", "self_attention.in_proj_" + kind},
                                                          {"attn.proj", "self_attention.out_proj." + kind},
                                                          {"mlp.fc1", first + "." + kind},
                                                          {"mlp.fc2", second + "." + kind}};
        theirs["encoder.layers.encoder_layer_" + number + "." + named.at(inside)] = value;
    }
    return theirs;
}

TEST(Vit, ReadsTorchvisionsFilesAsItsOwn) {
    const std::unique_ptr<Module> model = golden_model();
    const NoGrad no_grad;
    const std::vector<float> expected = (*model)(golden_images()).to_vector<float>();
    for (const bool old : {false, true}) {
        const Scratch folder;
        save_safetensors(folder / "weights.safetensors", as_torchvision_has_it(model->state_dict(), old));
        const auto other = make_vit({.patch = 4, .layers = 2, .heads = 4, .width = 32}, kImages);
        EXPECT_NE((*other)(golden_images()).to_vector<float>(), expected);
        load_weights(*other, folder / "weights.safetensors");
        EXPECT_EQ((*other)(golden_images()).to_vector<float>(), expected);
    }
}

TEST(Vit, LearnsClassesInAFewSteps) {
    set_threads(1);  // small work: more threads only wait for each other on a busy machine
    default_generator().set_state({3, 0});
    const SyntheticDataset data({.size = 64, .height = 8, .width = 8, .classes = 4}, Split::train, 1);
    const auto model = make_vit({.patch = 4, .layers = 2, .heads = 2, .width = 32}, data.info());
    Optimizer optimizer(*model, OptimizerSpec{.kind = OptimizerSpec::Kind::adamw, .lr = 3e-3});
    std::vector<std::int64_t> all(64);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::int64_t(i);
    const Batch batch = data.read(all);
    double first = 0, last = 0;
    for (int step = 0; step < 80; ++step) {
        optimizer.zero_grad();
        const Tensor loss = ops::cross_entropy((*model)(batch["x"]), batch["y"]);
        backward(loss);
        optimizer.step();
        last = loss.item();
        if (step == 0) first = last;
    }
    EXPECT_GT(first, 1.0);
    EXPECT_LT(last, 0.1);
}

TEST(Vit, RecomputesToTheSameGradients) {
    const auto gradients = [](Recompute level) {
        const std::unique_ptr<Module> model = golden_model();
        EXPECT_EQ(model->checkpoint_blocks().size(), 2u);
        if (level == Recompute::light) model->set_recompute(level);
        if (level == Recompute::block)
            for (Module* block : model->checkpoint_blocks()) block->set_recompute(level);
        const std::int64_t before = memory_stats({}).live_total;
        const Tensor loss = golden_loss(*model);
        const std::int64_t kept = memory_stats({}).live_total - before;
        backward(loss);
        std::vector<double> all;
        for (const Parameter* parameter : model->parameters())
            for (const double g : parameter->value.grad().to_vector<double>()) all.push_back(g);
        return std::pair(all, kept);
    };
    const auto [all, kept] = gradients(Recompute::none);
    for (const Recompute level : {Recompute::light, Recompute::block}) {
        const auto [again, less] = gradients(level);
        EXPECT_EQ(again, all) << int(level);
        EXPECT_LT(less, kept) << int(level);
    }
}

TEST(Vit, DropsOutWhileTrainingAlone) {
    for (const VitOptions& options : {VitOptions{.heads = 2, .width = 32, .dropout = 0.5},
                                      VitOptions{.heads = 2, .width = 32, .attention_dropout = 0.5}}) {
        const auto model = make_vit(options, kImages);
        fill_by_formula(*model);
        EXPECT_NE((*model)(golden_images()).to_vector<float>(), (*model)(golden_images()).to_vector<float>());
        model->eval();
        EXPECT_EQ((*model)(golden_images()).to_vector<float>(), (*model)(golden_images()).to_vector<float>());
    }
}

TEST(Vit, RefusesWhatDoesNotFit) {
    for (const std::int64_t patch : {3, 5, 8})  // of the width, of neither, of the height
        EXPECT_ERROR(make_vit({.patch = patch}, kImages), UsageError, "does not divide images of 8x12");
    EXPECT_ERROR(make_vit({.heads = 5}, kImages), UsageError, "no multiple of model.heads = 5");
    EXPECT_ERROR(make_vit({.width = 3, .mlp_ratio = 0.1}, kImages), UsageError, "leaves nothing");
    EXPECT_ERROR(make_vit({.pool = "max"}, kImages), UsageError, "neither cls nor mean");
    EXPECT_ERROR(make_vit({}, {{8}, 10}), UsageError, "model vit takes images");
    EXPECT_ERROR((*golden_model())(ops::zeros({1, 12, 8, 3})), UsageError, "made for images [n, 8, 12, 3]");
}

}  // namespace
}  // namespace invar
