// WeightAverage: an exponential moving average of a model's weights, in FP32 whatever they are trained in. The running
// statistics of batch norms are averaged with them, as torchvision, timm and Lightning do; whole numbers are not.
#pragma once

#include "invar/optim/optimizer.h"

namespace invar {

class WeightAverage {
  public:
    // Begins as the weights are. The model must outlive it.
    WeightAverage(Module& model, const Optimizer& optimizer, const AverageSpec& spec);

    // After each step of the optimizer: moves along where the step was taken. Waits for nothing, and can be recorded.
    void update(const Optimizer& optimizer);
    // Begins anew, as the weights are now, after so many steps.
    void restart(const Optimizer& optimizer, std::int64_t steps_taken);
    const AverageSpec& spec() const { return spec_; }
    const Tensor& weights() const { return weights_; }  // averages of the optimizer's own ones, which lie as they do

    // Everything that is averaged, by the model's names and in the layouts of its files, on the host.
    StateDict state_dict(const Optimizer& optimizer) const;
    StateDict buffer_dict() const;                                                    // of it, what is no weight
    std::vector<Tensor> buffers() const;                                              // their averages themselves
    void check_state_dict(const Optimizer& optimizer, const StateDict& state) const;  // throws where it would not load
    void load_state_dict(const Optimizer& optimizer, const StateDict& state, std::int64_t began_after);

    // While it lives, the model has the averaged weights; then it has its own again, to the bit. Does nothing without
    // an average.
    class Applied {
      public:
        Applied(const WeightAverage* average, Optimizer& optimizer);
        ~Applied() noexcept(false);
        Applied(const Applied&) = delete;
        Applied& operator=(const Applied&) = delete;

      private:
        const WeightAverage* average_;
        Optimizer& optimizer_;
        int exceptions_;
        Tensor weights_;  // the model's own, put aside
        std::vector<Tensor> buffers_;
    };

  private:
    struct Buffer {
        std::string name;
        Tensor* value;  // of the model
        Tensor average;
    };

    AverageSpec spec_;
    Tensor weights_;  // as the optimizer's own ones lie
    std::vector<Buffer> buffers_;
};

}  // namespace invar
