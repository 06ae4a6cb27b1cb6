#include "invar/optim/weight_average.h"

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
    copy(weights, store.weights());
    store.weights().bump_version();
    store.refresh_shadow();
    if (store.shadow()) store.shadow().bump_version();
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
    weights_ = empty_average(optimizer.store().weights());
    for (const auto& [name, buffer] : model.buffers())
        if (is_floating(buffer->dtype())) buffers_.push_back({name, buffer, empty_average(*buffer)});
    restart(optimizer, spec.since);
}

void WeightAverage::restart(const Optimizer& optimizer, std::int64_t steps_taken) {
    spec_.since = steps_taken;
    copy(optimizer.store().weights(), weights_);
    for (const Buffer& buffer : buffers_) copy(*buffer.value, buffer.average);
}

void WeightAverage::update(const Optimizer& optimizer) {
    const auto arrays = [this, &optimizer] {
        const auto array = [](const Tensor& value, const Tensor& average) {
            return AveragedArray{value.raw(), value.dtype(), average.data<float>(), value.numel()};
        };
        std::vector<AveragedArray> all = {array(optimizer.store().weights(), weights_)};
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

std::vector<WeightAverage::Named> WeightAverage::named(const Optimizer& optimizer) const {
    const ParameterStore& store = optimizer.store();
    std::vector<Named> all;
    for (std::size_t i = 0; i < store.parameters().size(); ++i) {
        const Parameter& parameter = *store.parameters()[i];
        all.push_back(
            {parameter.name, weights_.window(store.places()[i].begin, parameter.value.shape()), parameter.layout});
    }
    for (const Buffer& buffer : buffers_) all.push_back({buffer.name, buffer.average, {}});
    return all;
}

StateDict WeightAverage::state_dict(const Optimizer& optimizer) const {
    StateDict state;
    for (const Named& each : named(optimizer)) state.emplace(each.name, to_file(each.average, each.layout));
    return state;
}

void WeightAverage::check_state_dict(const Optimizer& optimizer, const StateDict& state) const {
    for (const Named& each : named(optimizer)) {
        const auto found = state.find(each.name);
        check(found != state.end(), "the averaged weights lack {}: they are of another model", each.name);
        const Shape expected = file_shape_of(each.average, each.layout);
        check(found->second.shape() == expected,
              "the averaged weights of {} have shape {}, expected {}: they are of another model", each.name,
              found->second.shape().str(), expected.str());
    }
}

void WeightAverage::load_state_dict(const Optimizer& optimizer, const StateDict& state, std::int64_t began_after) {
    check_state_dict(optimizer, state);
    spec_.since = began_after;
    for (const Named& each : named(optimizer)) from_file(state.at(each.name), each.average, each.layout);
}

WeightAverage::Applied::Applied(const WeightAverage* average, Optimizer& optimizer)
    : average_(average), optimizer_(optimizer) {
    if (average_ == nullptr) return;
    const PurposeScope purpose(Purpose::workspace);
    weights_ = copy_of(optimizer_.store().weights());
    for (const Buffer& buffer : average_->buffers_) buffers_.push_back(copy_of(*buffer.value));
    set_weights(optimizer_.store(), average_->weights_);
    for (const Buffer& buffer : average_->buffers_) set_buffer(buffer.average, *buffer.value);
}

WeightAverage::Applied::~Applied() {
    if (average_ == nullptr) return;
    set_weights(optimizer_.store(), weights_);
    for (std::size_t i = 0; i < buffers_.size(); ++i) set_buffer(buffers_[i], *average_->buffers_[i].value);
}

}  // namespace invar
