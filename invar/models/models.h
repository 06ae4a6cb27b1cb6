// The models that come along, each in a file of its own; registry.h makes any by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "invar/data/dataset.h"
#include "invar/nn/layers.h"

namespace invar {

// Fully connected layers with ReLU between them.
struct MlpOptions {
    std::vector<std::int64_t> hidden = {512};  // widths of the layers between; empty: none
    std::int64_t classes = 0;                  // outputs; 0: as many as the data have
    double dropout = -1;                       // behind each of them; not above 0: none
};
std::unique_ptr<Module> make_mlp(const MlpOptions& options, const DataInfo& data);

// The small ConvNet that people start with on MNIST.
struct ConvNetOptions {
    std::int64_t classes = 0;  // outputs; 0: as many as the data have
    double dropout = -1;       // both rates; negative: 0.25 and 0.5
};
std::unique_ptr<Module> make_convnet(const ConvNetOptions& options, const DataInfo& data);

// The Vision Transformer. With a patch of 16 on images of 224x224, Ti, S, B and L have 12, 12, 12 and 24 layers, 3, 6,
// 12 and 16 heads, and a width of 192, 384, 768 and 1024; the numbers here are for images of 28x28 or 32x32.
struct VitOptions {
    std::int64_t patch = 4, layers = 6, heads = 3, width = 192;
    double mlp_ratio = 4.0;        // of the layer between, to the width
    std::int64_t classes = 0;      // outputs; 0: as many as the data have
    std::string pool = "cls";      // what the head reads: "cls", the class token; "mean", that of the patches
    double dropout = 0.0;          // behind embeddings, attention and both layers of a block
    double attention_dropout = 0;  // of the weights of attention
};
std::unique_ptr<Module> make_vit(const VitOptions& options, const DataInfo& data);

// What a classifier ends in: `classes` outputs, or as many as the data have. A UsageError where those are too few.
std::int64_t outputs_for(std::int64_t classes, const DataInfo& data);
// [height, width, channels] of a sample; a UsageError where the data are no images.
ImageShape image_shape(const char* model, const DataInfo& data);
// Fresh weights as transformers begin with: a normal distribution about 0, and no bias.
void draw_normal(Parameter& weight, double deviation);
void draw_normal(Linear& layer, double deviation);

}  // namespace invar
