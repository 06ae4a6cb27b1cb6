// Optimizer: SGD, Adam and AdamW over a flat store, with parameter groups and a learning-rate schedule. One fused pass
// unscales, clips, updates and writes the shadow; the decisions it needs live beside the weights, on the device.
#pragma once

#include <memory>
#include <string_view>

#include "invar/nn/module.h"
#include "invar/optim/gradient_exchange.h"

namespace invar {

struct ParameterGroup {
    std::vector<Parameter*> parameters;
    OptimizerSpec spec;
};

class Optimizer {
  public:
    Optimizer(std::vector<ParameterGroup> groups, StoreOptions options = {});
    Optimizer(Module& model, const OptimizerSpec& spec, StoreOptions options = {});

    void zero_grad();
    // One step on gradients that are not scaled.
    void step(const ClipSpec& clip = {}) { step_scaled(nullptr, clip); }
    // One step on gradients that still carry the scale; overflow makes it a no-op, and so does a loss that is not
    // finite. GradScaler calls this, and says what else the step ends with.
    void step_scaled(ScaleState* scale, const ClipSpec& clip, StepEnd end = {}, const Tensor& loss = {});

    // With whom gradients are summed; nullptr for one process by itself.
    GradientExchange* exchange() const { return exchange_.get(); }
    // The loss of the last step over all ranks, each of which brought its part.
    Tensor agreed_loss() const { return agreed_loss_; }
    // That this rank should stop is told to all with the next step, which all then know of.
    void ask_to_stop(int why) { asks_to_stop_ = why; }
    // 0: nobody has asked. Once after a step, by all ranks together.
    int asked_to_stop();

    // `curve`: the factors, where the schedule goes by a curve of its own.
    void set_schedule(const ScheduleSpec& schedule, std::vector<double> curve = {});
    const ScheduleSpec& schedule() const { return schedule_; }
    const std::vector<double>& curve() const { return curve_; }
    // The rate of the first group for the next step, as far as the host knows.
    double learning_rate() const;
    std::vector<OptimizerSpec>& groups() { return groups_; }
    // As they would make this optimizer again, with its present rates.
    std::vector<ParameterGroup> parameter_groups() const;

    // What the last step found and decided. Reads device memory: late, not in the step.
    StepState state() const;
    void set_state(const StepState& state);
    StepState* device_state() const { return static_cast<StepState*>(state_.raw()); }
    ParameterStore& store() { return *store_; }
    const ParameterStore& store() const { return *store_; }
    Kernels& kernels() const { return kernels_for(state_.device()); }

    // The moments by PyTorch's names and in the layouts of their weights, on the host: "exp_avg.conv1.weight",
    // "momentum_buffer.fc.bias"; and "missed_steps.fc.bias", how many steps were taken without it, where there were
    // any.
    StateDict state_dict() const;
    std::string moment_name(int which, std::size_t parameter) const;
    StateDict missed_dict() const;  // of it, the counts alone
    void load_state_dict(const StateDict& state);
    void check_state_dict(const StateDict& state) const;  // throws where it would not load

  private:
    struct NamedMoment {
        std::string name;
        int which;
        std::size_t parameter;
    };
    std::vector<NamedMoment> named_moments() const;
    void prepare_agreement();
    void agree(const Tensor& loss);
    void agree_on_device(DeviceCollectives& device, const Tensor& loss);
    void agree_on_gradients();
    std::vector<std::int64_t> missed_in(const StateDict& state) const;
    std::vector<OptimizerSpec> groups_;
    std::unique_ptr<ParameterStore> store_;
    std::unique_ptr<GradientExchange> exchange_;
    std::vector<SharePiece> pieces_;             // of this rank's share
    Tensor device_pieces_;                       // the same where it agrees by itself
    std::vector<bool> had_here_, had_anywhere_;  // gradients, in the last step that was not recorded
    Tensor agreed_loss_;
    int asks_to_stop_ = 0, asked_to_stop_ = 0;
    ScheduleSpec schedule_;
    std::vector<double> curve_;  // that schedule_ points into
    Tensor device_curve_;        // the same where the kernels are
    Tensor state_;               // a StepState
};

// Measured on the store's gradients; the explicit calls that people write from memory. Returns the norm before
// clipping.
double clip_grad_norm(Optimizer& optimizer, double max_norm);
void clip_grad_value(Optimizer& optimizer, double limit);

}  // namespace invar
