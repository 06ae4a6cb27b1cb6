// The built-in ConvNet as somebody would write it on the public interface, as a plug-in: own_vs_built_in.sh measures
// one beside the other.
#include "invar/invar.h"
#include "invar/plugin.h"

using namespace invar;

namespace {

struct Options {
    double dropout = -1;
};

struct OwnConvNet : Module {
    OwnConvNet(const Options& o, const DataInfo& data)
        : pooled{(data.input[0] - 4) / 2, (data.input[1] - 4) / 2, 64},
          conv1(add<Conv2d>("conv1", data.input[2], 32, 3, ops::Conv2dOptions{.activation = Activation::relu})),
          conv2(add<Conv2d>("conv2", 32, 64, 3)),
          dropout1(add<Dropout>("dropout1", o.dropout < 0 ? 0.25 : o.dropout)),
          dropout2(add<Dropout>("dropout2", o.dropout < 0 ? 0.5 : o.dropout)),
          fc1(add<Linear>("fc1", pooled.height * pooled.width * 64, 128, true, pooled, Activation::relu)),
          fc2(add<Linear>("fc2", 128, data.outputs)) {}
    Tensor forward(const Tensor& x) override {
        const Tensor y = ops::max_pool2d(conv2(conv1(x)), {.kernel = {2, 2}, .activation = Activation::relu});
        return fc2(dropout2(fc1(ops::flatten(dropout1(y), 1))));
    }
    ImageShape pooled;
    Conv2d &conv1, &conv2;
    Dropout &dropout1, &dropout2;
    Linear &fc1, &fc2;
};

const RegisterModel<Options> kOwn{
    "own_convnet",
    "The ConvNet, written by a user.",
    [](const Options& o, const DataInfo& data) { return std::make_unique<OwnConvNet>(o, data); },
    {key("dropout", &Options::dropout, within(-1, 1), "Both rates; -1 for 0.25 and 0.5.")}};

}  // namespace

INVAR_PLUGIN {}
