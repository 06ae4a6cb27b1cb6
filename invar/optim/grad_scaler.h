// GradScaler: keeps small gradients alive in FP16 by scaling the loss, and steps back from overflow. PyTorch's calls,
// meanings and misuse errors; beyond them a floor, a ceiling, hysteresis, and counts of everything that happened. A
// loss that went backward and was not finite counts as an overflow, even where the gradients are finite.
#pragma once

#include <map>

#include "invar/optim/optimizer.h"

namespace invar {

struct ScalerOptions {
    double init_scale = 65536.0;
    ScalerSpec spec{.enabled = true};
};

class GradScaler {
  public:
    explicit GradScaler(const ScalerOptions& options = {}, Device device = {});

    // loss * scale, recorded.
    Tensor scale(const Tensor& loss);
    // Divides the gradients by the scale in place, so that they can be looked at or clipped by hand.
    void unscale(Optimizer& optimizer);
    // Steps the optimizer unless its gradients overflowed or the loss was not finite; unscales and clips in the same
    // pass where unscale() was not called.
    void step(Optimizer& optimizer, const ClipSpec& clip = {});
    // Once after all steps: moves the scale.
    void update();

    // backward(scale(loss)) without the multiplication: the scale is the gradient of the loss.
    void backward(const Tensor& loss);
    // step() and update() where there is one optimizer, in one go; reports the step, with its loss, where asked to.
    void step_and_update(Optimizer& optimizer, const ClipSpec& clip = {}, const ReportSlots& reports = {});
    // The sum of the losses that went backward since the last update, unscaled; undefined where there was none.
    Tensor loss() const { return *loss_; }
    // As after update(), for a step that was given up half-way.
    void forget_step();

    // Begins anew with other options, in the same place: what was recorded of it stays good.
    void configure(const ScalerOptions& options);

    bool enabled() const { return spec_.enabled; }
    const ScalerSpec& spec() const { return spec_; }
    double get_scale() const { return enabled() ? double(state().scale) : 1.0; }
    void set_scale(double scale);
    int growth_tracker() const { return state().growth_tracker; }
    // Reads device memory: late, not in the step.
    ScaleState state() const;
    void set_state(const ScaleState& state);

    // PyTorch's five entries; hysteresis and counts beside them. Nothing at all where it is disabled.
    std::map<std::string, double> state_dict() const;
    void load_state_dict(const std::map<std::string, double>& state);

  private:
    enum class Stage { ready, unscaled, stepped };
    ScaleState* device_state() const { return static_cast<ScaleState*>(state_.raw()); }
    ScalerSpec spec_;
    Tensor state_;                                               // a ScaleState
    std::shared_ptr<Tensor> loss_ = std::make_shared<Tensor>();  // what backward adds to; it may outlive the scaler
    std::map<Optimizer*, Stage> stages_;
    bool scaled_ = false;
};

}  // namespace invar
