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
    for (Parameter* parameter : parameters_) owned_.push_back(parameter->weak_from_this().lock());
    std::int64_t total = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        for (std::size_t other = 0; other < i; ++other)
            check<UsageError>(parameters_[i] != parameters_[other], "parameter {} is in two groups",
                              parameters_[i]->name);
        check<UsageError>(parameters_[i]->value.device() == device, "parameter {} is on {}, the first one on {}",
                          parameters_[i]->name, parameters_[i]->value.device().str(), device.str());
        const std::int64_t size = (parameters_[i]->value.numel() + kAlign - 1) / kAlign * kAlign;
        places_.push_back({total, parameters_[i]->value.numel(), group_of[i]});
        total += size;
    }
    weights_ = flat_array(total, options.weights, device, options.shadow ? Purpose::masters : Purpose::weights);
    gradients_ = flat_array(total, Dtype::f32, device, Purpose::gradients);
    for (int i = 0; i < moments; ++i) moments_.push_back(flat_array(total, Dtype::f32, device, Purpose::optimizer));
    missed_ = flat_array(std::int64_t(parameters_.size()), Dtype::i64, device, Purpose::optimizer);
    ever_missed_.resize(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        Parameter& parameter = *parameters_[i];
        Tensor window = weights_.window(places_[i].begin, parameter.value.shape());
        kernels_for(device).copy(parameter.value.view(), window.view());
        window.set_requires_grad(parameter.value.requires_grad());
        parameter.value = window;
        parameter.value.set_grad(gradients_.window(places_[i].begin, window.shape()));
    }
    zero_gradients();
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
            weights_.numel(),
            missed_.data<std::int64_t>()};
}

Tensor ParameterStore::moment(int which, std::size_t i) const {
    return moments_.at(std::size_t(which)).window(places_[i].begin, parameters_[i]->value.shape());
}

// Nothing is written: the first gradient of the next backward overwrites the old one.
void ParameterStore::zero_gradients() {
    check_current();
    for (const Parameter* parameter : parameters_) parameter->value.forget_grad();
    gradients_.bump_version();
}

// Its step would change memory that no model looks at any more.
void ParameterStore::check_current() const {
    for (const Parameter* parameter : parameters_)
        if (parameter->value.storage() != weights_.storage())
            fail<UsageError>(
                "parameter {} belongs to an optimizer that was made later; make one optimizer for each parameter, and "
                "groups for what differs within it",
                parameter->name);
}

Tensor ParameterStore::gradients() const {
    check_current();
    adopt_gradients();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (parameters_[i]->value.grad()) continue;
        const Tensor left_over = gradients_.window(places_[i].begin, {places_[i].count});
        set_zero(left_over.device(), left_over.raw(), left_over.bytes());
    }
    return gradients_;
}

std::vector<bool> ParameterStore::have_gradients() const {
    std::vector<bool> have;
    have.reserve(parameters_.size());
    for (const Parameter* parameter : parameters_) have.push_back(parameter->value.grad().defined());
    return have;
}

void ParameterStore::set_have_gradients(const std::vector<bool>& have) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (have[i])
            (void)parameters_[i]->value.grad_to_overwrite();
        else
            parameters_[i]->value.forget_grad();
    }
    gradients_.bump_version();
}

const std::vector<Segment>& ParameterStore::segments_to_step() {
    std::vector<bool> have = have_gradients();
    for (std::size_t i = 0; i < have.size(); ++i)
        if (!have[i] && !ever_missed_[i]) ever_missed_[i] = true, ++cuts_, segments_.clear();
    if (!segments_.empty() && have == cut_for_) return segments_;
    segments_.clear();
    for (std::size_t i = 0; i < have.size(); ++i) {
        const std::int64_t end = i + 1 < places_.size() ? places_[i + 1].begin : weights_.numel();
        Segment piece{places_[i].begin, end - places_[i].begin, places_[i].group};
        if (ever_missed_[i]) piece.missed = std::int32_t(i), piece.idle = !have[i];
        const bool joins = !segments_.empty() && piece.missed < 0 && segments_.back().missed < 0 &&
                           segments_.back().group == piece.group;
        if (joins)
            segments_.back().count += piece.count;
        else
            segments_.push_back(piece);
    }
    cut_for_ = std::move(have);
    return segments_;
}

std::vector<std::int64_t> ParameterStore::missed_steps() const {
    std::vector<std::int64_t> missed(parameters_.size());
    kernels_for(missed_.device()).download(missed.data(), missed_.raw(), missed_.bytes());
    return missed;
}

void ParameterStore::set_missed_steps(const std::vector<std::int64_t>& missed) {
    check(missed.size() == parameters_.size(), "missed steps of {} parameters for {}", missed.size(),
          parameters_.size());
    kernels_for(missed_.device()).upload(missed_.raw(), missed.data(), missed_.bytes());
    for (std::size_t i = 0; i < missed.size(); ++i) ever_missed_[i] = missed[i] > 0;
    ++cuts_;
    segments_.clear();
}

void ParameterStore::set_shadow(std::optional<Dtype> dtype) {
    check_current();
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

void ParameterStore::adopt_gradients() const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Tensor& value = parameters_[i]->value;
        const Tensor given = value.grad();
        if (value.grad_forgotten() || (given && given.storage() == gradients_.storage())) continue;
        check(!given || (given.dtype() == Dtype::f32 && given.shape() == value.shape()),
              "the gradient of {} was replaced by {}; the optimizer takes {} in FP32", parameters_[i]->name,
              given.str(), value.shape().str());
        const Tensor own = gradients_.window(places_[i].begin, value.shape());
        if (given) kernels_for(own.device()).copy(given.view(), own.view());
        value.set_grad(own);
        if (!given) value.forget_grad();
    }
}

}  // namespace invar
