// The built-in GPT as somebody would write it on the public interface, as a plug-in: own_vs_built_in.sh measures one
// beside the other.
#include "invar/invar.h"
#include "invar/plugin.h"

using namespace invar;

namespace {

struct Options {
    std::int64_t layers = 6, heads = 6, width = 384;
};

struct OwnBlock : Module {
    explicit OwnBlock(const Options& o)
        : heads(o.heads),
          ln_1(add<LayerNorm>("ln_1", o.width)),
          ln_2(add<LayerNorm>("ln_2", o.width)),
          qkv(add<Linear>("qkv", o.width, 3 * o.width)),
          out(add<Linear>("out", o.width, o.width)),
          up(add<Linear>("up", o.width, 4 * o.width)),
          down(add<Linear>("down", 4 * o.width, o.width)) {}
    Tensor forward(const Tensor& x) override {
        const Tensor y = x + out(ops::self_attention(qkv(ln_1(x)), heads, heads, {.causal = true}));
        return y + down(ops::gelu_tanh(up(ln_2(y))));
    }
    std::int64_t heads;
    LayerNorm &ln_1, &ln_2;
    Linear &qkv, &out, &up, &down;
};

struct OwnGpt : LanguageModel {
    OwnGpt(const Options& o, const DataInfo& data)
        : length(data.input[0]),
          wte(add<Embedding>("wte", data.outputs, o.width)),
          wpe(add<Embedding>("wpe", length, o.width)),
          blocks(add<ModuleList>("blocks")),
          ln_f(add<LayerNorm>("ln_f", o.width)) {
        for (std::int64_t i = 0; i < o.layers; ++i) blocks.append(std::make_unique<OwnBlock>(o));
    }
    std::int64_t context() const override { return length; }
    Tensor hidden(const Tensor& tokens) override {
        Tensor x = wte(tokens) + wpe.weight.value;
        for (Module* block : blocks) x = (*block)(x);
        return ln_f(x);
    }
    Tensor head() const override { return wte.weight.value; }
    std::int64_t length;
    Embedding &wte, &wpe;
    ModuleList& blocks;
    LayerNorm& ln_f;
};

const RegisterModel<Options> kOwn{
    "own_gpt",
    "A GPT, written by a user.",
    [](const Options& o, const DataInfo& data) { return std::make_unique<OwnGpt>(o, data); },
    {key("layers", &Options::layers, at_least(1), "Blocks."),
     key("heads", &Options::heads, at_least(1), "Of attention."),
     key("width", &Options::width, at_least(1), "Of the residual stream.")}};

}  // namespace

INVAR_PLUGIN {}
