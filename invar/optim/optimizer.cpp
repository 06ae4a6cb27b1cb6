#include "invar/optim/optimizer.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/ops/to.h"

namespace invar {

namespace {

int moments_of(const OptimizerSpec& spec) {
    if (spec.kind != OptimizerSpec::Kind::sgd) return 2;
    return spec.momentum != 0.0f ? 1 : 0;
}

void check_spec(const OptimizerSpec& spec) {
    check<UsageError>(spec.lr >= 0, "learning rate {} is negative", spec.lr);
    check<UsageError>(spec.weight_decay >= 0, "weight decay {} is negative", spec.weight_decay);
    check<UsageError>(spec.momentum >= 0 && spec.momentum < 1, "momentum {} is not in [0, 1)", spec.momentum);
    check<UsageError>(!spec.nesterov || spec.momentum > 0, "nesterov needs a momentum above 0");
    check<UsageError>(spec.beta1 >= 0 && spec.beta1 < 1 && spec.beta2 >= 0 && spec.beta2 < 1,
                      "betas {} and {} are not in [0, 1)", spec.beta1, spec.beta2);
    check<UsageError>(spec.eps >= 0, "eps {} is negative", spec.eps);
}

Tensor bytes_for(std::size_t bytes, Device device) {
    const PurposeScope purpose(Purpose::optimizer);
    return Tensor::empty({std::int64_t(bytes)}, Dtype::u8, device);
}

}  // namespace

Optimizer::Optimizer(std::vector<ParameterGroup> groups, StoreOptions options) {
    std::vector<Parameter*> parameters;
    std::vector<int> group_of;
    int moments = 0;
    for (const ParameterGroup& group : groups) {
        check_spec(group.spec);
        const int index = int(groups_.size());
        groups_.push_back(group.spec);
        moments = std::max(moments, moments_of(group.spec));
        for (Parameter* parameter : group.parameters) {
            parameters.push_back(parameter);
            group_of.push_back(index);
        }
    }
    store_ = std::make_unique<ParameterStore>(std::move(parameters), group_of, moments, options);
    state_ = bytes_for(sizeof(StepState), store_->weights().device());
    set_state({});
}

Optimizer::Optimizer(Module& model, const OptimizerSpec& spec, StoreOptions options)
    : Optimizer({ParameterGroup{model.parameters(), spec}}, options) {}

void Optimizer::step_scaled(ScaleState* scale, const ClipSpec& clip, StepEnd end, const Tensor& loss) {
    store_->check_gradients();
    Kernels& device = kernels();
    device.plan(store_->gradients().view(), device_state(), scale, clip, schedule_);
    device.optimizer_step(store_->flat(), store_->segments(), groups_, device_state());
    end.state = device_state();
    end.scale = scale;
    device.conclude(end, loss ? loss.view() : View{});
    store_->weights().bump_version();
    if (store_->shadow()) store_->shadow().bump_version();
}

double Optimizer::learning_rate() const {
    return double(groups_[0].lr) * schedule_.factor(state().taken);
}

StepState Optimizer::state() const {
    StepState state;
    kernels().download(&state, state_.raw(), sizeof state);
    return state;
}

void Optimizer::set_state(const StepState& state) {
    kernels().upload(state_.raw(), &state, sizeof state);
}

std::vector<std::string> Optimizer::moment_names() const {
    if (store_->moments() == 2) return {"exp_avg", "exp_avg_sq"};
    return store_->moments() == 1 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
}

StateDict Optimizer::state_dict() const {
    StateDict state;
    const std::vector<std::string> names = moment_names();
    for (std::size_t m = 0; m < names.size(); ++m)
        for (std::size_t i = 0; i < store_->parameters().size(); ++i)
            state.emplace(names[m] + "." + store_->parameters()[i]->name, store_->moment(int(m), i));
    return state;
}

void Optimizer::check_state_dict(const StateDict& state) const {
    const StateDict own = state_dict();
    for (const auto& [name, target] : own) {
        const auto found = state.find(name);
        check(found != state.end(),
              "the optimizer state lacks {}: it was saved by another optimizer or for another model", name);
        check(found->second.shape() == target.shape(),
              "the optimizer state of {} has shape {}, expected {}: it is of another model", name,
              found->second.shape().str(), target.shape().str());
    }
    for (const auto& [name, tensor] : state)
        check(own.contains(name),
              "the optimizer state holds {}: it was saved by another optimizer or for another model", name);
}

void Optimizer::load_state_dict(const StateDict& state) {
    check_state_dict(state);
    for (const auto& [name, target] : state_dict())
        kernels().copy(ops::to(state.at(name), target.device()).view(), target.view());
}

double clip_grad_norm(Optimizer& optimizer, double max_norm) {
    check<UsageError>(max_norm >= 0, "clip_grad_norm: the norm {} is negative", max_norm);
    const View gradients = optimizer.store().gradients().view();
    optimizer.kernels().grad_stats(gradients, optimizer.device_state());
    const double norm = std::sqrt(optimizer.state().sum_squares);
    const double shrink = max_norm / (norm + 1e-6);
    if (shrink < 1.0) optimizer.kernels().scale_gradients(gradients, float(shrink), 0.0f);
    return norm;
}

void clip_grad_value(Optimizer& optimizer, double limit) {
    check<UsageError>(limit > 0, "clip_grad_value: the limit {} is not above 0", limit);
    optimizer.kernels().scale_gradients(optimizer.store().gradients().view(), 1.0f, float(limit));
}

OptimizerSpec::Kind parse_optimizer(std::string_view name) {
    if (name == "sgd") return OptimizerSpec::Kind::sgd;
    if (name == "adam") return OptimizerSpec::Kind::adam;
    if (name == "adamw") return OptimizerSpec::Kind::adamw;
    fail<UsageError>("unknown optimizer '{}'; use sgd, adam or adamw", name);
}

ScheduleSpec::Kind parse_schedule(std::string_view name) {
    if (name == "constant") return ScheduleSpec::Kind::constant;
    if (name == "step") return ScheduleSpec::Kind::step;
    if (name == "cosine") return ScheduleSpec::Kind::cosine;
    if (name == "one_cycle") return ScheduleSpec::Kind::one_cycle;
    fail<UsageError>("unknown schedule '{}'; use constant, step, cosine or one_cycle", name);
}

}  // namespace invar
