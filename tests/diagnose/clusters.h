// A sound little task, and the faults that a test can plant into it: four classes of points, told apart by two layers.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "invar/core/rng.h"
#include "invar/nn/layers.h"
#include "invar/ops/apply.h"
#include "invar/ops/ops.h"
#include "invar/tasks/task.h"

namespace invar {

struct ClusterFaults {
    std::int64_t nan_at = -1, wrong_label_at = -1;  // samples of the training data
    std::int64_t test_width = 6;                    // numbers of a test sample
    bool detached = false, wrong_backward = false, frozen = false, sum_loss = false, per_batch = false;
    bool random_data = false, random_weights = false, random_loss = false, hidden_counter = false;
    bool needs_f32 = false, unused = false, throws_lines = false;
    bool constant_labels = false, random_evaluation = false, statistics_in_evaluation = false;
    bool frozen_in = false, dead = false, clips_gradients = false;
    std::optional<Dtype> average = {};  // a buffer that keeps one, of `momentum`
    double momentum = 0.999, loss_factor = 1.0;
    bool zero_loss = false, constant_loss = false, loose_loss = false, idle_gradient = false;
};

class ClusterData final : public Dataset {
  public:
    ClusterData(Split split, const ClusterFaults& faults) : split_(split), faults_(faults) {}
    std::string name() const override { return "clusters"; }
    std::int64_t size() const override { return split_ == Split::train ? 64 : 24; }
    DataInfo info() const override { return {{width()}, 4}; }
    Batch read(std::span<const std::int64_t> indices) const override {
        const std::int64_t n = std::int64_t(indices.size());
        Batch batch({{"x", Tensor::empty({n, width()}, Dtype::f32)}, {"y", Tensor::empty({n}, Dtype::i64)}}, n);
        float* x = batch["x"].data<float>();
        std::int64_t* y = batch["y"].data<std::int64_t>();
        for (const std::int64_t index : indices) {
            const std::int64_t label = index * 7 % 4;
            for (std::int64_t i = 0; i < width(); ++i) {
                const Random4 noise = philox(split_ == Split::train ? 1 : 2, std::uint64_t(index), std::uint64_t(i));
                *x++ = (i % 4 == label ? 1.0f : -0.3f) + 0.2f * to_unit(noise.v[0]);
            }
            if (split_ == Split::train && index == faults_.nan_at) x[-1] = std::numeric_limits<float>::quiet_NaN();
            if (faults_.random_data) x[-1] += float(std::random_device()()) * 0x1p-32f;
            if (faults_.constant_labels) {
                *y++ = 3;
                continue;
            }
            *y++ = split_ == Split::train && index == faults_.wrong_label_at ? 4 : label;
        }
        return batch;
    }

  private:
    std::int64_t width() const { return split_ == Split::train ? 6 : faults_.test_width; }
    Split split_;
    ClusterFaults faults_;
};

// The same samples, of which a run sees something else than whoever reads them plainly.
class SeenOtherwise final : public Dataset {
  public:
    using Change = std::function<void(const ReadOptions& options, Batch& batch)>;
    explicit SeenOtherwise(Change change) : plain_(Split::train, {}), change_(std::move(change)) {}
    std::string name() const override { return plain_.name(); }
    std::int64_t size() const override { return plain_.size(); }
    DataInfo info() const override { return plain_.info(); }
    Batch read(std::span<const std::int64_t> indices) const override { return plain_.read(indices); }
    Batch read_for(const ReadOptions& options, std::span<const std::int64_t> indices) const override {
        Batch batch = read(indices);
        change_(options, batch);
        return batch;
    }

  private:
    ClusterData plain_;
    Change change_;
};

// x^2 with the gradient of another function.
struct WrongSquare {
    static constexpr const char* kName = "wrong_square";
    static constexpr CastClass kCast = CastClass::widest;
    Tensor forward(Context& context, const Tensors& in) {
        context.save(in[0]);
        return ops::mul(in[0], in[0]);
    }
    Tensors backward(Context& context, const Tensor& gradient) {
        return {ops::mul(gradient, ops::mul(context.saved(0), Tensor::scalar(3, gradient.dtype())))};
    }
};

// Always the same, with the gradient of x.
struct Idle {
    static constexpr const char* kName = "idle";
    static constexpr CastClass kCast = CastClass::widest;
    Tensor forward(Context&, const Tensors& in) { return ops::full_like(in[0], 2.5); }
    Tensors backward(Context&, const Tensor& gradient) { return {gradient}; }
};

// The gradient to a norm of 1, whatever loss scale it carries.
struct ClippedGradient {
    static constexpr const char* kName = "clipped_gradient";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor forward(Context&, const Tensors& in) { return in[0] * 1.0; }
    Tensors backward(Context&, const Tensor& gradient) {
        double squares = 0.0;
        for (const double g : gradient.to_vector<double>()) squares += g * g;
        return {gradient * (squares > 1 ? 1 / std::sqrt(squares) : 1.0)};
    }
};

class ClusterModel : public Module {
  public:
    explicit ClusterModel(const ClusterFaults& faults)
        : faults_(faults),
          in_(add<Linear>("in", 6, 16)),
          dropout_(add<Dropout>("dropout", 0.2)),
          out_(add<Linear>("out", 16, 4)) {
        if (faults.unused) add<Linear>("spare", 6, 6);
        if (faults.random_weights) in_.weight.value.data<float>()[0] += float(std::random_device()()) * 0x1p-32f;
        if (faults.frozen) freeze("*");
        if (faults.frozen_in) in_.freeze("*");
        if (faults.average) average_ = &add_buffer("average", ops::zeros({16}, *faults.average));
        if (faults.statistics_in_evaluation) average_ = &add_buffer("average", ops::zeros({16}));
    }
    Tensor forward(const Tensor& x) override {
        Tensor y = in_(x);
        if (faults_.needs_f32) y = ops::mul(y, Tensor::scalar(double(x.data<float>()[0] > -9)));
        if (faults_.wrong_backward) y = apply(WrongSquare{}, {y});
        if (faults_.detached) y = y.detach();
        if (faults_.dead) y = y - 1e3;
        if (faults_.clips_gradients) y = apply(ClippedGradient{}, {y});
        if (faults_.random_evaluation) y = ops::dropout(y, 0.3, true);
        if (average_ != nullptr && (training() || faults_.statistics_in_evaluation)) {
            const NoGrad no_grad;
            const Tensor mean = ops::mean(y.detach(), {0});
            *average_ = ops::cast(*average_ * faults_.momentum + mean * (1 - faults_.momentum), average_->dtype());
        }
        y = out_(dropout_(ops::relu(y)));
        if (!faults_.hidden_counter) return y;
        calls_ += training() ? 1 : 0;  // neither a parameter nor a buffer: no checkpoint knows it
        return ops::mul(y, Tensor::scalar(1 + 0.01 * double(calls_), y.dtype()));
    }

  private:
    ClusterFaults faults_;
    Linear& in_;
    Dropout& dropout_;
    Linear& out_;
    Tensor* average_ = nullptr;
    int calls_ = 0;
};

class Clusters : public Task {
  public:
    explicit Clusters(const ClusterFaults& faults = {}) : faults_(faults) {}
    std::string name() const override { return "clusters"; }
    std::shared_ptr<const Dataset> data(Split split) const override {
        return std::make_shared<ClusterData>(split, faults_);
    }
    std::unique_ptr<Module> make_model() const override { return std::make_unique<ClusterModel>(faults_); }
    Tensor loss(Module& model, const Batch& batch) const override {
        using ops::Reduction;
        const Reduction reduction = faults_.sum_loss ? Reduction::sum : Reduction::mean;
        Tensor loss = ops::cross_entropy(model(batch["x"]), batch["y"], {.reduction = reduction});
        if (faults_.loss_factor != 1) loss = loss * faults_.loss_factor;
        if (faults_.zero_loss) loss = loss * 0.0;
        if (faults_.constant_loss) loss = loss * 0.0 + 2.5;
        if (faults_.loose_loss) loss = Tensor::scalar(2.5, loss.dtype());
        if (faults_.idle_gradient) loss = apply(Idle{}, {loss});
        if (faults_.throws_lines) throw std::runtime_error("one line\nand another");
        // The mean over samples that each depend on how many others there are.
        if (faults_.per_batch) loss = ops::mul(loss, loss);
        if (faults_.random_loss) loss = loss * (1.0 + 0x1p-32 * double(std::random_device()()));
        return loss;
    }
    std::vector<double> measure(Module& model, const Batch& batch) const override {
        const double mean = ops::cross_entropy(model(batch["x"]), batch["y"]).item();
        return {mean * double(batch.size), double(batch.size)};
    }

  private:
    ClusterFaults faults_;
};

}  // namespace invar
