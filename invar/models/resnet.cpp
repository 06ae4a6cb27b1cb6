#include "invar/models/resnet.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/models/models.h"
#include "invar/models/registry.h"
#include "invar/ops/ops.h"

namespace invar {

void draw_he(Parameter& weight, std::int64_t fan) {
    draw_normal(weight, std::sqrt(2.0 / double(fan)));
}

namespace {

// What the number of layers stands for.
struct Plan {
    std::int64_t layers;
    bool bottleneck;
    std::int64_t blocks[4];
};
constexpr Plan kPlans[] = {{18, false, {2, 2, 2, 2}},
                           {34, false, {3, 4, 6, 3}},
                           {50, true, {3, 4, 6, 3}},
                           {101, true, {3, 4, 23, 3}},
                           {152, true, {3, 8, 36, 3}}};

const Plan& plan_of(const ResNetOptions& options) {
    for (const Plan& plan : kPlans)
        if (plan.layers == options.layers) return plan;
    fail<UsageError>("model.layers = {}: a ResNet has 18, 34, 50, 101 or 152 layers", options.layers);
}

// Without a bias, since a norm follows; of a side that is odd, and with the padding that keeps the size.
class Conv : public Conv2d {
  public:
    Conv(std::int64_t in, std::int64_t out, std::int64_t side, std::int64_t stride = 1)
        : Conv2d(in, out, side, {.stride = stride, .padding = side / 2}, false) {
        draw_he(weight, out * side * side);
    }
};

// Where a block changes the size, or the number of channels.
class Downsample : public Module {
  public:
    Downsample(std::int64_t in, std::int64_t out, std::int64_t stride)
        : conv_(add<Conv>("0", in, out, 1, stride)), norm_(add<BatchNorm>("1", out)) {}
    Tensor forward(const Tensor& x) override { return norm_(conv_(x)); }

  private:
    Conv& conv_;
    BatchNorm& norm_;
};

struct BlockShape {
    std::int64_t in, width, out, stride;
    bool zero_init_last_gamma;
    bool changes() const { return stride != 1 || in != out; }
};

void begin_at_zero(BatchNorm& norm) {
    ops::copy_(norm.weight->value.detach(), Tensor::scalar(0));
}

class BasicBlock : public Module {
  public:
    explicit BasicBlock(const BlockShape& s)
        : conv1_(add<Conv>("conv1", s.in, s.width, 3, s.stride)),
          bn1_(add<NormRelu>("bn1", s.width)),
          conv2_(add<Conv>("conv2", s.width, s.out, 3)),
          bn2_(add<NormRelu>("bn2", s.out)) {
        if (s.changes()) downsample_ = &add<Downsample>("downsample", s.in, s.out, s.stride);
        if (s.zero_init_last_gamma) begin_at_zero(bn2_);
    }
    Tensor forward(const Tensor& x) override {
        const Tensor y = conv2_(bn1_(conv1_(x)));
        return bn2_(y, downsample_ != nullptr ? (*downsample_)(x) : x)[0];
    }

  private:
    Conv& conv1_;
    NormRelu& bn1_;
    Conv& conv2_;
    NormRelu& bn2_;
    Downsample* downsample_ = nullptr;
};

class Bottleneck : public Module {
  public:
    explicit Bottleneck(const BlockShape& s)
        : conv1_(add<Conv>("conv1", s.in, s.width, 1)),
          bn1_(add<NormRelu>("bn1", s.width)),
          conv2_(add<Conv>("conv2", s.width, s.width, 3, s.stride)),
          bn2_(add<NormRelu>("bn2", s.width)),
          conv3_(add<Conv>("conv3", s.width, s.out, 1)),
          bn3_(add<NormRelu>("bn3", s.out)) {
        if (s.changes()) downsample_ = &add<Downsample>("downsample", s.in, s.out, s.stride);
        if (s.zero_init_last_gamma) begin_at_zero(bn3_);
    }
    Tensor forward(const Tensor& x) override {
        const Tensor y = bn2_(conv2_(bn1_(conv1_(x))));
        return bn3_(conv3_(y), downsample_ != nullptr ? (*downsample_)(x) : x)[0];
    }

  private:
    Conv& conv1_;
    NormRelu& bn1_;
    Conv& conv2_;
    NormRelu& bn2_;
    Conv& conv3_;
    NormRelu& bn3_;
    Downsample* downsample_ = nullptr;
};

}  // namespace

ResNetBackbone::ResNetBackbone(const ResNetOptions& options, std::int64_t channels)
    : options_((check_resnet(options), options)),
      channels_(channels),
      conv1_(options.stem == "cifar" ? add<Conv>("conv1", channels, options.width, 3)
                                     : add<Conv>("conv1", channels, options.width, 7, 2)),
      bn1_(add<NormRelu>("bn1", options.width)) {
    const Plan& plan = plan_of(options);
    std::int64_t in = options.width;
    for (int stage = 0; stage < 4; ++stage) {
        Sequential& layer = add<Sequential>("layer" + std::to_string(stage + 1));
        for (std::int64_t i = 0; i < plan.blocks[stage]; ++i) {
            const BlockShape shape{in, options.width << stage, stage_channels(stage), i == 0 && stage > 0 ? 2 : 1,
                                   options.zero_init_last_gamma};
            if (plan.bottleneck)
                layer.then(std::make_unique<Bottleneck>(shape));
            else
                layer.then(std::make_unique<BasicBlock>(shape));
            in = shape.out;
        }
        layers_[stage] = &layer;
    }
}

std::int64_t ResNetBackbone::stage_channels(int stage) const {
    return (options_.width << stage) * (plan_of(options_).bottleneck ? 4 : 1);
}

Tensors ResNetBackbone::stages(const Tensor& x) {
    check<UsageError>(x.rank() == 4 && x.size(3) == channels_,
                      "model resnet takes images [n, height, width, {}], not {}", channels_, x.shape().str());
    Tensor y = bn1_(conv1_(x));
    if (options_.stem != "cifar") y = ops::max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});
    Tensors results;
    for (Sequential* layer : layers_) {
        // A view of its own for what reads the next stage: its gradients are added up before others come to them, in
        // the same order whether or not the stage is recomputed.
        if (!results.empty()) y = ops::reshape(y, y.shape());
        results.push_back(y = (*layer)(y));
    }
    return results;
}

Tensors ResNetBackbone::forward(const Tensors& inputs) {
    check(inputs.size() == 1, "a ResNet takes one tensor and was given {}", inputs.size());
    return stages(inputs[0]);
}

std::vector<Module*> ResNetBackbone::checkpoint_blocks() {
    std::vector<Module*> blocks;
    for (Sequential* layer : layers_)
        for (Module* block : layer->checkpoint_blocks()) blocks.push_back(block);
    return blocks;
}

std::unique_ptr<Module> ResNetBackbone::new_instance() const {
    return std::make_unique<ResNetBackbone>(options_, channels_);
}

ResNet::ResNet(const ResNetOptions& options, std::int64_t channels, std::int64_t classes)
    : ResNetBackbone(options, channels), fc_(add<Linear>("fc", stage_channels(3), classes)) {}

Tensor ResNet::forward(const Tensor& x) {
    const Tensor pooled = ops::mean(stages(x).back(), {1, 2});
    return fc_(ops::dropout(pooled, options_.dropout, training()));
}

std::unique_ptr<Module> ResNet::new_instance() const {
    return std::make_unique<ResNet>(options_, channels_, fc_.weight.value.size(0));
}

bool is_resnet(double layers) {
    return std::ranges::any_of(kPlans, [&](const Plan& plan) { return double(plan.layers) == layers; });
}

void check_resnet(const ResNetOptions& options) {
    plan_of(options);
    check<UsageError>(options.stem == "imagenet" || options.stem == "cifar",
                      "model.stem = '{}': is neither imagenet nor cifar", options.stem);
    check<UsageError>(options.width >= 1 && options.width <= 1 << 14, "model.width = {}: expected 1 to {}",
                      options.width, 1 << 14);
}

std::unique_ptr<Module> make_resnet(const ResNetOptions& options, const DataInfo& data) {
    const ImageShape image = image_shape("resnet", data);
    return std::make_unique<ResNet>(options, image.channels, outputs_for(options.classes, data));
}

namespace {

using O = ResNetOptions;
const RegisterModel<O> kResNet{"resnet",
                               "A residual network of 18, 34, 50, 101 or 152 layers.",
                               make_resnet,
                               {key("layers", &O::layers, custom("18, 34, 50, 101 or 152", is_resnet),
                                    "Layers: 18 and 34 in blocks of two, the others in bottlenecks.", {"model.depth"}),
                                key("stem", &O::stem, one_of({"imagenet", "cifar"}),
                                    "How it begins: a 7x7 by 2 and a pool by 2, or, for small images, a 3x3."),
                                key("width", &O::width, within(1, 1 << 14), "Channels of the first stage."),
                                key("zero_init_last_gamma", &O::zero_init_last_gamma, any(),
                                    "Begin each block as its shortcut.", {"model.zero_init_residual"}),
                                key("dropout", &O::dropout, below(0, 1), "Before the last layer.", {"model.drop_rate"}),
                                key("classes", &O::classes, within(0, 1 << 20),
                                    "Outputs; 0 for as many as the data have.", {"model.num_classes"})}};

}  // namespace

}  // namespace invar
