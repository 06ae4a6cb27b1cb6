#include "invar/optim/parameter_store.h"

#include <algorithm>

#include "invar/core/error.h"

namespace invar {

namespace {

constexpr std::int64_t kAlign = 32;  // elements: each parameter starts on a cache line, also in 16 bits

Tensor flat_array(std::int64_t count, Dtype dtype, Device device, Purpose purpose) {
    const PurposeScope scope(purpose);
    Tensor array = Tensor::empty({count}, dtype, device);
    kernels_for(device).fill(array.view(), 0);
    return array;
}

}  // namespace

StoreOptions StoreOptions::for_precision(const Precision& precision) {
    const Dtype low = precision.compute_dtype();
    if (!is_sixteen_bit(low) || precision.level == Level::O0) return {};
    if (precision.has_masters()) return {Dtype::f32, low};
    return {low, std::nullopt};
}

ParameterStore::ParameterStore(std::vector<Parameter*> parameters, const std::vector<int>& group_of, int moments,
                               StoreOptions options)
    : parameters_(std::move(parameters)) {
    check<UsageError>(!parameters_.empty(), "the optimizer got no parameters");
    const Device device = parameters_[0]->value.device();
    std::int64_t total = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        for (std::size_t other = 0; other < i; ++other)
            check<UsageError>(parameters_[i] != parameters_[other], "parameter {} is in two groups",
                              parameters_[i]->name);
        check<UsageError>(parameters_[i]->value.device() == device, "parameter {} is on {}, the first one on {}",
                          parameters_[i]->name, parameters_[i]->value.device().str(), device.str());
        const std::int64_t size = (parameters_[i]->value.numel() + kAlign - 1) / kAlign * kAlign;
        places_.push_back({total, parameters_[i]->value.numel(), group_of[i]});
        if (!segments_.empty() && segments_.back().group == group_of[i])
            segments_.back().count += size;
        else
            segments_.push_back({total, size, group_of[i]});
        total += size;
    }
    weights_ = flat_array(total, options.weights, device, options.shadow ? Purpose::masters : Purpose::weights);
    gradients_ = flat_array(total, Dtype::f32, device, Purpose::gradients);
    for (int i = 0; i < moments; ++i) moments_.push_back(flat_array(total, Dtype::f32, device, Purpose::optimizer));
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        Parameter& parameter = *parameters_[i];
        Tensor window = weights_.window(places_[i].begin, parameter.value.shape());
        kernels_for(device).copy(parameter.value.view(), window.view());
        parameter.value = window;
        parameter.value.set_requires_grad();
        parameter.value.set_grad(gradients_.window(places_[i].begin, window.shape()));
    }
    set_shadow(options.shadow);
}

// The parameters outlive the store with their values; what only training needed is let go.
ParameterStore::~ParameterStore() {
    for (Parameter* parameter : parameters_) {
        if (parameter->value.storage() != weights_.storage()) continue;  // a newer store has taken it over
        parameter->value.set_grad({});
        parameter->value.set_shadow({});
    }
}

FlatStore ParameterStore::flat() const {
    const auto moment = [&](std::size_t i) {
        return i < moments_.size() ? static_cast<float*>(moments_[i].raw()) : nullptr;
    };
    return {weights_.raw(),
            weights_.dtype(),
            shadow_ ? shadow_.raw() : nullptr,
            shadow_ ? shadow_.dtype() : Dtype::f32,
            static_cast<float*>(gradients_.raw()),
            moment(0),
            moment(1),
            weights_.numel()};
}

Tensor ParameterStore::moment(int which, std::size_t i) const {
    return moments_.at(std::size_t(which)).window(places_[i].begin, parameters_[i]->value.shape());
}

// Nothing is written: the first gradient of the next backward overwrites the old one.
void ParameterStore::zero_gradients() {
    for (const Parameter* parameter : parameters_) parameter->value.forget_grad();
    gradients_.bump_version();
}

Tensor ParameterStore::gradients() const {
    for (const Parameter* parameter : parameters_) (void)parameter->value.grad();
    return gradients_;
}

void ParameterStore::set_shadow(std::optional<Dtype> dtype) {
    shadow_ = dtype ? flat_array(weights_.numel(), *dtype, weights_.device(), Purpose::weights) : Tensor{};
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Tensor& value = parameters_[i]->value;
        value.set_shadow(shadow_ ? shadow_.window(places_[i].begin, value.shape()) : Tensor{});
    }
    refresh_shadow();
}

void ParameterStore::refresh_shadow() {
    if (shadow_) kernels_for(weights_.device()).copy(weights_.view(), shadow_.view());
}

const Parameter& ParameterStore::parameter_at(std::int64_t place) const {
    check(place >= 0 && place < weights_.numel(), "no parameter lies at {} of {}", place, weights_.numel());
    const auto after = std::ranges::upper_bound(places_, place, {}, &Segment::begin);
    return *parameters_[std::size_t(after - places_.begin()) - 1];
}

void ParameterStore::check_gradients() const {
    for (const Parameter* parameter : parameters_) {
        const Tensor grad = parameter->value.grad();
        check(grad && grad.storage() == gradients_.storage(),
              "the gradient of {} was replaced by {}; the optimizer keeps gradients in FP32: add into grad() instead",
              parameter->name, grad.str());
    }
}

}  // namespace invar
