// Residual networks, as torchvision builds them (version 1.5: a bottleneck's stride stands in its 3x3), with its names:
// ResNet classifies, ResNetBackbone gives the outputs of the four stages to whatever stands on them.
#pragma once

#include <memory>
#include <string>

#include "invar/data/dataset.h"
#include "invar/nn/layers.h"

namespace invar {

struct ResNetOptions {
    std::int64_t layers = 18;           // 18, 34, 50, 101 or 152
    std::string stem = "imagenet";      // a 7x7 by 2 and a pool by 2; or "cifar", a 3x3, for images of 32x32
    std::int64_t width = 64;            // of the first stage; each further one has twice as many channels
    bool zero_init_last_gamma = false;  // each block begins as its shortcut
    double dropout = 0;                 // before the last layer
    std::int64_t classes = 0;           // outputs; 0: as many as the data have
};

// relu(norm(x)), or, called with two tensors, relu(norm(x) + residual): in one pass.
class NormRelu : public BatchNorm {
  public:
    explicit NormRelu(std::int64_t channels) : BatchNorm(channels, 1e-5, 0.1, true, Activation::relu) {}
};

// Weights of a convolution by He et al.: a normal distribution of deviation sqrt(2 / fan).
void draw_he(Parameter& weight, std::int64_t fan);

// Called with a list of one tensor, [n, height, width, channels], it gives those behind layer1 to layer4.
class ResNetBackbone : public Module {
  public:
    ResNetBackbone(const ResNetOptions& options, std::int64_t channels);
    Tensors forward(const Tensors& inputs) override;
    std::unique_ptr<Module> new_instance() const override;
    std::vector<Module*> checkpoint_blocks() override;
    std::int64_t stage_channels(int stage) const;  // of stage 0 to 3

  protected:
    Tensors stages(const Tensor& x);
    ResNetOptions options_;
    std::int64_t channels_;  // of images

  private:
    Conv2d& conv1_;
    NormRelu& bn1_;
    Sequential* layers_[4];
};

class ResNet : public ResNetBackbone {
  public:
    ResNet(const ResNetOptions& options, std::int64_t channels, std::int64_t classes);
    Tensor forward(const Tensor& x) override;
    Tensors forward(const Tensors& inputs) override { return Module::forward(inputs); }
    std::unique_ptr<Module> new_instance() const override;

  private:
    Linear& fc_;
};

// Whether there is one of so many layers.
bool is_resnet(double layers);
// Throws a UsageError where the options name no such network.
void check_resnet(const ResNetOptions& options);
std::unique_ptr<Module> make_resnet(const ResNetOptions& options, const DataInfo& data);

}  // namespace invar
