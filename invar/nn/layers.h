// The layers: PyTorch's arguments, defaults, names and initial distributions. Images are NHWC.
#pragma once

#include <optional>

#include "invar/nn/module.h"
#include "invar/ops/conv.h"
#include "invar/ops/pool.h"

namespace invar {

// Where the columns of a Linear after a flattened image come from; files keep PyTorch's channel-first order.
struct ImageShape {
    std::int64_t height = 0, width = 0, channels = 0;
};

class Linear : public Module {
  public:
    Linear(std::int64_t in, std::int64_t out, bool bias = true, ImageShape image = {},
           Activation activation = Activation::none);
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;
    Parameter& weight;
    Parameter* bias = nullptr;

  private:
    ImageShape image_;
    Activation activation_;
};

class Conv2d : public Module {
  public:
    Conv2d(std::int64_t in, std::int64_t out, ops::Pair kernel, ops::Conv2dOptions options = {}, bool bias = true);
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    ops::Conv2dOptions options_;  // checked before the weights are made

  public:
    Parameter& weight;
    Parameter* bias = nullptr;
};

// Over [batch, length, channels].
class Conv1d : public Module {
  public:
    Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel, ops::Conv1dOptions options = {}, bool bias = true);
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    ops::Conv1dOptions options_;  // checked before the weights are made

  public:
    Parameter& weight;  // [out, 1, kernel, in / groups], as Conv2d's; [out, in / groups, kernel] in files
    Parameter* bias = nullptr;
};

class ConvTranspose2d : public Module {
  public:
    ConvTranspose2d(std::int64_t in, std::int64_t out, ops::Pair kernel, ops::Conv2dOptions options = {},
                    bool bias = true);
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    ops::Conv2dOptions options_;  // checked before the weights are made

  public:
    Parameter& weight;
    Parameter* bias = nullptr;
};

// Over the last dimension, whatever stands before it: BatchNorm1d and 2d alike. Norms that are not affine have neither
// weight nor bias. Called with two tensors, it adds the second, a residual, before the activation (none or ReLU): all in
// one pass.
class BatchNorm : public Module {
  public:
    explicit BatchNorm(std::int64_t channels, double eps = 1e-5, double momentum = 0.1, bool affine = true,
                       Activation activation = Activation::none);
    Tensor forward(const Tensor& x) override;
    Tensors forward(const Tensors& inputs) override;
    std::unique_ptr<Module> new_instance() const override;
    Parameter *weight = nullptr, *bias = nullptr;
    Tensor &running_mean, &running_var, &batches;

  private:
    Tensor normalised(const Tensor& x, const Tensor& residual);
    double eps_, momentum_;
    Activation activation_;
};

// Called with two tensors, a residual stream and a branch, both norms give {their sum, its norm}, in one pass.
class LayerNorm : public Module {
  public:
    explicit LayerNorm(std::int64_t size, double eps = 1e-5, bool affine = true);
    Tensor forward(const Tensor& x) override;
    Tensors forward(const Tensors& inputs) override;
    std::unique_ptr<Module> new_instance() const override;
    Parameter *weight = nullptr, *bias = nullptr;

  private:
    std::int64_t size_;
    double eps_;
};

class RmsNorm : public Module {
  public:
    explicit RmsNorm(std::int64_t size, double eps = 1e-6);
    Tensor forward(const Tensor& x) override;
    Tensors forward(const Tensors& inputs) override;
    std::unique_ptr<Module> new_instance() const override;
    Parameter& weight;

  private:
    double eps_;
};

class GroupNorm : public Module {
  public:
    GroupNorm(std::int64_t groups, std::int64_t channels, double eps = 1e-5, bool affine = true);
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;
    Parameter *weight = nullptr, *bias = nullptr;

  private:
    std::int64_t groups_, channels_;
    double eps_;
};

class Embedding : public Module {
  public:
    // The row of `padding_idx` (a negative one counts from the end) starts at zero and gets no gradient: it stays so.
    Embedding(std::int64_t count, std::int64_t size, std::optional<std::int64_t> padding_idx = {});
    Tensor forward(const Tensor& ids) override;
    std::unique_ptr<Module> new_instance() const override;
    Parameter& weight;

  private:
    std::optional<std::int64_t> padding_idx_;
};

class Dropout : public Module {
  public:
    explicit Dropout(double p) : p_(p) {}
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    double p_;
};

class Relu : public Module {
  public:
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;
};

// Keeps a place in a Sequential whose work another layer does, so that the names of those behind it stay.
class Identity : public Module {
  public:
    Tensor forward(const Tensor& x) override { return x; }
    std::unique_ptr<Module> new_instance() const override;
};

class Gelu : public Module {
  public:
    explicit Gelu(bool tanh_form = false) : tanh_form_(tanh_form) {}
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    bool tanh_form_;
};

class LeakyRelu : public Module {
  public:
    explicit LeakyRelu(double slope = 0.01) : slope_(slope) {}
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    double slope_;
};

class Elu : public Module {
  public:
    explicit Elu(double alpha = 1) : alpha_(alpha) {}
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    double alpha_;
};

class Silu : public Module {
  public:
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;
};

class Hardswish : public Module {
  public:
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;
};

// The kernel that counts is the first argument.
class MaxPool2d : public Module {
  public:
    explicit MaxPool2d(ops::Pair kernel, const ops::Pool2dOptions& options = {}) : options_(options) {
        options_.kernel = kernel;
    }
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    ops::Pool2dOptions options_;
};

class AvgPool2d : public Module {
  public:
    explicit AvgPool2d(ops::Pair kernel, const ops::Pool2dOptions& options = {}) : options_(options) {
        options_.kernel = kernel;
    }
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    ops::Pool2dOptions options_;
};

class AdaptiveAvgPool2d : public Module {
  public:
    explicit AdaptiveAvgPool2d(ops::Pair out) : out_(out) {}
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;

  private:
    ops::Pair out_;
};

class Flatten : public Module {
  public:
    Tensor forward(const Tensor& x) override;
    std::unique_ptr<Module> new_instance() const override;
};

}  // namespace invar
