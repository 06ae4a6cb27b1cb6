// How the optimizers of ranks that train together agree on a step: by a message between their hosts, or on their
// devices, where nobody waits.
#include <algorithm>
#include <cstring>

#include "invar/core/error.h"
#include "invar/core/host_side.h"
#include "invar/optim/optimizer.h"

namespace invar {

namespace {

// What `mine` holds as bytes, and everybody's of the same length, in rank order.
std::vector<char> gather_bytes(Communicator& ranks, const std::vector<char>& mine) {
    std::vector<char> all(mine.size() * std::size_t(ranks.size()));
    ranks.all_gather(mine.data(), all.data(), mine.size());
    return all;
}

}  // namespace

void Optimizer::prepare_agreement() {
    exchange_ = std::make_unique<GradientExchange>(*store_);
    const int rank = store_->sharding().ranks->rank();
    for (const Bucket& bucket : store_->buckets())
        pieces_.push_back({bucket.begin + rank * bucket.piece, bucket.piece, bucket.share});
    if (exchange_->device() == nullptr) return;
    const PurposeScope purpose(Purpose::optimizer);
    const std::size_t bytes = pieces_.size() * sizeof(SharePiece);
    device_pieces_ = Tensor::empty({std::int64_t(bytes)}, Dtype::u8, store_->device());
    kernels().upload(device_pieces_.raw(), pieces_.data(), bytes);
}

// What ranks found each in its share becomes what all of them know, added up in rank order: every one decides the same,
// and to the bit.
void Optimizer::agree(const Tensor& loss) {
    if (DeviceCollectives* const device = exchange_->device()) return agree_on_device(*device, loss);
    Communicator& ranks = *store_->sharding().ranks;
    StepState state = this->state();
    RankFindings mine = findings_of(state, loss ? loss.item() : 0.0, exchange_->finding().rank, pieces_.data(),
                                    std::int64_t(pieces_.size()));
    mine.stop = asks_to_stop_;
    // Who has a gradient on any rank has one on all: the others brought zeros.
    std::vector<bool> have = store_->have_gradients();
    std::vector<char> sent(sizeof mine + have.size());
    std::memcpy(sent.data(), &mine, sizeof mine);
    std::ranges::copy(have, sent.begin() + sizeof mine);
    const std::vector<char> received = gather_bytes(ranks, sent);
    std::vector<RankFindings> all(std::size_t(ranks.size()));
    asked_to_stop_ = 0;
    for (std::size_t r = 0; r < all.size(); ++r) {
        const char* const from = received.data() + r * sent.size();
        std::memcpy(&all[r], from, sizeof mine);
        asked_to_stop_ = std::max(asked_to_stop_, all[r].stop);
        for (std::size_t i = 0; i < have.size(); ++i) have[i] = have[i] || from[sizeof mine + i] != 0;
    }
    store_->set_have_gradients(have);
    const double whole_loss = agree_on(all.data(), ranks.size(), state);
    set_state(state);
    asks_to_stop_ = 0;
    agreed_loss_ = {};
    if (!loss) return;
    agreed_loss_ = Tensor::empty({}, Dtype::f64, state_.device());
    kernels().upload(agreed_loss_.raw(), &whole_loss, sizeof whole_loss);
}

// The same without the host: what is added up, and in which order, is written once for both.
void Optimizer::agree_on_device(DeviceCollectives& device, const Tensor& loss) {
    agree_on_gradients();
    DeviceCollectives::Agreement step;
    step.state = device_state();
    step.key = exchange_->device_finding();
    step.pieces = static_cast<const SharePiece*>(device_pieces_.raw());
    step.count = std::int64_t(pieces_.size());
    Tensor own_loss;
    agreed_loss_ = {};
    if (loss) {
        own_loss = Tensor::empty({}, Dtype::f64, state_.device());
        agreed_loss_ = Tensor::empty({}, Dtype::f64, state_.device());
        kernels().copy(loss.window(0, {}).view(), own_loss.view());
        step.loss = own_loss.data<double>();
        step.whole_loss = agreed_loss_.data<double>();
    }
    device.agree(step);
}

// Who has a gradient on any rank has one on all: the others brought zeros. Hosts tell each other, beside their devices;
// a recording goes by the step before it, and is not made where this rank's step is another.
void Optimizer::agree_on_gradients() {
    const std::vector<bool> here = store_->have_gradients();
    if (HostSide::current() == nullptr) {
        std::vector<bool> anywhere = here;
        const std::vector<char> all = gather_bytes(*store_->sharding().ranks, {here.begin(), here.end()});
        for (std::size_t i = 0; i < all.size(); ++i)
            if (all[i] != 0) anywhere[i % here.size()] = true;
        had_here_ = here;
        had_anywhere_ = std::move(anywhere);
    }
    check(here == had_here_,
          "a step that has gradients for other parameters than the one before it cannot be recorded");
    store_->set_have_gradients(had_anywhere_);
}

int Optimizer::asked_to_stop() {
    if (!exchange_ || exchange_->device() == nullptr) return asked_to_stop_;
    const std::vector<int> all = store_->sharding().ranks->gathered(asks_to_stop_);
    asks_to_stop_ = 0;
    return asked_to_stop_ = *std::ranges::max_element(all);
}

}  // namespace invar
