#include "invar/optim/gradient_exchange.h"

#include <algorithm>

#include "invar/core/error.h"

namespace invar {

namespace {

constexpr std::size_t kTravelling = 1;  // buckets of zero2, beside the one that backward fills

}  // namespace

GradientExchange::GradientExchange(ParameterStore& store) : store_(store), states_(store.buckets().size()) {
    const std::size_t count = store.parameters().size();
    for (std::size_t b = 0; b < store.buckets().size(); ++b)
        bucket_of_.insert(bucket_of_.end(), store.buckets()[b].last - store.buckets()[b].first, b);
    for (std::size_t b = states_.size(); b-- > 0;) order_.push_back(b);
    seen_.resize(count);
    expected_.resize(count);
    if (ranks().device_collectives(store.device()) == nullptr) return;
    const PurposeScope purpose(Purpose::optimizer);
    device_finding_ = Tensor::empty({1}, Dtype::i64, store.device());
    reset();
}

GradientExchange::Backward::Backward(GradientExchange* exchange, bool last)
    : exchange_(exchange), listens_(exchange), exceptions_(std::uncaught_exceptions()) {
    if (exchange_ != nullptr) exchange_->begin(last);
}

GradientExchange::Backward::~Backward() noexcept(false) {
    if (exchange_ != nullptr && std::uncaught_exceptions() == exceptions_) exchange_->end(true);
}

std::size_t GradientExchange::bucket_of(const Tensor& leaf) const {
    const std::size_t i = store_.index_of(leaf);
    return i == bucket_of_.size() ? states_.size() : bucket_of_[i];
}

void GradientExchange::begin(bool last) {
    check(!finished_,
          "backward: the gradients of this step were summed over the ranks already; zero_grad() comes first");
    sending_ = last || store_.sharding().shares_gradients();
    seen_.assign(seen_.size(), 0);
    sent_ = 0;
    ready_.clear();
    for (State& state : states_) state.missing = 0, state.sent = false;
    complete_.assign(seen_.size(), false);
    travelling_.clear();
    for (std::size_t i = 0; i < expected_.size(); ++i) {
        complete_[i] = known_ && expected_[i] == 0;
        states_[bucket_of_[i]].missing += !complete_[i];
    }
    for (std::size_t b = states_.size(); b-- > 0;)
        if (states_[b].missing == 0) ready_.push_back(b);
}

void GradientExchange::before_gradient(const Tensor& leaf) {
    const std::size_t b = bucket_of(leaf);
    if (b == states_.size()) return;
    check(
        !states_[b].sent,
        "a gradient of {} came after it had been sent to the other ranks: this step's operations are not those of the "
        "step before; set trainer.overlap=false",
        store_.parameters()[store_.index_of(leaf)]->name);
    if (store_.sharding().shares_gradients() && !store_.is_open(b)) store_.open_bucket(b);
}

// Complete is what every reader has added to, and no fewer than in the last step: blocks that are computed anew record
// their readers only when backward comes to them. In a first step without such blocks the readers tell by themselves.
void GradientExchange::after_gradient(const Tensor& leaf, int readers) {
    const std::size_t i = store_.index_of(leaf);
    if (i == seen_.size()) return;
    if (++seen_[i] < std::max(readers, expected_[i]) || complete_[i]) return;
    if (!known_ && store_.sharding().recomputes) return;
    complete_[i] = true;
    if (--states_[bucket_of_[i]].missing == 0) ready_.push_back(bucket_of_[i]);
    if (sending_ && store_.sharding().overlap) send_ready();
}

void GradientExchange::send_ready() {
    while (sent_ < order_.size() && states_[order_[sent_]].missing == 0) send_next();
}

// What the first rank has seen; buckets that nothing was added to come last.
void GradientExchange::agree_on_order() {
    std::vector<std::size_t> order = ready_;
    for (const std::size_t b : order_)
        if (std::ranges::find(ready_, b) == ready_.end()) order.push_back(b);
    ranks().broadcast(order.data(), order.size() * sizeof order[0]);
    order_ = order;
    ordered_ = true;
}

void GradientExchange::send(std::size_t b) {
    const Bucket& bucket = store_.buckets()[b];
    State& state = states_[b];
    const Sharding& sharding = store_.sharding();
    if (sharding.shares_gradients() && !store_.is_open(b)) store_.open_bucket(b);
    const Tensor whole = store_.bucket_gradients(b);
    const Tensor piece = store_.gradient_share().window(bucket.share, {bucket.piece});
    if (rounds_ > 0) {
        const PurposeScope purpose(Purpose::gradients);
        state.extra = Tensor::empty(piece.shape(), Dtype::f32, piece.device());
    }
    const Tensor& sum = rounds_ > 0 ? state.extra : piece;
    const std::int64_t place = bucket.begin + ranks().rank() * bucket.piece;
    const bool everywhere = sharding.strategy == Strategy::ddp;
    if (DeviceCollectives* const by_itself = device()) {
        state.reduced = by_itself->reduce_scatter(whole, sum, sharding.wire, {device_finding(), place, rounds_});
        if (everywhere) state.reduced = by_itself->all_gather(piece, whole);
    } else {
        state.reduced = ranks().reduce_scatter(whole, sum, sharding.wire, &state.finding);
        if (everywhere) state.reduced = ranks().all_gather(piece, whole);
    }
    state.sent = true;
    if (!sharding.shares_gradients()) return;
    store_.close_bucket(b);  // what travels holds its memory
    travelling_.push_back(b);
    if (travelling_.size() <= kTravelling) return;
    take_in(travelling_.front());
    travelling_.pop_front();
}

void GradientExchange::wait_for(std::size_t b) {
    if (DeviceCollectives* const by_itself = device())
        by_itself->wait(states_[b].reduced);
    else
        ranks().wait(states_[b].reduced);
}

// Waits for a bucket's sum, and adds it to those of earlier backwards.
void GradientExchange::take_in(std::size_t b) {
    State& state = states_[b];
    wait_for(b);
    if (!state.extra) return;
    const Bucket& bucket = store_.buckets()[b];
    const Tensor piece = store_.gradient_share().window(bucket.share, {bucket.piece});
    kernels_for(piece.device()).add_into(state.extra.view(), piece.view());
    state.extra = {};
}

void GradientExchange::settle() {
    for (std::size_t b = 0; b < states_.size(); ++b) {
        State& state = states_[b];
        take_in(b);
        const Bucket& bucket = store_.buckets()[b];
        if (state.finding.place >= 0 && finding_.place < 0)
            finding_ = {bucket.begin + ranks().rank() * bucket.piece + state.finding.place, state.finding.rank};
        state.finding = {};
    }
}

void GradientExchange::end(bool of_backward) {
    const bool seen_ready = of_backward && (known_ || !store_.sharding().recomputes);
    if (!known_) expected_ = seen_, known_ = true;
    if (!sending_) return;
    while (sent_ < order_.size()) send_next();
    if (seen_ready && !ordered_) agree_on_order();
    expected_ = seen_;
    if (store_.sharding().shares_gradients()) settle();
    ++rounds_;
    sending_ = false;
}

void GradientExchange::finish() {
    if (finished_) return;
    if (rounds_ == 0) {  // no backward of ours, or not the last one: whatever is there is summed now
        begin(true);
        end(false);
    }
    settle();
    finished_ = true;
}

void GradientExchange::reset() {
    finished_ = false;
    rounds_ = 0;
    finding_ = {};
    // FindingKey::kNone
    if (device_finding_) kernels_for(device_finding_.device()).fill(device_finding_.view(), -1);
}

}  // namespace invar
