#include "invar/optim/parameter_store.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "invar/core/error.h"
#include "invar/core/promised.h"

namespace invar {

namespace {

constexpr std::int64_t kAlign = 32;  // elements: each parameter starts on a cache line, also in 16 bits

Tensor flat_array(std::int64_t count, Dtype dtype, Device device, Purpose purpose) {
    const PurposeScope scope(purpose);
    Tensor array = Tensor::empty({count}, dtype, device);
    kernels_for(device).fill(array.view(), 0);
    return array;
}

Tensor on_device(const Tensor& value, Device device) {
    if (value.device() == device) return value;
    const PurposeScope purpose(Purpose::workspace);
    Tensor host = value.on_host();
    if (!host.is_contiguous()) {
        const Tensor dense = Tensor::empty(host.shape(), host.dtype());
        kernels_for(host.device()).copy(host.view(), dense.view());
        host = dense;
    }
    Tensor here = Tensor::empty(value.shape(), value.dtype(), device);
    kernels_for(device).upload(here.raw(), host.raw(), host.bytes());
    return here;
}

}  // namespace

StoreOptions StoreOptions::for_precision(const Precision& precision, const Sharding& sharding) {
    const Dtype low = precision.compute_dtype();
    if (!is_sixteen_bit(low) || precision.level == Level::O0) return {Dtype::f32, std::nullopt, sharding};
    if (precision.has_masters()) return {Dtype::f32, low, sharding};
    return {low, std::nullopt, sharding};
}

// Buckets begin where parameters do, and end on a multiple of what all ranks can take an equal piece of. One process
// has one bucket, and nothing between its parameters but what aligns them. On ranks what operations in FP32 read comes
// first, and so is sent last: the first layer's norm or embedding is among it.
void ParameterStore::lay_out(std::vector<int> group_of) {
    const std::int64_t ranks = sharding_.spread() ? sharding_.ranks->size() : 1;
    const std::int64_t least = sharding_.bucket_bytes / std::int64_t(sizeof(float)), step = kAlign * ranks;
    std::size_t first_low = parameters_.size();
    if (sharding_.spread()) {
        std::vector<std::size_t> order(parameters_.size());
        std::iota(order.begin(), order.end(), std::size_t(0));
        const auto behind =
            std::ranges::stable_partition(order, [&](std::size_t i) { return !parameters_[i]->needs_shadow_alone(); });
        first_low = parameters_.size() - behind.size();
        const std::vector<Parameter*> given = parameters_;
        const std::vector<int> groups = group_of;
        for (std::size_t i = 0; i < order.size(); ++i) parameters_[i] = given[order[i]], group_of[i] = groups[order[i]];
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const auto full = [&] { return i == first_low || total_ - buckets_.back().begin >= least; };
        if (buckets_.empty() || (sharding_.spread() && full())) {
            total_ = (total_ + step - 1) / step * step;
            buckets_.push_back({total_, 0, 0, 0, i, i});
        }
        if (i == first_low) low_from_ = total_;
        places_.push_back({total_, parameters_[i]->value.numel(), group_of[i]});
        total_ += (parameters_[i]->value.numel() + kAlign - 1) / kAlign * kAlign;
        buckets_.back().last = i + 1;
    }
    total_ = (total_ + step - 1) / step * step;
    if (first_low == parameters_.size()) low_from_ = total_;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        Bucket& bucket = buckets_[b];
        bucket.count = (b + 1 < buckets_.size() ? buckets_[b + 1].begin : total_) - bucket.begin;
        bucket.piece = bucket.count / ranks;
        bucket.share = share_;
        share_ += bucket.piece;
    }
}

ParameterStore::ParameterStore(std::vector<Parameter*> parameters, const std::vector<int>& group_of, int moments,
                               StoreOptions options)
    : sharding_(options.sharding), parameters_(std::move(parameters)) {
    check<UsageError>(!parameters_.empty(), "the optimizer got no parameters");
    const Device given_on = parameters_[0]->value.device(), device = options.device.value_or(given_on);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        for (std::size_t other = 0; other < i; ++other)
            check<UsageError>(parameters_[i] != parameters_[other], "parameter {} is in two groups",
                              parameters_[i]->name);
        check<UsageError>(parameters_[i]->value.device() == given_on, "parameter {} is on {}, the first one on {}",
                          parameters_[i]->name, parameters_[i]->value.device().str(), given_on.str());
    }
    lay_out(group_of);
    for (Parameter* parameter : parameters_) owned_.push_back(parameter->weak_from_this().lock());
    const bool shares = sharding_.shares_moments();
    const bool apart = may_share_masters(options.weights, options.shadow);
    weights_ = flat_array(apart ? low_from_ : total_, options.weights, device,
                          options.shadow && !shares ? Purpose::masters : Purpose::weights);
    if (apart) promised_ = promised_weights(total_, device);
    if (options.shadow) shadow_ = flat_array(total_, *options.shadow, device, Purpose::weights);
    if (!sharding_.shares_gradients()) gradients_ = flat_array(total_, Dtype::f32, device, Purpose::gradients);
    if (sharding_.spread()) gradient_share_ = flat_array(share_, Dtype::f32, device, Purpose::gradients);
    if (shares)
        weight_share_ = flat_array(share_, options.weights, device,
                                   options.weights == Dtype::f32 ? Purpose::masters : Purpose::weights);
    for (int i = 0; i < moments; ++i)
        moments_.push_back(flat_array(shares ? share_ : total_, Dtype::f32, device, Purpose::optimizer));
    missed_ = flat_array(std::int64_t(parameters_.size()), Dtype::i64, device, Purpose::optimizer);
    ever_missed_.resize(parameters_.size());
    had_gradients_.resize(parameters_.size());
    open_.resize(buckets_.size());
    arrived_ = buckets_.size();
    for (std::size_t i = 0; i < parameters_.size(); ++i) move_in(i, settled(parameters_[i]->value));
    zero_gradients();
}

// One value at a time comes to where the store is, and is let go where it came from.
void ParameterStore::move_in(std::size_t i, const Tensor& given) {
    const Tensor value = on_device(given, device());
    const Shape& shape = value.shape();
    if (places_[i].begin < weights_.numel()) {
        const Tensor window = weights_.window(places_[i].begin, shape);
        kernels_for(device()).copy(value.view(), window.view());
        set_value(i, window);
    } else {
        set_part(weight_share_, i, value);
        set_value(i, promised_.window(places_[i].begin, shape));
    }
    if (shadow_) kernels_for(device()).copy(value.view(), shadow_.window(places_[i].begin, shape).view());
}

void ParameterStore::set_value(std::size_t i, Tensor value) {
    Parameter& parameter = *parameters_[i];
    value.set_requires_grad(parameter.value.requires_grad());
    parameter.value = value;
    parameter.home = promised_ && value.storage() == promised_.storage() ? this : nullptr;
    if (gradients_) value.set_grad(gradients_.window(places_[i].begin, value.shape()));
    if (gradients_) value.forget_grad();
    value.set_shadow(shadow_ ? shadow_.window(places_[i].begin, value.shape()) : Tensor{});
}

// The parameters outlive the store with their values; what only training needed is let go.
ParameterStore::~ParameterStore() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        Parameter* const parameter = parameters_[i];
        if (index_of(parameter->value) != i) continue;  // a newer store has taken it over
        parameter->home = nullptr;
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
            gradients_ ? static_cast<float*>(gradients_.raw()) : nullptr,
            moment(0),
            moment(1),
            total_,
            missed_.data<std::int64_t>()};
}

FlatStore ParameterStore::flat_to_step() const {
    FlatStore all = flat();
    if (!sharding_.shares_moments()) return all;
    all.weights = own_weights().raw();
    all.shadow = nullptr;  // follows from everybody's weights
    all.gradients = static_cast<float*>(gradient_share_.raw());
    all.count = share_;
    return all;
}

// The bucket that a parameter is in; it is in one alone.
const Bucket& ParameterStore::bucket_of(std::size_t i) const {
    for (const Bucket& bucket : buckets_)
        if (i < bucket.last) return bucket;
    return buckets_.back();
}

void ParameterStore::for_each_part(const Tensor& held, const Visit& visit) const {
    for (const Bucket& bucket : buckets_) {
        Tensor whole = held.window(sharding_.shares_moments() ? bucket.share : bucket.begin,
                                   {sharding_.shares_moments() ? bucket.piece : bucket.count});
        if (sharding_.shares_moments()) {
            const PurposeScope purpose(Purpose::workspace);
            const Tensor mine = std::exchange(whole, Tensor::empty({bucket.count}, held.dtype(), held.device()));
            sharding_.ranks->wait(sharding_.ranks->all_gather(mine, whole));
        }
        for (std::size_t i = bucket.first; i < bucket.last; ++i)
            visit(i, whole.window(places_[i].begin - bucket.begin, parameters_[i]->value.shape()));
    }
}

Tensor ParameterStore::moment(int which, std::size_t i) const {
    check(!sharding_.shares_moments(), "the moments of {} are shared out over the ranks", parameters_[i]->name);
    return moments_.at(std::size_t(which)).window(places_[i].begin, parameters_[i]->value.shape());
}

void ParameterStore::set_part(const Tensor& held, std::size_t i, const Tensor& value) const {
    Kernels& kernels = kernels_for(held.device());
    if (!sharding_.shares_moments())
        return kernels.copy(value.view(), held.window(places_[i].begin, value.shape()).view());
    const OwnPart own = own_part(i);
    if (own.count > 0)
        kernels.copy(value.window(own.from, {own.count}).view(), held.window(own.at, {own.count}).view());
}

Tensor ParameterStore::bucket_gradients(std::size_t b) const {
    const Bucket& bucket = buckets_[b];
    const Tensor whole = gradients_ ? gradients_.window(bucket.begin, {bucket.count}) : open_[b];
    for (std::size_t i = bucket.first; i < bucket.last; ++i) {
        const Tensor own = whole.window(places_[i].begin - bucket.begin, parameters_[i]->value.shape());
        adopt_gradient(i, own);
        if (!parameters_[i]->value.grad()) set_zero(own.device(), own.raw(), own.bytes());
    }
    return whole;
}

void ParameterStore::open_bucket(std::size_t b) {
    const Bucket& bucket = buckets_[b];
    const PurposeScope purpose(Purpose::gradients);
    open_[b] = Tensor::empty({bucket.count}, Dtype::f32, device());
    set_zero(open_[b].device(), open_[b].raw(), open_[b].bytes());  // what lies between parameters travels too
    for (std::size_t i = bucket.first; i < bucket.last; ++i) {
        const Tensor& value = parameters_[i]->value;
        const Tensor given = value.grad();  // by hand: it is taken in when the bucket is asked for
        if (given) continue;
        value.set_grad(open_[b].window(places_[i].begin - bucket.begin, value.shape()));
        value.forget_grad();
    }
}

void ParameterStore::close_bucket(std::size_t b) {
    for (std::size_t i = buckets_[b].first; i < buckets_[b].last; ++i) {
        if (parameters_[i]->value.grad()) had_gradients_[i] = true;
        parameters_[i]->value.set_grad({});
    }
    open_[b] = {};
}

bool ParameterStore::is_open(std::size_t b) const {
    return open_[b].defined();
}

// Nothing is written: the first gradient of the next backward overwrites the old one.
void ParameterStore::zero_gradients() {
    check_current();
    for (std::size_t b = 0; b < open_.size(); ++b)
        if (is_open(b)) close_bucket(b);
    had_gradients_.assign(parameters_.size(), false);
    if (!gradients_) return;
    for (const Parameter* parameter : parameters_) parameter->value.forget_grad();
    gradients_.bump_version();
}

// Its step would change memory that no model looks at any more.
void ParameterStore::check_current() const {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (index_of(parameters_[i]->value) != i)
            fail<UsageError>(
                "parameter {} belongs to an optimizer that was made later; make one optimizer for each parameter, and "
                "groups for what differs within it",
                parameters_[i]->name);
}

Tensor ParameterStore::gradients() const {
    check_current();
    check<UsageError>(gradients_.defined(), "under zero2 no rank has all gradients; ask for the share of this one");
    adopt_gradients();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (parameters_[i]->value.grad()) continue;
        const Tensor left_over = gradients_.window(places_[i].begin, {places_[i].count});
        set_zero(left_over.device(), left_over.raw(), left_over.bytes());
    }
    return gradients_;
}

std::vector<bool> ParameterStore::have_gradients() const {
    if (!gradients_) return had_gradients_;
    std::vector<bool> have;
    have.reserve(parameters_.size());
    for (const Parameter* parameter : parameters_) have.push_back(parameter->value.grad().defined());
    return have;
}

void ParameterStore::set_have_gradients(const std::vector<bool>& have) {
    had_gradients_ = have;
    if (!gradients_) return;
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
    const auto pieces = [&]() -> const std::vector<Segment>& {
        return sharding_.shares_moments() ? share_segments_ : segments_;
    };
    if (!segments_.empty() && have == cut_for_) return pieces();
    segments_.clear();
    for (std::size_t i = 0; i < have.size(); ++i) {
        const std::int64_t end = i + 1 < places_.size() ? places_[i + 1].begin : total_;
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
    if (sharding_.shares_moments()) share_segments_ = share_of(segments_, buckets_, sharding_.ranks->rank());
    return pieces();
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
    gather_shadows();
    if (!dtype) hold_all_masters();
    shadow_ = dtype ? flat_array(total_, *dtype, device(), Purpose::weights) : Tensor{};
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Tensor& value = parameters_[i]->value;
        value.set_shadow(shadow_ ? shadow_.window(places_[i].begin, value.shape()) : Tensor{});
    }
    if (!promised_) refresh_shadow();
    if (promised_) publish_weights();
    if (may_share_masters(weights_.dtype(), dtype)) share_masters_out();
}

void ParameterStore::refresh_shadow() {
    if (!shadow_ || weights_.numel() == 0) return;
    kernels_for(device()).copy(weights_.view(), shadow_.window(0, weights_.shape()).view());
}

std::size_t ParameterStore::index_of(const Tensor& leaf) const {
    const bool ours = leaf.storage() == weights_.storage() || (promised_ && leaf.storage() == promised_.storage());
    if (!ours) return parameters_.size();
    const auto after = std::ranges::upper_bound(places_, leaf.offset(), {}, &Segment::begin);
    return after == places_.begin() ? parameters_.size() : std::size_t(after - places_.begin()) - 1;
}

const Parameter& ParameterStore::parameter_at(std::int64_t place) const {
    check(place >= 0 && place < total_, "no parameter lies at {} of {}", place, total_);
    const auto after = std::ranges::upper_bound(places_, place, {}, &Segment::begin);
    return *parameters_[std::size_t(after - places_.begin()) - 1];
}

void ParameterStore::adopt_gradients() const {
    if (!gradients_) return;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        adopt_gradient(i, gradients_.window(places_[i].begin, parameters_[i]->value.shape()));
}

void ParameterStore::adopt_gradient(std::size_t i, const Tensor& own) const {
    const Tensor& value = parameters_[i]->value;
    const Tensor given = value.grad();
    if (value.grad_forgotten() || (given && given.storage() == own.storage())) return;
    check(!given || (given.dtype() == Dtype::f32 && given.shape() == value.shape()),
          "the gradient of {} was replaced by {}; the optimizer takes {} in FP32", parameters_[i]->name, given.str(),
          value.shape().str());
    if (given) kernels_for(own.device()).copy(given.view(), own.view());
    value.set_grad(own);
    if (!given) value.forget_grad();
}

}  // namespace invar
