// What the tests of diagnosis share: a small network of like layers, a fault to plant in any one of them, and a run of
// it.
#pragma once

#include <gtest/gtest.h>

#include "invar/autograd/node.h"
#include "invar/data/synthetic.h"
#include "invar/kernels/pointwise.h"
#include "invar/models/models.h"
#include "invar/nn/layers.h"
#include "invar/ops/apply.h"
#include "invar/ops/ops.h"
#include "invar/train/setup.h"

namespace invar {

enum class Fault {
    none,
    forward_overflow,
    backward_overflow,
    scale_overflow,
    underflow,
    vanished_divisor,
    gradient_underflow,
    hopeless_forward,  // in FP32 too
    hopeless_backward
};

// Multiplies values by one factor and gradients by another: faults of one direction alone.
struct Steep {
    static constexpr const char* kName = "steep";
    static constexpr CastClass kCast = CastClass::keep;
    double forward_factor, backward_factor;
    Tensor forward(Context&, const Tensors& in) {
        Tensor out = Tensor::empty_like(in[0]);
        kernels_for(out.device()).unary(UnaryOp::Affine, in[0].view(), out.view(), {forward_factor, 0});
        return out;
    }
    Tensors backward(Context&, const Tensor& gradient) { return {gradient * backward_factor}; }
};

inline Tensor steep(const Tensor& x, double backward_factor) {
    return apply(Steep{1.0, backward_factor}, {x});
}

// A linear layer whose fault undoes itself where numbers have range enough.
class FaultyLayer : public Module {
  public:
    FaultyLayer(std::int64_t in, std::int64_t out, Fault fault)
        : linear(add<Linear>("linear", in, out)), fault_(fault) {}
    Tensor forward(const Tensor& x) override {
        Tensor h = linear(x);
        if (gradient_factor != 1.0) h = steep(h, gradient_factor);
        switch (fault_) {
            case Fault::none:
                return h;
            case Fault::forward_overflow:
                return (h * 1e7) * 1e-7;
            case Fault::backward_overflow:
                return steep(steep(h, 1e-10), 1e10);
            case Fault::scale_overflow:
                return steep(steep(h, 1e-4), 1e4);
            case Fault::underflow:
                return apply(Steep{1e10, 1.0}, {apply(Steep{1e-10, 1.0}, {h})});
            case Fault::vanished_divisor: {
                const Tensor small = ops::abs(h) * 1e-10;
                return h * (small / small);
            }
            case Fault::gradient_underflow:
                return steep(steep(h, 1e25), 1e-25);
            case Fault::hopeless_forward:
                return (h * 1e30) * 1e30;
            case Fault::hopeless_backward:
                return steep(steep(h, 1e30), 1e30);
        }
        return h;
    }
    Linear& linear;
    double gradient_factor = 1.0;  // may change while the model trains

  private:
    Fault fault_;
};

// layer1, layer2, ...; the fault sits in one of them (0: in none).
class FaultyNet : public Module {
  public:
    FaultyNet(int layers, Fault fault, int at, std::int64_t in, std::int64_t width, std::int64_t classes) {
        for (int i = 1; i <= layers; ++i)
            layers_.push_back(&add<FaultyLayer>("layer" + std::to_string(i), i == 1 ? in : width,
                                                i == layers ? classes : width, i == at ? fault : Fault::none));
    }
    Tensor forward(const Tensor& x) override {
        Tensor y = ops::flatten(x, 1);
        for (FaultyLayer* layer : layers_) y = (*layer)(y);
        return y;
    }
    FaultyLayer& layer(int i) { return *layers_.at(std::size_t(i - 1)); }

  private:
    std::vector<FaultyLayer*> layers_;
};

inline constexpr int kLayers = 4;

inline Config faulty_config(const std::string& precision, const std::string& device = "cpu") {
    Config config;
    config.seed = 3;
    config.trainer.precision = precision;
    config.trainer.threads = 1;
    config.trainer.device = device;
    config.model.choose("mlp", MlpOptions{.hidden = {4}});
    config.data.choose("synthetic",
                       SyntheticOptions{.size = 256, .height = 4, .width = 4, .channels = 1, .classes = 4});
    config.data.batch_size = 16;
    config.data.num_workers = 0;
    config.optimizer.choose("sgd");
    config.optimizer.lr = 0.01;
    return config;
}

struct FaultyRun {
    FaultyRun(const std::string& precision, Fault fault, int at, int layers = kLayers, double lr = 0.01,
              const std::string& device = "cpu")
        : config(faulty_config(precision, device)), setup(config) {
        setup.optimizer.reset();
        default_generator().set_state({7, 0});
        auto made = std::make_unique<FaultyNet>(layers, fault, at, 16, 24, 4);
        net = made.get();
        setup.model = std::move(made);
        for (Parameter* p : setup.model->parameters())  // so that signals neither die nor grow over many layers
            if (p->name.ends_with("weight"))
                kernels_for({}).unary(UnaryOp::Affine, p->value.view(), p->value.view(), {1.7, 0});
        setup.model->to(setup.device);
        setup.optimizer =
            std::make_unique<Optimizer>(*setup.model, OptimizerSpec{.kind = OptimizerSpec::Kind::sgd, .lr = lr},
                                        StoreOptions::for_precision(setup.precision));
        setup.train_data->start_epoch(0);
        group.push_back(*setup.train_data->next());
    }
    Config config;
    Setup setup;
    FaultyNet* net = nullptr;
    std::vector<Batch> group;
    RngState rng{11, 0};
};

inline std::string layer_name(int i) {
    return "layer" + std::to_string(i);
}

}  // namespace invar
