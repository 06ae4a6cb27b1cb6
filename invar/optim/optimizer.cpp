#include "invar/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "invar/autograd/op_timer.h"
#include "invar/core/error.h"
#include "invar/core/host_side.h"
#include "invar/kernels/update.h"

namespace invar {

namespace {

void check_spec(const OptimizerSpec& spec) {
    check<UsageError>(spec.lr >= 0, "learning rate {} is negative", spec.lr);
    check<UsageError>(spec.weight_decay >= 0, "weight decay {} is negative", spec.weight_decay);
    check<UsageError>(spec.momentum >= 0 && spec.momentum < 1, "momentum {} is not in [0, 1)", spec.momentum);
    check<UsageError>(!spec.nesterov || spec.momentum > 0, "nesterov needs a momentum above 0");
    check<UsageError>(spec.beta1 >= 0 && spec.beta1 < 1 && spec.beta2 >= 0 && spec.beta2 < 1,
                      "betas {} and {} are not in [0, 1)", spec.beta1, spec.beta2);
    check<UsageError>(spec.eps >= 0, "eps {} is negative", spec.eps);
}

// Gradients are read, weights and moments read and written, the shadow written.
double bytes_to_step(const FlatStore& store) {
    double each = sizeof(float) + 2.0 * double(size_of(store.weights_dtype));
    for (const float* moment : {store.first, store.second}) each += moment != nullptr ? 2.0 * sizeof(float) : 0.0;
    if (store.shadow != nullptr) each += double(size_of(store.shadow_dtype));
    return each * double(store.count);
}

const std::string kMissed = "missed_steps.";

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
    state_ = bytes_for(sizeof(StepState), store_->device());
    set_state({});
    if (store_->sharding().spread()) prepare_agreement();
}

Optimizer::Optimizer(Module& model, const OptimizerSpec& spec, StoreOptions options)
    : Optimizer({ParameterGroup{model.parameters(), spec}}, options) {}

void Optimizer::zero_grad() {
    const TimedPart timed(StepPart::update, "zero_grad", Dtype::f32, [] { return 0.0; });
    store_->zero_gradients();
    if (exchange_) exchange_->reset();
}

void Optimizer::step_scaled(ScaleState* scale, const ClipSpec& clip, StepEnd end, const Tensor& loss) {
    Kernels& device = kernels();
    if (exchange_) exchange_->finish();
    {
        const Tensor gradients = exchange_ ? store_->gradient_share() : store_->gradients();
        const TimedPart timed(StepPart::update, "grad_stats", gradients.dtype(), [&] { return bytes_of(gradients); });
        device.grad_stats(gradients.view(), device_state(), loss ? loss.view() : View{});
    }
    if (exchange_) agree(loss);
    const Tensor& told = exchange_ ? agreed_loss_ : loss;
    const View loss_view = told ? told.view() : View{};
    ScheduleSpec schedule = schedule_;
    if (device_curve_) schedule.factors = device_curve_.data<double>();
    device.plan(device_state(), scale, clip, schedule);
    {
        const FlatStore updated = store_->flat_to_step();
        const TimedPart timed(StepPart::update, "optimizer_step", updated.weights_dtype,
                              [&] { return bytes_to_step(updated); });
        device.optimizer_step(updated, store_->segments_to_step(), groups_, device_state());
    }
    if (store_->sharding().shares_moments()) store_->publish_weights();
    end.state = device_state();
    end.scale = scale;
    device.conclude(end, loss_view);
    const auto written = [this] { store_->bump_versions(); };
    written();
    HostSide* const recorded = HostSide::current();
    if (recorded == nullptr) return;
    recorded->depends_on([this] { return groups_; });
    recorded->depends_on([this] { return std::pair(schedule_, curve_); });
    recorded->depends_on([this] { return std::pair(store_->flat().weights, store_->flat().shadow); });
    recorded->depends_on([this] { return store_->cuts(); });
    recorded->depends_on([this] {
        std::vector<bool> learn;
        for (const Parameter* parameter : store_->parameters()) learn.push_back(parameter->value.requires_grad());
        return learn;
    });
    // Who saved the weights for a backward of his own must notice, and the gradients that a replay leaves are there.
    recorded->repeat([this, written, have = store_->have_gradients()] {
        written();
        store_->set_have_gradients(have);
    });
}

std::vector<ParameterGroup> Optimizer::parameter_groups() const {
    std::vector<ParameterGroup> groups;
    for (const OptimizerSpec& spec : groups_) groups.push_back({{}, spec});
    for (std::size_t i = 0; i < store_->parameters().size(); ++i)
        groups[std::size_t(store_->places()[i].group)].parameters.push_back(store_->parameters()[i]);
    return groups;
}

void Optimizer::set_schedule(const ScheduleSpec& schedule, std::vector<double> curve) {
    schedule_ = schedule;
    curve_ = std::move(curve);
    schedule_.factors = curve_.empty() ? nullptr : curve_.data();
    schedule_.points = std::int64_t(curve_.size());
    device_curve_ = {};
    if (curve_.empty()) return;
    const PurposeScope purpose(Purpose::optimizer);
    device_curve_ = Tensor::empty({schedule_.points}, Dtype::f64, state_.device());
    kernels().upload(device_curve_.raw(), curve_.data(), device_curve_.bytes());
}

double Optimizer::learning_rate() const {
    return groups_[0].lr * schedule_.factor(state().taken);
}

StepState Optimizer::state() const {
    StepState state;
    kernels().download(&state, state_.raw(), sizeof state);
    return state;
}

void Optimizer::set_state(const StepState& state) {
    kernels().upload(state_.raw(), &state, sizeof state);
}

std::string Optimizer::moment_name(int which, std::size_t parameter) const {
    const char* const name = store_->moments() < 2 ? "momentum_buffer" : which == 0 ? "exp_avg" : "exp_avg_sq";
    return fmt::format("{}.{}", name, store_->parameters()[parameter]->name);
}

std::vector<Optimizer::NamedMoment> Optimizer::named_moments() const {
    std::vector<NamedMoment> all;
    for (int m = 0; m < store_->moments(); ++m)
        for (std::size_t i = 0; i < store_->parameters().size(); ++i) all.push_back({moment_name(m, i), m, i});
    return all;
}

StateDict Optimizer::state_dict() const {
    StateDict state = missed_dict();
    for (int which = 0; which < store_->moments(); ++which)
        store_->for_each_part(store_->held_moment(which), [&](std::size_t i, const Tensor& value) {
            state.emplace(moment_name(which, i), to_file(value, store_->parameters()[i]->layout));
        });
    return state;
}

StateDict Optimizer::missed_dict() const {
    StateDict state;
    const std::vector<std::int64_t> missed = store_->missed_steps();
    for (std::size_t i = 0; i < missed.size(); ++i)
        if (missed[i] > 0)
            state.emplace(kMissed + store_->parameters()[i]->name, Tensor::from<std::int64_t>({missed[i]}, {}));
    return state;
}

std::vector<std::int64_t> Optimizer::missed_in(const StateDict& state) const {
    std::vector<std::int64_t> missed;
    for (const Parameter* parameter : store_->parameters()) {
        const auto found = state.find(kMissed + parameter->name);
        missed.push_back(found == state.end() ? 0 : std::int64_t(found->second.item()));
        check(missed.back() >= 0, "the optimizer state of {} is {}: a count cannot be negative",
              kMissed + parameter->name, missed.back());
    }
    return missed;
}

void Optimizer::check_state_dict(const StateDict& state) const {
    std::set<std::string> unused;
    for (const auto& [name, tensor] : state) unused.insert(name);
    for (const NamedMoment& moment : named_moments()) {
        const auto found = state.find(moment.name);
        check(found != state.end(),
              "the optimizer state lacks {}: it was saved by another optimizer or for another model", moment.name);
        const Parameter& parameter = *store_->parameters()[moment.parameter];
        const Shape expected = file_shape_of(parameter.value, parameter.layout);
        check(found->second.shape() == expected,
              "the optimizer state of {} has shape {}, expected {}: it is of another model", moment.name,
              found->second.shape().str(), expected.str());
        unused.erase(moment.name);
    }
    missed_in(state);
    for (const Parameter* parameter : store_->parameters()) unused.erase(kMissed + parameter->name);
    check(unused.empty(), "the optimizer state holds {}: it was saved by another optimizer or for another model",
          unused.empty() ? "" : *unused.begin());
}

void Optimizer::load_state_dict(const StateDict& state) {
    check_state_dict(state);
    for (const NamedMoment& moment : named_moments()) {
        const Parameter& parameter = *store_->parameters()[moment.parameter];
        const Tensor value = Tensor::empty(parameter.value.shape(), Dtype::f32, parameter.value.device());
        from_file(state.at(moment.name), value, parameter.layout);
        store_->set_part(store_->held_moment(moment.which), moment.parameter, value);
    }
    store_->set_missed_steps(missed_in(state));
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

}  // namespace invar
