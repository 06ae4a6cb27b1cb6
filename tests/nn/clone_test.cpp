// A module's copy: equal in everything, tied to nothing.
#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/models/registry.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

std::unique_ptr<Sequential> all_layers() {
    auto net = std::make_unique<Sequential>();
    net
        ->then(std::make_unique<Conv2d>(
            2, 4, ops::Pair(3, 2), ops::Conv2dOptions{.stride = {2, 1}, .groups = 2, .activation = Activation::relu}))
        .then(std::make_unique<BatchNorm>(4, 1e-3, 0.2))
        .then(std::make_unique<BatchNorm>(4, 1e-3, 0.2, false))
        .then(std::make_unique<LeakyRelu>(0.3))
        .then(std::make_unique<ConvTranspose2d>(4, 6, 2, ops::Conv2dOptions{.groups = 2}, false))
        .then(std::make_unique<GroupNorm>(3, 6, 1e-4))
        .then(std::make_unique<GroupNorm>(3, 6, 1e-4, false))
        .then(std::make_unique<Elu>(0.5))
        .then(std::make_unique<Silu>())
        .then(std::make_unique<Hardswish>())
        .then(std::make_unique<Gelu>(true))
        .then(std::make_unique<Relu>())
        .then(std::make_unique<MaxPool2d>(ops::Pair(2, 1)))
        .then(std::make_unique<Identity>())
        .then(std::make_unique<Flatten>())
        .then(std::make_unique<Linear>(36, 5, true, ImageShape{1, 6, 6}, Activation::gelu_tanh))
        .then(std::make_unique<LayerNorm>(5, 1e-4))
        .then(std::make_unique<LayerNorm>(5, 1e-3, false))
        .then(std::make_unique<RmsNorm>(5, 1e-3))
        .then(std::make_unique<Dropout>(0.4));
    return net;
}

std::map<std::string, std::vector<float>> values(Module& module) {
    std::map<std::string, std::vector<float>> all;
    for (const auto& [name, tensor] : module.state_dict()) all[name] = tensor.to_vector<float>();
    return all;
}

Tensor images() {
    Generator generator(5);
    return ops::normal({3, 6, 6, 2}, 0, 1, Dtype::f32, {}, generator);
}

// Outputs in training, gradients and buffers afterwards.
auto trained(Module& net) {
    default_generator().set_state({3, 0});
    const Autocast pin(Autocast::fp32());  // modules with a precision of their own stand in a run of FP32
    const Tensor y = net(images());
    backward(ops::sum(y * y));
    std::map<std::string, std::vector<float>> gradients;
    for (const Parameter* parameter : net.parameters())
        if (parameter->value.grad()) gradients[parameter->name] = parameter->value.grad().to_vector<float>();
    return std::tuple(y.to_vector<float>(), gradients, values(net));
}

TEST(Clone, OfEveryLayerComputesTheSame) {
    const auto net = all_layers();
    net->freeze("1");
    net->freeze("*.bias");
    net->get_submodule("3").set_precision(Precision::parse("bf16-mixed"));
    const std::unique_ptr<Module> copy = net->clone();
    const auto modules = net->modules(), copies = copy->modules();
    for (std::size_t i = 0; i < modules.size(); ++i) {
        EXPECT_EQ(modules[i].first, copies[i].first);
        EXPECT_EQ(modules[i].second->precision(), copies[i].second->precision());
    }
    const std::vector<Parameter*> ours = net->parameters(), theirs = copy->parameters();
    for (std::size_t i = 0; i < ours.size(); ++i)
        EXPECT_EQ(ours[i]->value.requires_grad(), theirs[i]->value.requires_grad()) << ours[i]->name;
    EXPECT_EQ(trained(*net), trained(*copy));
}

TEST(Clone, SharesNothingWithItsOriginal) {
    const auto net = all_layers();
    const std::unique_ptr<Module> copy = net->clone();
    const auto before = values(*net);
    trained(*copy);
    for (Parameter* parameter : copy->parameters()) {
        const NoGrad no_grad;
        ops::copy_(parameter->value, ops::zeros({}));
    }
    EXPECT_EQ(values(*net), before);
    for (const Parameter* parameter : net->parameters()) EXPECT_FALSE(parameter->value.grad());
}

TEST(Clone, IsInTheSameModeAndLeavesTheRandomNumbersAlone) {
    const auto net = all_layers();
    net->eval();
    net->get_submodule("0").train();
    const RngState before = default_generator().state();
    const std::unique_ptr<Module> copy = net->clone();
    EXPECT_EQ(default_generator().state(), before);
    EXPECT_FALSE(copy->training());
    EXPECT_TRUE(copy->get_submodule("0").training());
    EXPECT_FALSE(copy->get_submodule("11").training());
}

TEST(Clone, OfEveryModelThatHasANameComputesTheSame) {
    for (const std::string& name : part_names("model")) {
        std::unique_ptr<Module> net;
        Tensor x = ops::uniform({2, 32, 32, 1});
        try {
            net = make_model(Part("model", name), {{32, 32, 1}, 5});
        } catch (const UsageError&) {  // it reads no images, but tokens
            net = make_model(Part("model", name), {{3}, 7});
            x = Tensor::from<std::int64_t>({6, 0, 3, 2, 2, 5}, {2, 3});
        }
        const std::unique_ptr<Module> copy = net->clone(), copy_of_copy = copy->clone();
        for (Module* module : {net.get(), copy.get(), copy_of_copy.get()}) module->eval();
        EXPECT_EQ((*net)(x).to_vector<float>(), (*copy)(x).to_vector<float>()) << name;
        EXPECT_EQ((*net)(x).to_vector<float>(), (*copy_of_copy)(x).to_vector<float>()) << name;
    }
}

class Plain : public Module {
  public:
    Tensor forward(const Tensor& x) override { return inner(x); }
    Embedding& inner = add<Embedding>("inner", 4, 2);
};

class Able : public Plain {
  public:
    std::unique_ptr<Module> new_instance() const override { return std::make_unique<Able>(); }
};

class Inherited : public Able {};

TEST(Clone, OfAUsersModuleTakesOneLineAndSaysSoWhereItIsMissing) {
    Able able;
    EXPECT_EQ(values(*able.clone()), values(able));
    Plain plain;
    EXPECT_ERROR(plain.clone(), UsageError, "Plain does not say how another one is made; override new_instance()");
    EXPECT_EQ(values(*plain.inner.clone()), values(plain.inner)) << "its layers can be copied all the same";
    Inherited inherited;
    EXPECT_ERROR(inherited.clone(), UsageError, "Inherited makes a module that differs from it");
    Sequential list(std::make_unique<Plain>());
    EXPECT_ERROR(list.clone(), UsageError, "Plain does not say");
}

}  // namespace
}  // namespace invar
