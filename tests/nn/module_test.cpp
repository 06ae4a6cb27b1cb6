#include "invar/nn/module.h"

#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/nn/layers.h"
#include "invar/nn/module_watch.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

struct Block : Module {
    Block() : conv(add<Conv2d>("conv", 3, 4, 3)), norm(add<BatchNorm>("norm", 4)), drop(add<Dropout>("drop", 0.5)) {}
    Tensor forward(const Tensor& x) override { return drop(ops::relu(norm(conv(x)))); }
    Conv2d& conv;
    BatchNorm& norm;
    Dropout& drop;
};

// Two blocks and a head, with names as PyTorch would give them.
struct Net : Module {
    Net() : first(add<Block>("first")), head(add<Linear>("head", 4 * 4 * 4, 5, true, ImageShape{4, 4, 4})) {}
    Tensor forward(const Tensor& x) override { return head(ops::flatten(first(x), 1)); }
    Block& first;
    Linear& head;
};

Tensor ramp(const Shape& shape, double from = 0.0, double step = 1.0) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(float(from + step * double(i)));
    return Tensor::from(values, shape);
}

std::vector<std::string> keys(const StateDict& state) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : state) names.push_back(name);
    return names;
}

std::map<std::string, std::vector<float>> values(Module& module) {
    std::map<std::string, std::vector<float>> all;
    for (const auto& [name, tensor] : module.state_dict()) all[name] = tensor.to_vector<float>();
    return all;
}

TEST(Module, NamesItsParametersByPathInTheOrderOfRegistration) {
    Net net;
    std::vector<std::string> names;
    for (const Parameter* parameter : net.parameters()) names.push_back(parameter->name);
    EXPECT_EQ(names, (std::vector<std::string>{"first.conv.weight", "first.conv.bias", "first.norm.weight",
                                               "first.norm.bias", "head.weight", "head.bias"}));
    EXPECT_EQ(net.parameter_count(), 4 * 3 * 9 + 4 + 4 + 4 + 64 * 5 + 5);
    std::vector<std::string> paths;
    for (const auto& [path, module] : net.modules()) paths.push_back(path);
    EXPECT_EQ(paths, (std::vector<std::string>{"", "first", "first.conv", "first.norm", "first.drop", "head"}));
}

TEST(Module, SavesBuffersBesideParametersInPyTorchsNamesAndShapes) {
    Net net;
    const StateDict state = net.state_dict();
    EXPECT_EQ(keys(state),
              (std::vector<std::string>{"first.conv.bias", "first.conv.weight", "first.norm.bias",
                                        "first.norm.num_batches_tracked", "first.norm.running_mean",
                                        "first.norm.running_var", "first.norm.weight", "head.bias", "head.weight"}));
    EXPECT_EQ(state.at("first.conv.weight").shape(), (Shape{4, 3, 3, 3}));
    EXPECT_EQ(state.at("head.weight").shape(), (Shape{5, 64}));
    EXPECT_EQ(state.at("first.norm.num_batches_tracked").dtype(), Dtype::i64);
}

TEST(Module, KeepsConvolutionsChannelsLastInMemoryAndFirstInFiles) {
    Conv2d conv(2, 3, 2);
    conv.load_state_dict({{"weight", ramp({3, 2, 2, 2})}, {"bias", ramp({3})}});
    EXPECT_EQ(conv.weight.value.shape(), (Shape{3, 2, 2, 2}));
    // file [o, i, h, w] = 8o + 4i + 2h + w; memory [o, h, w, i]
    EXPECT_EQ(
        conv.weight.value.to_vector<float>(),
        (std::vector<float>{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15, 16, 20, 17, 21, 18, 22, 19, 23}));
    EXPECT_EQ(conv.state_dict().at("weight").to_vector<float>(), ramp({3, 2, 2, 2}).to_vector<float>());
}

TEST(Module, LoadsATransposedTensorByItsElements) {
    Linear linear(2, 3, false);
    linear.load_state_dict({{"weight", ops::transpose(ramp({2, 3}), 0, 1)}});
    EXPECT_EQ(linear.state_dict().at("weight").to_vector<float>(), (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

TEST(Module, KeepsALinearAfterAnImageInChannelFirstColumnsInFiles) {
    Linear linear(8, 1, false, ImageShape{2, 2, 2});
    linear.load_state_dict({{"weight", ramp({1, 8})}});
    EXPECT_EQ(linear.weight.value.to_vector<float>(), (std::vector<float>{0, 4, 1, 5, 2, 6, 3, 7}));
    EXPECT_EQ(linear.state_dict().at("weight").to_vector<float>(), ramp({1, 8}).to_vector<float>());
}

TEST(Module, SavesACopyThatTrainingDoesNotTouch) {
    Linear linear(2, 1);
    const StateDict state = linear.state_dict();
    const std::vector<float> before = state.at("weight").to_vector<float>();
    linear.weight.value.data<float>()[0] += 1;
    EXPECT_EQ(state.at("weight").to_vector<float>(), before);
}

TEST(Module, LoadsOtherDtypes) {
    Linear linear(2, 1);
    linear.load_state_dict({{"weight", Tensor::from<float>({0.5f, -3.0f}, {1, 2}, Dtype::bf16)},
                            {"bias", Tensor::from<double>({2.0}, {1})}});
    EXPECT_EQ(linear.weight.value.dtype(), Dtype::f32);
    EXPECT_EQ(linear.weight.value.to_vector<float>(), (std::vector<float>{0.5f, -3.0f}));
    EXPECT_EQ(linear.bias->value.to_vector<float>(), (std::vector<float>{2.0f}));
}

TEST(Module, LoadsAllOrNothing) {
    Net net;
    const auto before = values(net);
    const auto refused = [&](auto change, const char* says) {
        StateDict state = net.state_dict();
        for (auto& [name, tensor] : state) tensor = ops::ones(tensor.shape(), tensor.dtype());
        change(state);
        EXPECT_ERROR(net.load_state_dict(state), Error, says);
        EXPECT_EQ(values(net), before);
    };
    refused([](StateDict& s) { s.erase("head.bias"); }, "missing head.bias");
    refused([](StateDict& s) { s.erase("first.norm.running_var"); }, "missing first.norm.running_var");
    refused([](StateDict& s) { s["tail.weight"] = ops::ones({1}); }, "unexpected tail.weight");
    refused([](StateDict& s) { s["head.bias"] = ops::ones({5}, Dtype::i32); },
            "head.bias is of i32, and weights are of floating-point numbers");
    refused(
        [](StateDict& s) {
            s["head.weight"] = ops::ones({5, 63});
        },
        "head.weight is [5, 63] and should be [5, 64]");
    refused([](StateDict& s) { s["first.conv.weight"] = ops::ones({4, 3, 3, 2}); }, "should be [4, 3, 3, 3]");
    refused([](StateDict& s) { s["first.norm.running_mean"] = ops::ones({5}); }, "first.norm.running_mean is [5]");
    refused(
        [](StateDict& s) {
            s.erase("head.bias");
            s["head.weight"] = ops::ones({5, 63});
            s["tail.weight"] = ops::ones({1});
        },
        "missing head.bias; unexpected tail.weight; head.weight is [5, 63] and should be [5, 64]");
}

TEST(Module, NamesTenOfManyTensorsThatDoNotFitAndCountsTheRest) {
    Net net;
    StateDict state = net.state_dict();
    for (char name = 'a'; name <= 'l'; ++name) state[std::string(1, name)] = ops::ones({1});
    EXPECT_ERROR(net.load_state_dict(state), Error, "unexpected a, b, c, d, e, f, g, h, i, j and 2 more");
}

TEST(Module, LoadsAPartWhereNotStrict) {
    Net net;
    net.load_state_dict({{"head.bias", ramp({5})}, {"tail.bias", ramp({2})}}, false);
    EXPECT_EQ(net.head.bias->value.to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4}));
    EXPECT_ERROR(net.load_state_dict({{"head.bias", ramp({4})}}, false), Error, "head.bias is [4]");
}

TEST(Module, TrainsAndEvaluatesAsAWhole) {
    Net net;
    EXPECT_TRUE(net.first.drop.training());
    net.eval();
    EXPECT_FALSE(net.first.drop.training());
    const Tensor x = ramp({2, 6, 6, 3}, -1, 0.01);
    const auto state = values(net);
    EXPECT_EQ(net(x).to_vector<float>(), net(x).to_vector<float>());
    EXPECT_EQ(values(net), state) << "evaluation moved the running statistics";
    net.train();
    EXPECT_NE(net(x).to_vector<float>(), net(x).to_vector<float>());
    EXPECT_EQ(net.first.norm.batches.item(), 2);
    EXPECT_NE(values(net), state);
}

TEST(Module, PinsModulesToTheirOwnPrecisionByPattern) {
    Net net;
    net.eval();
    const Tensor x = ramp({2, 6, 6, 3}, -1, 0.01);
    const Autocast cast(Precision::parse("16-mixed"));
    EXPECT_EQ(net(x).dtype(), Dtype::f16);
    const std::vector<std::pair<std::string, std::string>> pin = {{"head", "32-true"}};
    override_precision(net, pin);
    EXPECT_EQ(net(x).dtype(), Dtype::f32);
    EXPECT_EQ(net.first.conv(x).dtype(), Dtype::f16);
    const std::vector<std::pair<std::string, std::string>> later = {{"*", "bf16-mixed"}, {"first.*", "fp32"}};
    override_precision(net, later);
    EXPECT_EQ(net(x).dtype(), Dtype::bf16);
    EXPECT_EQ(net.first.conv(x).dtype(), Dtype::f32);
}

TEST(Module, RefusesAPatternThatMatchesNothingAndAPrecisionThatIsNone) {
    Net net;
    const std::vector<std::pair<std::string, std::string>> pattern = {{"heads", "32-true"}},
                                                           precision = {{"head", "17-mixed"}};
    EXPECT_ERROR(override_precision(net, pattern), UsageError, "no module matches 'heads'");
    EXPECT_ERROR(override_precision(net, precision), UsageError, "17-mixed");
}

// Dropout must draw the same numbers again, and BatchNorm must not count the second run.
TEST(Module, CheckpointingChangesNeitherGradientsNorBuffers) {
    const Tensor x = ramp({2, 6, 6, 3}, -1, 0.01);
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"}) {
        std::map<std::string, std::vector<float>> gradients[2], buffers[2];
        std::vector<float> outputs[2];
        RngState after[2];
        for (const bool checkpointed : {false, true}) {
            default_generator().set_state({11, 0});
            Net net;
            for (Module* block : net.checkpoint_blocks())
                block->set_recompute(checkpointed ? Recompute::block : Recompute::none);
            Tensor loss;
            {
                const Autocast cast(Precision::parse(precision));
                const Tensor y = net(x);
                outputs[checkpointed] = y.to_vector<float>();
                loss = ops::cross_entropy(y, Tensor::from<std::int64_t>({1, 4}, {2}));
            }
            backward(loss);
            for (const Parameter* parameter : net.parameters())
                gradients[checkpointed][parameter->name] = parameter->value.grad().to_vector<float>();
            buffers[checkpointed] = values(net);
            after[checkpointed] = default_generator().state();
        }
        EXPECT_EQ(outputs[0], outputs[1]) << precision;
        EXPECT_EQ(gradients[0], gradients[1]) << precision;
        EXPECT_EQ(buffers[0], buffers[1]) << precision;
        EXPECT_EQ(after[0], after[1]) << precision;
    }
}

TEST(Sequential, RunsItsModulesInOrderAndNamesThemByNumber) {
    Sequential net;
    net.then(std::make_unique<Flatten>()).then(std::make_unique<Linear>(4, 3)).then(std::make_unique<Relu>());
    EXPECT_EQ(keys(net.state_dict()), (std::vector<std::string>{"1.bias", "1.weight"}));
    const Tensor y = net(ramp({2, 2, 2, 1}));
    EXPECT_EQ(y.shape(), (Shape{2, 3}));
    for (const float v : y.to_vector<float>()) EXPECT_GE(v, 0.0f);
}

TEST(Sequential, IsMadeFromAListOfLayers) {
    Sequential net(std::make_unique<Flatten>(), std::make_unique<Linear>(4, 3), std::make_unique<Relu>());
    EXPECT_EQ(keys(net.state_dict()), (std::vector<std::string>{"1.bias", "1.weight"}));
    std::vector<std::unique_ptr<Module>> layers;
    layers.push_back(std::make_unique<Linear>(4, 4));
    layers.push_back(std::make_unique<Linear>(4, 2));
    Sequential listed(std::move(layers));
    EXPECT_EQ(listed(ramp({3, 4})).shape(), (Shape{3, 2}));
}

// Two tensors in, two out: a sum through a weight of its own, and the difference.
class Pairing : public Module {
  public:
    using Module::forward;
    Tensors forward(const Tensors& in) override { return {linear(in[0] + in[1]), in[0] - in[1]}; }
    Linear& linear = add<Linear>("linear", 3, 3);
};

TEST(Module, TakesAndReturnsSeveralTensors) {
    Pairing pair;
    const Tensor a = ramp({2, 3}), b = ramp({2, 3}) * 2.0;
    const Tensors results = pair(a, b);
    ASSERT_EQ(results.size(), 2u);
    EXPECT_EQ(results[1].to_vector<float>(), (a - b).to_vector<float>());
    backward(ops::sum(results[0]));
    EXPECT_TRUE(pair.linear.weight.value.grad());
}

// Two inputs, of which one is whole numbers; three results, of which one is, and two come from one random mask.
class Several : public Module {
  public:
    using Module::forward;
    Tensors forward(const Tensors& in) override {
        const Tensor h = drop(norm(linear(in[0]) + table(in[1])));
        return {ops::exp(h), h * in[0], ops::argmax(h, 1)};
    }
    Linear& linear = add<Linear>("linear", 3, 3);
    BatchNorm& norm = add<BatchNorm>("norm", 3);
    Embedding& table = add<Embedding>("table", 4, 3);
    Dropout& drop = add<Dropout>("drop", 0.5);
};

TEST(Module, CheckpointingOfSeveralTensorsChangesNothingToTheBit) {
    for (const char* precision : {"32-true", "bf16-mixed"})
        for (const int used : {1, 2, 3}) {  // which of the two floating results the loss is made of, by bits
            std::map<std::string, std::vector<float>> gradients[2], buffers[2];
            std::vector<float> outputs[2], gx[2];
            for (const bool checkpointed : {false, true}) {
                default_generator().set_state({11, 0});
                Several net;
                net.set_recompute(checkpointed ? Recompute::block : Recompute::none);
                const Tensor x = ramp({4, 3}, -1, 0.17).set_requires_grad();
                const Tensor ids = Tensor::from<std::int64_t>({0, 3, 3, 1}, {4});
                const Autocast cast(Precision::parse(precision));
                const Tensors y = net(x * 1.5, ids);
                ASSERT_EQ(y.size(), 3u);
                EXPECT_FALSE(y[2].requires_grad());
                Tensor loss = Tensor::scalar(0);
                if (used & 1) loss = loss + ops::mean(y[0] * y[0]);
                if (used & 2) loss = loss + ops::mean(y[1]);
                outputs[checkpointed] = ops::cat({y[0], y[1]}).to_vector<float>();
                backward(loss);
                for (const Parameter* parameter : net.parameters())
                    gradients[checkpointed][parameter->name] = parameter->value.grad().to_vector<float>();
                gx[checkpointed] = x.grad().to_vector<float>();
                buffers[checkpointed] = values(net);
            }
            EXPECT_EQ(outputs[0], outputs[1]) << precision << used;
            EXPECT_EQ(gradients[0], gradients[1]) << precision << used;
            EXPECT_EQ(gx[0], gx[1]) << precision << used;
            EXPECT_EQ(buffers[0], buffers[1]) << precision << used;
        }
}

TEST(Module, SaysWhichModuleCannotTakeWhatItIsGiven) {
    Sequential net(std::make_unique<Linear>(3, 3));
    const Tensor x = ramp({2, 3});
    EXPECT_ERROR(net(x, x), Error, "the model takes one tensor and was given 2");
    EXPECT_EQ(net(Tensors{x}).size(), 1u);
    ModuleList list;
    EXPECT_ERROR(list(x), Error, "cannot be called: it has no forward()");
}

class Stack : public Module {
  public:
    Stack() {
        for (int i = 0; i < 3; ++i) layers.append(std::make_unique<Linear>(4, 4));
    }
    Tensor forward(const Tensor& x) override {
        Tensor y = x;
        for (Module* layer : layers) y = (*layer)(y);
        return y;
    }
    ModuleList& layers = add<ModuleList>("layers");
};

TEST(ModuleList, NamesItsModulesByNumberAndLeavesTheCallingToOthers) {
    Stack net;
    EXPECT_EQ(net.layers.size(), 3u);
    EXPECT_EQ(&net.get_submodule("layers.1"), &net.layers[1]);
    EXPECT_EQ(&net.get_submodule(""), &net);
    EXPECT_EQ(net(ramp({2, 4})).shape(), (Shape{2, 4}));
    EXPECT_ERROR(net.get_submodule("layer.1"), UsageError, "did you mean 'layers.1'?");
}

// Two lists, and a module below one that is never called itself.
class Branches : public Module {
  public:
    Branches() {
        left.append(std::make_unique<Linear>(4, 4));
        right.append(std::make_unique<Linear>(4, 4));
        box.add_inner();
    }
    Tensor forward(const Tensor& x) override { return box.inner->operator()(right[0](left[0](x))); }
    struct Box : Module {
        void add_inner() { inner = &add<Linear>("inner", 4, 4); }
        Linear* inner = nullptr;
    };
    ModuleList &left = add<ModuleList>("left"), &right = add<ModuleList>("right");
    Box& box = add<Box>("box");
};

TEST(ModulePath, IsThatOfTheTreeWhereWhatIsBetweenIsNotCalled) {
    Branches net;
    std::vector<std::string> seen;
    const ModuleWatch watch([&](const std::string& path, const Tensor&) { seen.push_back(path); });
    net(ramp({2, 4}));
    EXPECT_EQ(seen, (std::vector<std::string>{"left.0", "right.0", "box.inner"}));
}

class Misnamed : public Module {
  public:
    explicit Misnamed(const std::vector<std::string>& names) {
        for (const std::string& name : names) add<Linear>(name, 2, 2);
    }
};

TEST(Module, RefusesChildrenThatNoPathCouldTellApart) {
    EXPECT_ERROR(Misnamed({"a", "a"}), UsageError, "there is a module 'a' already");
    EXPECT_ERROR(Misnamed({""}), UsageError, "needs a name without '.'");
    EXPECT_ERROR(Misnamed({"a.b"}), UsageError, "needs a name without '.'");
    EXPECT_ERROR(Sequential().then(std::unique_ptr<Linear>()), UsageError, "no module was given");
}

// Registers everything by the same name, as what `kinds` says.
class Ambiguous : public Module {
  public:
    explicit Ambiguous(const std::string& kinds) {
        for (const char kind : kinds) {
            if (kind == 'm') add<Linear>("a", 2, 2);
            if (kind == 'p') add_parameter("a", ops::zeros({2}));
            if (kind == 'b') add_buffer("a", ops::zeros({2}));
        }
    }
};

TEST(Module, RefusesParametersAndBuffersOfANameThatIsTaken) {
    for (const char* kinds : {"pp", "bb", "pb", "bp", "mp", "pm", "mb", "bm"}) {
        SCOPED_TRACE(kinds);
        EXPECT_ERROR(Ambiguous{kinds}, UsageError, "'a' already");
    }
    class Dotted : public Module {
      public:
        Dotted() { add_parameter("a.b", ops::zeros({2})); }
    };
    EXPECT_ERROR(Dotted(), UsageError, "needs a name without '.', not 'a.b'");
}

TEST(ModuleList, RefusesNoModule) {
    ModuleList list;
    EXPECT_ERROR(list.append(std::unique_ptr<Linear>()), UsageError, "module '0': no module was given");
    EXPECT_EQ(list.size(), 0u);
}

TEST(Module, FreezesWhatAPatternMatches) {
    Stack net;
    const auto learning = [&] {
        std::vector<std::string> names;
        for (const Parameter* parameter : net.parameters())
            if (parameter->value.requires_grad()) names.push_back(parameter->name);
        return names;
    };
    EXPECT_EQ(net.freeze("layers.0"), 2);
    EXPECT_EQ(net.freeze("*.bias"), 3);
    EXPECT_EQ(learning(), (std::vector<std::string>{"layers.1.weight", "layers.2.weight"}));
    EXPECT_EQ(net.freeze("layers", false), 6);
    EXPECT_EQ(learning().size(), 6u);
    EXPECT_ERROR(net.freeze("head"), UsageError, "no parameter matches 'head'");
}

}  // namespace
}  // namespace invar
