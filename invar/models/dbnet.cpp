#include "invar/models/dbnet.h"

#include "invar/amp/autocast.h"
#include "invar/core/error.h"
#include "invar/models/models.h"
#include "invar/models/registry.h"
#include "invar/ops/ops.h"

namespace invar {

namespace {

constexpr std::int64_t kStride = 32;  // of the last stage

class Conv : public Conv2d {
  public:
    Conv(std::int64_t in, std::int64_t out, std::int64_t side) : Conv2d(in, out, side, {.padding = side / 2}, false) {
        draw_he(weight, in * side * side);
    }
};

// Twice the size; drawn with the fan that PyTorch counts for such a weight, which is that of its outputs.
class Enlarge : public ConvTranspose2d {
  public:
    Enlarge(std::int64_t in, std::int64_t out) : ConvTranspose2d(in, out, 2, {.stride = 2}) {
        draw_he(weight, out * 4);
    }
};

class Norm : public NormRelu {
  public:
    explicit Norm(std::int64_t channels) : NormRelu(channels) {
        ops::copy_(bias->value.detach(), Tensor::scalar(1e-4f));
    }
};

// A copy of each pixel is what it is in any precision, and so are sums of few gradients, which are added in FP32.
Tensor enlarged(const Tensor& x, double factor) {
    const Autocast as_it_is(Autocast::off());
    return ops::upsample(x, factor);
}

// From a quarter of the image's size to the whole: logits of a map.
class Head : public Module {
  public:
    explicit Head(std::int64_t inner)
        : conv_(add<Conv>("0", inner, inner / 4, 3)),
          norm1_(add<Norm>("1", inner / 4)),
          up1_(add<Enlarge>("3", inner / 4, inner / 4)),
          norm2_(add<Norm>("4", inner / 4)),
          up2_(add<Enlarge>("6", inner / 4, 1)) {}
    Tensor forward(const Tensor& x) override {
        const Tensor y = up1_(norm1_(conv_(x)));
        return ops::squeeze(up2_(norm2_(y)), -1);
    }

  private:
    Conv& conv_;
    Norm& norm1_;
    Enlarge& up1_;
    Norm& norm2_;
    Enlarge& up2_;
};

// A convolution and how much its result is enlarged, which the authors' code has as a second, nameless layer.
class Output : public Module {
  public:
    Output(std::int64_t inner, double factor) : factor_(factor), conv_(add<Conv>("0", inner, inner / 4, 3)) {}
    Tensor forward(const Tensor& x) override { return enlarged(conv_(x), factor_); }

  private:
    double factor_;
    Conv& conv_;
};

class Decoder : public Module {
  public:
    Decoder(const ResNetBackbone& backbone, std::int64_t inner)
        : in5_(add<Conv>("in5", backbone.stage_channels(3), inner, 1)),
          in4_(add<Conv>("in4", backbone.stage_channels(2), inner, 1)),
          in3_(add<Conv>("in3", backbone.stage_channels(1), inner, 1)),
          in2_(add<Conv>("in2", backbone.stage_channels(0), inner, 1)),
          out5_(add<Output>("out5", inner, 8)),
          out4_(add<Output>("out4", inner, 4)),
          out3_(add<Output>("out3", inner, 2)),
          out2_(add<Conv>("out2", inner, inner / 4, 3)),
          binarize_(add<Head>("binarize", inner)),
          thresh_(add<Head>("thresh", inner)) {}

    Tensors forward(const Tensors& stages) override {
        const Tensor top = in5_(stages[3]);
        const Tensor at16 = enlarged(top, 2) + in4_(stages[2]);
        const Tensor at8 = enlarged(at16, 2) + in3_(stages[1]);
        const Tensor at4 = enlarged(at8, 2) + in2_(stages[0]);
        const Tensor fused = ops::cat({out5_(top), out4_(at16), out3_(at8), out2_(at4)}, -1);
        return {binarize_(fused), thresh_(fused)};
    }
    // The heads have the largest activations.
    std::vector<Module*> checkpoint_blocks() override { return {&binarize_, &thresh_}; }

  private:
    Conv &in5_, &in4_, &in3_, &in2_;
    Output &out5_, &out4_, &out3_;
    Conv& out2_;
    Head &binarize_, &thresh_;
};

class DbNet : public Module {
  public:
    DbNet(const DbNetOptions& options, std::int64_t channels)
        : options_(options),
          channels_(channels),
          backbone_(add<ResNetBackbone>("backbone", ResNetOptions{.layers = options.layers, .width = options.width},
                                        channels)),
          decoder_(add<Decoder>("decoder", backbone_, options.inner)) {}

    Tensors forward(const Tensors& inputs) override {
        check(inputs.size() == 1, "model dbnet takes one tensor and was given {}", inputs.size());
        const Tensor& x = inputs[0];
        check<UsageError>(
            x.rank() == 4 && x.size(3) == channels_ && x.size(1) % kStride == 0 && x.size(2) % kStride == 0,
            "model dbnet takes images [n, height, width, {}] with sides that are multiples of {}, not {}", channels_,
            kStride, x.shape().str());
        return decoder_(backbone_(inputs));
    }
    Tensor forward(const Tensor& x) override { return ops::stack(forward(Tensors{x}), -1); }

    std::unique_ptr<Module> new_instance() const override { return std::make_unique<DbNet>(options_, channels_); }
    std::vector<Module*> checkpoint_blocks() override {
        std::vector<Module*> blocks = backbone_.checkpoint_blocks();
        for (Module* head : decoder_.checkpoint_blocks()) blocks.push_back(head);
        return blocks;
    }
    // The authors' files say model.module. before each name, and hold a classifier that nothing reads. A residual
    // network's own, such as torchvision's, are of the backbone alone.
    std::string own_name(const std::string& in_file) const override {
        std::string name = in_file;
        for (const std::string_view around : {"model.", "module."})
            if (name.starts_with(around)) name.erase(0, around.size());
        for (const std::string_view in_backbone : {"conv1.", "bn1.", "layer", "fc."})
            if (name.starts_with(in_backbone)) name = "backbone." + name;
        return name.starts_with("backbone.fc.") || name.starts_with("backbone.smooth.") ? "" : name;
    }

  private:
    DbNetOptions options_;
    std::int64_t channels_;
    ResNetBackbone& backbone_;
    Decoder& decoder_;
};

using O = DbNetOptions;
const RegisterModel<O> kDbNet{"dbnet",
                              "DBNet: maps of where text is in an image, on a residual network.",
                              make_dbnet,
                              {key("layers", &O::layers, custom("18, 34, 50, 101 or 152", is_resnet),
                                   "Layers of the residual network.", {"model.depth"}),
                               key("width", &O::width, within(1, 1 << 14), "Channels of its first stage."),
                               key("inner", &O::inner,
                                   custom("a multiple of 4, from 4 to 16384",
                                          [](double v) { return v >= 4 && v <= 16384 && std::int64_t(v) % 4 == 0; }),
                                   "Channels of the feature pyramid.", {"model.inner_channels"})}};

}  // namespace

std::unique_ptr<Module> make_dbnet(const DbNetOptions& options, const DataInfo& data) {
    const ImageShape image = image_shape("dbnet", data);
    check<UsageError>(image.height % kStride == 0 && image.width % kStride == 0,
                      "model dbnet takes images with sides that are multiples of {}, not {}x{}", kStride, image.height,
                      image.width);
    check<UsageError>(options.inner >= 4 && options.inner % 4 == 0, "model.inner = {}: is no multiple of 4",
                      options.inner);
    return std::make_unique<DbNet>(options, image.channels);
}

}  // namespace invar
