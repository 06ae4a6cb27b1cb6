// The part of ParameterStore that shares masters out: who has which, and how everybody gets what forward reads.
#include <algorithm>

#include "invar/core/error.h"
#include "invar/core/host_side.h"
#include "invar/core/promised.h"
#include "invar/optim/parameter_store.h"

namespace invar {

// Only where every rank has a shadow to compute with.
bool ParameterStore::may_share_masters(Dtype weights, std::optional<Dtype> shadow) const {
    return sharding_.shares_moments() && shadow && weights == Dtype::f32 && low_from_ < total_ && !keeps_all_;
}

Tensor ParameterStore::promised_weights(std::int64_t count, Device device) {
    return promised_tensor(
        {count}, Dtype::f32, device,
        "an operation in FP32 reads a weight of which each rank has its share alone, and all have "
        "the 16-bit copy; give its module a precision of its own before training begins "
        "(trainer.precision_overrides, or Module::set_precision), or train with trainer.strategy=ddp");
}

Tensor ParameterStore::weights() const {
    check<UsageError>(!promised_, "no rank has all weights in FP32; ask for the share of this one");
    return weights_;
}

Tensor ParameterStore::own_weights() const {
    if (!sharding_.shares_moments()) return weights_;
    take_weight_share();
    return weight_share_;
}

Tensor ParameterStore::known_weights() {
    gather_shadows();
    return promised_ ? shadow_ : weights_;
}

void ParameterStore::bump_versions() const {
    const bool current = shared_at_ == weights_.version();
    for (const Tensor* written : {&weights_, &promised_, &weight_share_, &shadow_})
        if (*written) written->bump_version();
    if (current) shared_at_ = weights_.version();
}

std::int64_t ParameterStore::own_begin(const Bucket& bucket) const {
    return bucket.begin + (sharding_.spread() ? sharding_.ranks->rank() * bucket.piece : 0);
}

ParameterStore::OwnPart ParameterStore::own_part(std::size_t i) const {
    const Segment& all = places_[i];
    const Bucket& bucket = bucket_of(i);
    const std::int64_t begin = own_begin(bucket), from = std::max(begin, all.begin);
    const std::int64_t to = std::min(begin + bucket.piece, all.begin + all.count);
    const std::int64_t held_at = sharding_.shares_moments() ? bucket.share : begin;
    return {from - all.begin, held_at + from - begin, std::max<std::int64_t>(to - from, 0)};
}

// Whoever sets weights that every rank has sets all of them; the share is what of them is this rank's. After a step it
// is that already. A recording takes it in any case: when it is replayed, somebody may have set weights before.
void ParameterStore::take_weight_share() const {
    if (shared_at_ == weights_.version() && HostSide::current() == nullptr) return;
    for (const Bucket& bucket : buckets_)
        if (bucket.begin < weights_.numel())
            kernels_for(device()).copy(weights_.window(own_begin(bucket), {bucket.piece}).view(),
                                       weight_share_.window(bucket.share, {bucket.piece}).view());
    shared_at_ = weights_.version();
}

// Shadows are sent in the order in which forward reads them, which begins before they are here.
void ParameterStore::publish_weights() {
    if (!sharding_.shares_moments()) return refresh_shadow();
    await_sent();
    gathered_ = {};
    HostSide* const recorded = HostSide::current();
    Communicator& ranks = *sharding_.ranks;
    Communicator::Ticket whole = 0;
    on_their_way_.assign(buckets_.size(), 0);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const Bucket& bucket = buckets_[b];
        const Tensor mine = weight_share_.window(bucket.share, {bucket.piece});
        if (bucket.begin < weights_.numel()) {
            whole = ranks.all_gather(mine, weights_.window(bucket.begin, {bucket.count}));
            continue;
        }
        kernels_for(device()).copy(mine.view(), shadow_.window(own_begin(bucket), {bucket.piece}).view());
        if (recorded == nullptr) send_shadow(b);
    }
    if (whole != 0) ranks.wait(whole);
    shared_at_ = weights_.version();
    refresh_shadow();
    if (!promised_) return;
    make_known();
    expect_shadows(recorded != nullptr);
    if (recorded != nullptr) recorded->repeat([this] { expect_shadows(true); });
}

void ParameterStore::send_shadow(std::size_t b) {
    const Bucket& bucket = buckets_[b];
    on_their_way_[b] = sharding_.ranks->all_gather(shadow_.window(own_begin(bucket), {bucket.piece}),
                                                   shadow_.window(bucket.begin, {bucket.count}));
}

void ParameterStore::send_shadows() {
    for (std::size_t b = 0; b < buckets_.size(); ++b)
        if (buckets_[b].begin >= weights_.numel()) send_shadow(b);
    expect_shadows(false);
}

void ParameterStore::expect_shadows(bool unsent) {
    arrived_ = 0;
    unsent_ = unsent;
}

// What the step before has left; where all is here already, the same bits once more.
void ParameterStore::begin_recording() {
    if (!promised_ || sharding_.ranks->device_collectives(device()) == nullptr) return;
    HostSide::current()->undo([this, arrived = arrived_, unsent = unsent_] { arrived_ = arrived, unsent_ = unsent; });
    on_their_way_.assign(buckets_.size(), 0);
    send_shadows();
}

void ParameterStore::await(const Tensor& shadow) {
    if (shadows_are_here() || shadow.storage() != shadow_.storage()) return;
    if (unsent_) send_shadows();
    const auto after = std::ranges::upper_bound(buckets_, shadow.offset(), {}, &Bucket::begin);
    const auto bucket = std::size_t(after - buckets_.begin()) - 1;
    if (bucket < arrived_) return;
    if (on_their_way_[bucket] != 0) sharding_.ranks->wait(on_their_way_[bucket]);
    arrived_ = bucket + 1;
}

void ParameterStore::await_sent() {
    if (shadows_are_here() || unsent_) return;
    if (on_their_way_.back() != 0) sharding_.ranks->wait(on_their_way_.back());
    arrived_ = buckets_.size();
}

void ParameterStore::gather_shadows() {
    if (!shadows_are_here()) await(shadow_.window(shadow_.numel() - 1, {1}));
}

void ParameterStore::share_masters_out() {
    if (promised_) return;
    take_weight_share();
    const std::vector<bool> have = have_gradients();
    const PurposeScope purpose(Purpose::weights);
    const Tensor kept = Tensor::empty({low_from_}, weights_.dtype(), device());
    if (low_from_ > 0) kernels_for(device()).copy(weights_.window(0, {low_from_}).view(), kept.view());
    promised_ = promised_weights(total_, device());
    weights_ = kept;
    shared_at_ = weights_.version();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Tensor& from = places_[i].begin < low_from_ ? weights_ : promised_;
        set_value(i, from.window(places_[i].begin, parameters_[i]->value.shape()));
    }
    set_have_gradients(have);
}

void ParameterStore::hold_all_masters() {
    if (!promised_) return;
    gather_shadows();
    const std::vector<bool> have = have_gradients();
    const PurposeScope purpose(Purpose::weights);
    const Tensor all = Tensor::empty({total_}, weights_.dtype(), device());
    if (weights_.numel() > 0) kernels_for(device()).copy(weights_.view(), all.window(0, weights_.shape()).view());
    Communicator::Ticket last = 0;
    for (const Bucket& bucket : buckets_)
        if (bucket.begin >= weights_.numel())
            last = sharding_.ranks->all_gather(weight_share_.window(bucket.share, {bucket.piece}),
                                               all.window(bucket.begin, {bucket.count}));
    if (last != 0) sharding_.ranks->wait(last);
    weights_ = all;
    shared_at_ = weights_.version();
    promised_ = {};
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        set_value(i, weights_.window(places_[i].begin, parameters_[i]->value.shape()));
    set_have_gradients(have);
}

void ParameterStore::keep_all_masters() {
    keeps_all_ = true;
    hold_all_masters();
}

// Values are asked for one after the other: those of a bucket come together.
Tensor ParameterStore::gather(const Parameter& parameter) {
    const auto i = std::size_t(std::ranges::find(parameters_, &parameter) - parameters_.begin());
    const Bucket& bucket = bucket_of(i);
    const auto b = std::size_t(&bucket - buckets_.data());
    if (!gathered_ || gathered_bucket_ != b) {
        const PurposeScope purpose(Purpose::workspace);
        gathered_ = Tensor::empty({bucket.count}, weight_share_.dtype(), device());
        gathered_bucket_ = b;
        sharding_.ranks->wait(
            sharding_.ranks->all_gather(weight_share_.window(bucket.share, {bucket.piece}), gathered_));
    }
    return gathered_.window(places_[i].begin - bucket.begin, parameter.value.shape());
}

void ParameterStore::take(const Parameter& parameter, const Tensor& value) {
    await_sent();
    gathered_ = {};
    const auto i = std::size_t(std::ranges::find(parameters_, &parameter) - parameters_.begin());
    set_part(weight_share_, i, value);
    kernels_for(device()).copy(value.view(), shadow_.window(places_[i].begin, value.shape()).view());
    bump_versions();
}

}  // namespace invar
