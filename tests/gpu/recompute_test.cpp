// Levels of recomputation on the GPU, whose activations are made anew by other kernels than made them: the same bits.
#include <functional>
#include <map>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/rng.h"
#include "invar/models/gpt.h"
#include "invar/models/llama.h"
#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"

namespace invar::testing {
namespace {

std::map<std::string, std::string> gradients(Module& model, Recompute level, const char* precision,
                                             const std::function<Tensor()>& loss_of) {
    model.set_recompute(level == Recompute::light ? level : Recompute::none);
    for (Module* block : model.checkpoint_blocks())
        block->set_recompute(level == Recompute::block ? level : Recompute::none);
    for (const Parameter* parameter : model.parameters()) parameter->value.set_grad({});
    default_generator().set_state({5, 0});
    Tensor loss;
    {
        const Autocast cast(Precision::parse(precision));
        loss = loss_of();
    }
    backward(loss);
    std::map<std::string, std::string> found{{"loss", bytes_of(loss)}};
    for (const Parameter* parameter : model.parameters()) found[parameter->name] = bytes_of(parameter->value.grad());
    return found;
}

void expect_same_bits(Module& model, const std::function<Tensor()>& loss_of) {
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"}) {
        const auto all = gradients(model, Recompute::none, precision, loss_of);
        for (const Recompute level : {Recompute::light, Recompute::block})
            for (const auto& [name, bytes] : gradients(model, level, precision, loss_of))
                EXPECT_TRUE(bytes == all.at(name)) << name << ", " << precision << ", level " << int(level);
    }
}

Tensor tokens(std::int64_t batch, std::int64_t length, std::int64_t vocabulary) {
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < batch * length; ++i) ids.push_back(i * 7 % vocabulary);
    return ops::to(Tensor::from(ids, {batch, length}), Device::cuda());
}

TEST_F(Gpu, RecomputingChangesNoBitOfTransformers) {
    const Tensor ids = tokens(4, 128, 1000);
    for (const std::int64_t heads : {4, 3}) {  // of a width of 12 packs are not whole
        const auto gpt = make_gpt({.layers = 2,
                                   .heads = heads,
                                   .width = heads == 4 ? 256 : 36,
                                   .vocabulary = 1000,
                                   .length = 128,
                                   .dropout = 0.1});
        gpt->to(Device::cuda());
        expect_same_bits(*gpt, [&] { return (*gpt)(ids, ids)[0]; });
    }
    const auto llama = make_llama(
        {.layers = 2, .heads = 4, .kv_heads = 2, .width = 128, .hidden = 344, .vocabulary = 1000, .length = 128});
    llama->to(Device::cuda());
    expect_same_bits(*llama, [&] { return (*llama)(ids, ids)[0]; });
}

// Who looks at the gradient of an activation sees the same one, whether or not it is begun early.
TEST_F(Gpu, RecomputingShowsTheSameGradientsToHooks) {
    const Tensor x = random_on_gpu({64, 128}, Dtype::bf16, 1), w = random_on_gpu({256, 128}, Dtype::bf16, 2),
                 b = random_on_gpu({256}, Dtype::bf16, 3), u = random_on_gpu({64, 256}, Dtype::bf16, 4);
    const auto run = [&](bool light, bool watched, bool twice) {
        for (const Tensor& leaf : {x, w, b, u}) leaf.set_grad({});
        const LightRecompute scope(light);
        const Tensor h = ops::linear(x, w, b, Activation::gelu_tanh);
        std::shared_ptr<const Tensor> seen;
        if (watched) seen = retain_grad(h);
        Tensor loss = ops::sum(ops::linear(h, u));
        if (twice) loss = loss + ops::sum(ops::linear(h, u) * ops::linear(h, u));
        backward(loss);
        std::string all = watched ? bytes_of(*seen) : "";
        for (const Tensor& leaf : {x, w, b, u}) all += bytes_of(leaf.grad());
        return all;
    };
    for (const bool watched : {false, true})
        for (const bool twice : {false, true})
            EXPECT_TRUE(run(true, watched, twice) == run(false, watched, twice)) << watched << twice;
}

}  // namespace
}  // namespace invar::testing
