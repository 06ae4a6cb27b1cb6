// Ranks whose tensors travel by a DeviceCollectives that does nothing before it is waited for: whoever forgets to wait
// finds what was there before. On the CPU, over the ranks that it is made of.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include "invar/dist/communicator.h"
#include "invar/dist/device_collectives.h"
#include "invar/dist/rank_sum.h"

namespace invar {

class DeferredCollectives final : public DeviceCollectives {
  public:
    explicit DeferredCollectives(Communicator& ranks) : ranks_(ranks) {}
    std::string name() const override { return "later"; }

    Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype wire, const Finding& finding) override {
        return defer([this, whole, share, wire, finding] {
            ReduceFinding found;
            ranks_.wait(ranks_.reduce_scatter(whole, share, wire, &found));
            if (finding.key == nullptr || found.place < 0) return;
            const std::uint64_t key = FindingKey::of(finding.round, finding.place + found.place, found.rank);
            *finding.key = std::min(*finding.key, key);
        });
    }
    Ticket all_gather(const Tensor& share, const Tensor& whole) override {
        return defer([this, share, whole] { ranks_.wait(ranks_.all_gather(share, whole)); });
    }
    void wait(Ticket ticket) override {
        for (; done_ < ticket; ++done_) {
            work_.front()();
            work_.pop_front();
        }
    }
    void agree(const Agreement& step) override {
        const double loss = step.loss != nullptr ? *step.loss : 0.0;
        const std::vector<RankFindings> all =
            ranks_.gathered(findings_of(*step.state, loss, FindingKey::rank(*step.key), step.pieces, step.count));
        const double whole = agree_on(all.data(), ranks_.size(), *step.state);
        if (step.whole_loss != nullptr) *step.whole_loss = whole;
    }
    void check() override {}
    double waiting() override { return 0.0; }
    void give_up() noexcept override {}
    Ticket left() const { return issued_ - done_; }  // begun, and waited for by nobody

  private:
    Ticket defer(std::function<void()> work) {
        work_.push_back(std::move(work));
        return ++issued_;
    }
    Communicator& ranks_;
    std::deque<std::function<void()>> work_;
    Ticket issued_ = 0, done_ = 0;
};

class DeferredRanks final : public Communicator {
  public:
    explicit DeferredRanks(Communicator& ranks) : ranks_(ranks), collectives_(ranks) {}
    int rank() const override { return ranks_.rank(); }
    int size() const override { return ranks_.size(); }
    std::string name() const override { return ranks_.name() + ", " + collectives_.name(); }
    void all_gather(const void* mine, void* all, std::size_t bytes) override { ranks_.all_gather(mine, all, bytes); }
    void broadcast(void* data, std::size_t bytes, int root) override { ranks_.broadcast(data, bytes, root); }
    Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype wire, ReduceFinding*) override {
        return collectives_.reduce_scatter(whole, share, wire, {});
    }
    Ticket all_gather(const Tensor& share, const Tensor& whole) override {
        return collectives_.all_gather(share, whole);
    }
    void wait(Ticket ticket) override { collectives_.wait(ticket); }
    DeviceCollectives* device_collectives(Device) override { return &collectives_; }
    Ticket left() const { return collectives_.left(); }

  private:
    Communicator& ranks_;
    DeferredCollectives collectives_;
};

}  // namespace invar
