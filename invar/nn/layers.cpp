#include "invar/nn/layers.h"

#include <cmath>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/kernels/kernels.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/checkpoint.h"
#include "invar/ops/ops.h"

namespace invar {

namespace {

// PyTorch's default for weights and biases alike: uniform within 1 / sqrt(fan_in).
Tensor uniform_within(const Shape& shape, std::int64_t fan_in) {
    const PurposeScope purpose(Purpose::weights);
    const double bound = fan_in > 0 ? 1.0 / std::sqrt(double(fan_in)) : 0.0;
    return ops::uniform(shape, -bound, bound);
}

Tensor filled(const Shape& shape, double value, Dtype dtype = Dtype::f32) {
    const PurposeScope purpose(Purpose::weights);
    return ops::full(shape, value, dtype);
}

FileLayout linear_layout(std::int64_t in, std::int64_t out, const ImageShape& image) {
    check<UsageError>(image.channels == 0 || image.height * image.width * image.channels == in,
                      "linear: an image of {}x{}x{} does not have {} values", image.height, image.width, image.channels,
                      in);
    if (image.channels == 0 || image.height * image.width == 1 || image.channels == 1) return {};
    return {{out, image.height, image.width, image.channels}, {0, 3, 1, 2}, {out, in}};
}

// [a, kh, kw, b] in memory, [a, b, kh, kw] in files.
FileLayout conv_layout(std::int64_t a, ops::Pair kernel, std::int64_t b) {
    return {{a, kernel.height, kernel.width, b}, {0, 3, 1, 2}, {a, b, kernel.height, kernel.width}};
}

// Before a size is divided by the groups.
template <class Options>
Options checked(const Options& options, std::int64_t in, std::int64_t out, ops::Pair kernel) {
    check<UsageError>(options.groups > 0 && in % options.groups == 0 && out % options.groups == 0,
                      "convolution: {} groups do not divide {} inputs and {} outputs", options.groups, in, out);
    check<UsageError>(in > 0 && out > 0 && kernel.height > 0 && kernel.width > 0,
                      "convolution: {} inputs, {} outputs and a kernel of ({}, {}) must all be at least 1", in, out,
                      kernel.height, kernel.width);
    return options;
}

// Of layers that hand it to operations of class low alone.
Parameter& read_low(Parameter& parameter) {
    parameter.read_low = true;
    return parameter;
}

Tensor value_of(const Parameter* parameter) {
    return parameter ? parameter->value : Tensor{};
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, bool with_bias, ImageShape image, Activation activation)
    : weight(read_low(add_parameter("weight", uniform_within({out, in}, in), linear_layout(in, out, image)))),
      image_(image),
      activation_(activation) {
    if (with_bias) bias = &read_low(add_parameter("bias", uniform_within({out}, in)));
}
Tensor Linear::forward(const Tensor& x) {
    return ops::linear(x, weight.value, value_of(bias), activation_);
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, ops::Pair kernel, ops::Conv2dOptions options, bool with_bias)
    : options_(checked(options, in, out, kernel)),
      weight(read_low(add_parameter("weight",
                                    uniform_within({out, kernel.height, kernel.width, in / options.groups},
                                                   in / options.groups * kernel.height * kernel.width),
                                    conv_layout(out, kernel, in / options.groups)))) {
    if (with_bias)
        bias =
            &read_low(add_parameter("bias", uniform_within({out}, in / options.groups * kernel.height * kernel.width)));
}
Tensor Conv2d::forward(const Tensor& x) {
    return ops::conv2d(x, weight.value, value_of(bias), options_);
}

Conv1d::Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, ops::Conv1dOptions options, bool with_bias)
    : options_(checked(options, in, out, kernel)),
      weight(read_low(
          add_parameter("weight", uniform_within({out, 1, kernel, in / options.groups}, in / options.groups * kernel),
                        {{out, 1, kernel, in / options.groups}, {0, 3, 1, 2}, {out, in / options.groups, kernel}}))) {
    if (with_bias) bias = &read_low(add_parameter("bias", uniform_within({out}, in / options.groups * kernel)));
}
Tensor Conv1d::forward(const Tensor& x) {
    check(x.rank() == 3, "Conv1d: the input must be [batch, length, channels], not {}", x.shape().str());
    return ops::squeeze(ops::conv2d(ops::unsqueeze(x, 1), weight.value, value_of(bias), ops::image_options(options_)),
                        1);
}

ConvTranspose2d::ConvTranspose2d(std::int64_t in, std::int64_t out, ops::Pair kernel, ops::Conv2dOptions options,
                                 bool with_bias)
    : options_(checked(options, in, out, kernel)),
      weight(read_low(add_parameter("weight",
                                    uniform_within({in, kernel.height, kernel.width, out / options.groups},
                                                   out / options.groups * kernel.height * kernel.width),
                                    conv_layout(in, kernel, out / options.groups)))) {
    if (with_bias)
        bias = &read_low(
            add_parameter("bias", uniform_within({out}, out / options.groups * kernel.height * kernel.width)));
}
Tensor ConvTranspose2d::forward(const Tensor& x) {
    return ops::conv_transpose2d(x, weight.value, value_of(bias), options_);
}

BatchNorm::BatchNorm(std::int64_t channels, double eps, double momentum, bool affine, Activation activation)
    : weight(affine ? &add_parameter("weight", filled({channels}, 1.0)) : nullptr),
      bias(affine ? &add_parameter("bias", filled({channels}, 0.0)) : nullptr),
      running_mean(add_buffer("running_mean", filled({channels}, 0.0))),
      running_var(add_buffer("running_var", filled({channels}, 1.0))),
      batches(add_buffer("num_batches_tracked", filled({}, 0, Dtype::i64))),
      eps_(eps),
      momentum_(momentum),
      activation_(activation) {}
Tensor BatchNorm::forward(const Tensor& x) {
    return normalised(x, {});
}
Tensors BatchNorm::forward(const Tensors& inputs) {
    return inputs.size() == 2 ? Tensors{normalised(inputs[0], inputs[1])} : Module::forward(inputs);
}
Tensor BatchNorm::normalised(const Tensor& x, const Tensor& residual) {
    if (training() && !ops::recomputing()) {
        const NoGrad no_grad;
        Kernels& kernels = kernels_for(batches.device());
        kernels.unary(UnaryOp::Affine, batches.view(), batches.view(), {1, 1});
    }
    return ops::batch_norm(x, value_of(weight), value_of(bias), running_mean, running_var, training(), momentum_, eps_,
                           {activation_, residual});
}

LayerNorm::LayerNorm(std::int64_t size, double eps, bool affine)
    : weight(affine ? &add_parameter("weight", filled({size}, 1.0)) : nullptr),
      bias(affine ? &add_parameter("bias", filled({size}, 0.0)) : nullptr),
      size_(size),
      eps_(eps) {}
Tensor LayerNorm::forward(const Tensor& x) {
    return ops::layer_norm(x, {size_}, value_of(weight), value_of(bias), eps_);
}

Tensors LayerNorm::forward(const Tensors& inputs) {
    if (inputs.size() != 2) return Module::forward(inputs);
    return ops::add_layer_norm(inputs[0], inputs[1], value_of(weight), value_of(bias), eps_);
}

RmsNorm::RmsNorm(std::int64_t size, double eps) : weight(add_parameter("weight", filled({size}, 1.0))), eps_(eps) {}
Tensor RmsNorm::forward(const Tensor& x) {
    return ops::rms_norm(x, weight.value, eps_);
}
Tensors RmsNorm::forward(const Tensors& inputs) {
    if (inputs.size() != 2) return Module::forward(inputs);
    return ops::add_rms_norm(inputs[0], inputs[1], weight.value, eps_);
}

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, double eps, bool affine)
    : weight(affine ? &add_parameter("weight", filled({channels}, 1.0)) : nullptr),
      bias(affine ? &add_parameter("bias", filled({channels}, 0.0)) : nullptr),
      groups_(groups),
      channels_(channels),
      eps_(eps) {}
Tensor GroupNorm::forward(const Tensor& x) {
    check(x.rank() > 0 && x.size(-1) == channels_, "GroupNorm: the last dimension of {} must be {} channels", x.str(),
          channels_);
    return ops::group_norm(x, int(groups_), value_of(weight), value_of(bias), eps_);
}

Embedding::Embedding(std::int64_t count, std::int64_t size, std::optional<std::int64_t> padding_idx)
    : weight([&]() -> Parameter& {
          const PurposeScope purpose(Purpose::weights);
          return add_parameter("weight", ops::normal({count, size}, 0.0, 1.0));
      }()),
      padding_idx_(padding_idx) {
    if (!padding_idx_) return;
    if (*padding_idx_ < 0) *padding_idx_ += count;
    check<UsageError>(*padding_idx_ >= 0 && *padding_idx_ < count, "Embedding: padding_idx {} is outside {} rows",
                      *padding_idx, count);
    kernels_for(weight.value.device()).fill(weight.value.window(*padding_idx_ * size, {size}).view(), 0);
}
Tensor Embedding::forward(const Tensor& ids) {
    return ops::embedding(ids, weight.value, padding_idx_);
}

Tensor Dropout::forward(const Tensor& x) {
    return ops::dropout(x, p_, training());
}
Tensor Relu::forward(const Tensor& x) {
    return ops::relu(x);
}
Tensor Gelu::forward(const Tensor& x) {
    return ops::gelu(x, tanh_form_);
}
Tensor LeakyRelu::forward(const Tensor& x) {
    return ops::leaky_relu(x, slope_);
}
Tensor Elu::forward(const Tensor& x) {
    return ops::elu(x, alpha_);
}
Tensor Silu::forward(const Tensor& x) {
    return ops::silu(x);
}
Tensor Hardswish::forward(const Tensor& x) {
    return ops::hardswish(x);
}
Tensor MaxPool2d::forward(const Tensor& x) {
    return ops::max_pool2d(x, options_);
}
Tensor AvgPool2d::forward(const Tensor& x) {
    return ops::avg_pool2d(x, options_);
}
Tensor AdaptiveAvgPool2d::forward(const Tensor& x) {
    return ops::adaptive_avg_pool2d(x, out_);
}
Tensor Flatten::forward(const Tensor& x) {
    return ops::flatten(x, 1);
}

// --- another one of each, for clone() ---

std::unique_ptr<Module> Linear::new_instance() const {
    const Shape& w = weight.value.shape();
    return std::make_unique<Linear>(w[1], w[0], bias != nullptr, image_, activation_);
}
std::unique_ptr<Module> Conv2d::new_instance() const {
    const Shape& w = weight.value.shape();
    return std::make_unique<Conv2d>(w[3] * options_.groups, w[0], ops::Pair(w[1], w[2]), options_, bias != nullptr);
}
std::unique_ptr<Module> Conv1d::new_instance() const {
    const Shape& w = weight.value.shape();
    return std::make_unique<Conv1d>(w[3] * options_.groups, w[0], w[2], options_, bias != nullptr);
}
std::unique_ptr<Module> ConvTranspose2d::new_instance() const {
    const Shape& w = weight.value.shape();
    return std::make_unique<ConvTranspose2d>(w[0], w[3] * options_.groups, ops::Pair(w[1], w[2]), options_,
                                             bias != nullptr);
}
std::unique_ptr<Module> BatchNorm::new_instance() const {
    return std::make_unique<BatchNorm>(running_mean.size(0), eps_, momentum_, weight != nullptr, activation_);
}
std::unique_ptr<Module> LayerNorm::new_instance() const {
    return std::make_unique<LayerNorm>(size_, eps_, weight != nullptr);
}
std::unique_ptr<Module> RmsNorm::new_instance() const {
    return std::make_unique<RmsNorm>(weight.value.size(0), eps_);
}
std::unique_ptr<Module> GroupNorm::new_instance() const {
    return std::make_unique<GroupNorm>(groups_, channels_, eps_, weight != nullptr);
}
std::unique_ptr<Module> Embedding::new_instance() const {
    return std::make_unique<Embedding>(weight.value.size(0), weight.value.size(1), padding_idx_);
}
std::unique_ptr<Module> Dropout::new_instance() const {
    return std::make_unique<Dropout>(p_);
}
std::unique_ptr<Module> Relu::new_instance() const {
    return std::make_unique<Relu>();
}
std::unique_ptr<Module> Identity::new_instance() const {
    return std::make_unique<Identity>();
}
std::unique_ptr<Module> Gelu::new_instance() const {
    return std::make_unique<Gelu>(tanh_form_);
}
std::unique_ptr<Module> MaxPool2d::new_instance() const {
    return std::make_unique<MaxPool2d>(options_.kernel, options_);
}
std::unique_ptr<Module> AvgPool2d::new_instance() const {
    return std::make_unique<AvgPool2d>(options_.kernel, options_);
}
std::unique_ptr<Module> AdaptiveAvgPool2d::new_instance() const {
    return std::make_unique<AdaptiveAvgPool2d>(out_);
}
std::unique_ptr<Module> LeakyRelu::new_instance() const {
    return std::make_unique<LeakyRelu>(slope_);
}
std::unique_ptr<Module> Elu::new_instance() const {
    return std::make_unique<Elu>(alpha_);
}
std::unique_ptr<Module> Silu::new_instance() const {
    return std::make_unique<Silu>();
}
std::unique_ptr<Module> Hardswish::new_instance() const {
    return std::make_unique<Hardswish>();
}
std::unique_ptr<Module> Flatten::new_instance() const {
    return std::make_unique<Flatten>();
}

}  // namespace invar
