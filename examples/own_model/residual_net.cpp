// model=residual_net: a stem, some residual blocks, the mean over the image, one linear layer.
#include "invar/invar.h"
using namespace invar;
namespace {

struct Options {
    std::int64_t width = 16;
    std::int64_t blocks = 2;
};
const ops::Conv2dOptions kSame{.padding = 1};

struct Block : Module {
    explicit Block(std::int64_t width) : width(width) {}
    Tensor forward(const Tensor& x) override {
        return ops::relu(x + norm2(conv2(ops::relu(norm1(conv1(x))))));
    }
    std::int64_t width;
    Conv2d& conv1 = add<Conv2d>("conv1", width, width, 3, kSame, false);
    BatchNorm& norm1 = add<BatchNorm>("norm1", width);
    Conv2d& conv2 = add<Conv2d>("conv2", width, width, 3, kSame, false);
    BatchNorm& norm2 = add<BatchNorm>("norm2", width);
};

struct ResidualNet : Module {
    ResidualNet(const Options& o, const DataInfo& data)
        : stem(add<Conv2d>("stem", data.input[2], o.width, 3, kSame)),
          blocks(add<ModuleList>("blocks")),
          head(add<Linear>("head", o.width, data.outputs)) {
        for (std::int64_t i = 0; i < o.blocks; ++i) blocks.append(std::make_unique<Block>(o.width));
    }
    Tensor forward(const Tensor& x) override {
        Tensor y = ops::relu(stem(x));
        for (Module* block : blocks) y = (*block)(y);
        return head(ops::mean(y, {1, 2}));
    }
    Conv2d& stem;
    ModuleList& blocks;
    Linear& head;
};

const RegisterModel<Options> kResidualNet{
    "residual_net", "A stem, residual blocks, and one linear layer.",
    [](const Options& o, const DataInfo& data) { return std::make_unique<ResidualNet>(o, data); },
    {key("width", &Options::width, within(1, 1024), "Channels between stem and head."),
     key("blocks", &Options::blocks, within(1, 100), "Residual blocks.")}};

}  // namespace
