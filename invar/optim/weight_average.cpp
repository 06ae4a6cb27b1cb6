#include "invar/optim/weight_average.h"

#include <exception>

#include "invar/core/error.h"
#include "invar/core/host_side.h"

namespace invar {

namespace {

void copy(const Tensor& from, const Tensor& to) {
    kernels_for(to.device()).copy(from.view(), to.view());
}

Tensor copy_of(const Tensor& value) {
    const Tensor made = Tensor::empty_like(value);
    copy(value, made);
    return made;
}

Tensor empty_average(const Tensor& of) {
    return Tensor::empty(of.shape(), Dtype::f32, of.device());
}

// The shadow is what forward reads.
void set_weights(ParameterStore& store, const Tensor& weights) {
    copy(weights, store.own_weights());
    store.publish_weights();
    store.bump_versions();
}

void set_buffer(const Tensor& from, const Tensor& buffer) {
    copy(from, buffer);
    buffer.bump_version();
}

}  // namespace

WeightAverage::WeightAverage(Module& model, const Optimizer& optimizer, const AverageSpec& spec) : spec_(spec) {
    check<UsageError>(spec.decay >= 0 && spec.decay < 1,
                      "an average of the weights keeps a share of itself in [0, 1), not {}", spec.decay);
    const PurposeScope purpose(Purpose::optimizer);
    weights_ = empty_average(optimizer.store().own_weights());
    for (const auto& [name, buffer] : model.buffers())
        if (is_floating(buffer->dtype())) buffers_.push_back({name, buffer, empty_average(*buffer)});
    restart(optimizer, spec.since);
}

void WeightAverage::restart(const Optimizer& optimizer, std::int64_t steps_taken) {
    spec_.since = steps_taken;
    copy(optimizer.store().own_weights(), weights_);
    for (const Buffer& buffer : buffers_) copy(*buffer.value, buffer.average);
}

void WeightAverage::update(const Optimizer& optimizer) {
    const auto arrays = [this, &optimizer] {
        const auto array = [](const Tensor& value, const Tensor& average) {
            return AveragedArray{value.raw(), value.dtype(), average.data<float>(), value.numel()};
        };
        std::vector<AveragedArray> all = {array(optimizer.store().own_weights(), weights_)};
        for (const Buffer& buffer : buffers_) all.push_back(array(*buffer.value, buffer.average));
        return all;
    };
    optimizer.kernels().average_weights(arrays(), spec_, optimizer.device_state());
    HostSide* const recorded = HostSide::current();
    if (recorded == nullptr) return;
    recorded->depends_on([this] { return spec_; });
    recorded->depends_on([this] {
        std::vector<const void*> places;
        for (const Buffer& buffer : buffers_) places.push_back(buffer.value->raw());
        return places;
    });
}

StateDict WeightAverage::state_dict(const Optimizer& optimizer) const {
    StateDict state = buffer_dict();
    const ParameterStore& store = optimizer.store();
    store.for_each_part(weights_, [&](std::size_t i, const Tensor& average) {
        const Parameter& parameter = *store.parameters()[i];
        state.emplace(parameter.name, to_file(average, parameter.layout));
    });
    return state;
}

std::vector<Tensor> WeightAverage::buffers() const {
    std::vector<Tensor> averages;
    for (const Buffer& buffer : buffers_) averages.push_back(buffer.average);
    return averages;
}

StateDict WeightAverage::buffer_dict() const {
    StateDict state;
    for (const Buffer& buffer : buffers_) state.emplace(buffer.name, to_file(buffer.average, {}));
    return state;
}

void WeightAverage::check_state_dict(const Optimizer& optimizer, const StateDict& state) const {
    const auto check_one = [&](const std::string& name, const Shape& expected) {
        const auto found = state.find(name);
        check(found != state.end(), "the averaged weights lack {}: they are of another model", name);
        check(found->second.shape() == expected,
              "the averaged weights of {} have shape {}, expected {}: they are of another model", name,
              found->second.shape().str(), expected.str());
    };
    for (const Parameter* parameter : optimizer.store().parameters())
        check_one(parameter->name, file_shape_of(parameter->value, parameter->layout));
    for (const Buffer& buffer : buffers_) check_one(buffer.name, buffer.average.shape());
}

void WeightAverage::load_state_dict(const Optimizer& optimizer, const StateDict& state, std::int64_t began_after) {
    check_state_dict(optimizer, state);
    spec_.since = began_after;
    const ParameterStore& store = optimizer.store();
    for (std::size_t i = 0; i < store.parameters().size(); ++i) {
        const Parameter& parameter = *store.parameters()[i];
        const Tensor average = Tensor::empty(parameter.value.shape(), Dtype::f32, weights_.device());
        from_file(state.at(parameter.name), average, parameter.layout);
        store.set_part(weights_, i, average);
    }
    for (const Buffer& buffer : buffers_) from_file(state.at(buffer.name), buffer.average, {});
}

WeightAverage::Applied::Applied(const WeightAverage* average, Optimizer& optimizer)
    : average_(average), optimizer_(optimizer), exceptions_(std::uncaught_exceptions()) {
    if (average_ == nullptr) return;
    const PurposeScope purpose(Purpose::workspace);
    weights_ = copy_of(optimizer_.store().own_weights());
    for (const Buffer& buffer : average_->buffers_) buffers_.push_back(copy_of(*buffer.value));
    set_weights(optimizer_.store(), average_->weights_);
    for (const Buffer& buffer : average_->buffers_) set_buffer(buffer.average, *buffer.value);
}

// Ranks hand the weights round again; where something has failed, they may not all be here, and nothing goes on.
WeightAverage::Applied::~Applied() noexcept(false) {
    if (average_ == nullptr) return;
    const bool failed = std::uncaught_exceptions() > exceptions_;
    if (failed && optimizer_.store().sharding().shares_moments())
        copy(weights_, optimizer_.store().own_weights());
    else
        set_weights(optimizer_.store(), weights_);
    for (std::size_t i = 0; i < buffers_.size(); ++i) set_buffer(buffers_[i], *average_->buffers_[i].value);
}

}  // namespace invar
