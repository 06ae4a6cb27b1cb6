// GradientExchange: sums the gradients of a store over its ranks, bucket by bucket, each as soon as backward has made
// all of it. Every rank sends in the same order: at first from the last bucket on, then in that in which the first
// rank's became ready.
#pragma once

#include <deque>
#include <vector>

#include "invar/autograd/node.h"
#include "invar/dist/device_collectives.h"
#include "invar/optim/parameter_store.h"

namespace invar {

class GradientExchange final : public LeafListener {
  public:
    explicit GradientExchange(ParameterStore& store);

    // While one lives, a backward may run. After the `last` one of a step nothing is added to the gradients: what is
    // ready travels. Under zero2 every one is sent, and added to the share.
    class Backward {
      public:
        Backward(GradientExchange* exchange, bool last);  // nullptr: nobody to exchange with
        ~Backward() noexcept(false);
        Backward(const Backward&) = delete;
        Backward& operator=(const Backward&) = delete;

      private:
        GradientExchange* exchange_;
        LeafListener::Scope listens_;
        int exceptions_;
    };

    // The sums are there: in the share of each rank, under ddp in all gradients of each. Sends what was not sent yet.
    void finish();
    // The next step begins.
    void reset();
    // The first place of this rank's pieces where a sum is not finite, and whose part of it was the first that was not;
    // -1: nobody's, the sum itself overflowed. Where sums go by the host.
    const ReduceFinding& finding() const { return finding_; }
    // The device's own way, and where it leaves such findings; nullptr where sums go by the host. Throws where ranks
    // are lost.
    DeviceCollectives* device() const {
        return device_finding_ ? ranks().device_collectives(device_finding_.device()) : nullptr;
    }
    std::uint64_t* device_finding() const { return static_cast<std::uint64_t*>(device_finding_.raw()); }

    void before_gradient(const Tensor& leaf) override;
    void after_gradient(const Tensor& leaf, int readers) override;

  private:
    struct State {
        int missing = 0;  // parameters whose gradient this backward has still to make, where that is known
        bool sent = false;
        Communicator::Ticket reduced = 0;
        ReduceFinding finding;
        Tensor extra;  // zero2, beyond the first backward: what is added to the share
    };
    void begin(bool last);
    void end(bool of_backward);
    void send_ready();
    void send_next() { send(order_[sent_++]); }
    void agree_on_order();
    void send(std::size_t bucket);
    void settle();  // waits for what was sent
    void take_in(std::size_t bucket);
    void wait_for(std::size_t bucket);
    std::size_t bucket_of(const Tensor& leaf) const;
    Communicator& ranks() const { return *store_.sharding().ranks; }

    ParameterStore& store_;
    Tensor device_finding_;
    std::vector<std::size_t> bucket_of_;  // of each parameter
    std::vector<State> states_;
    std::vector<int> seen_, expected_;  // contributions to each parameter in a backward: in this one, and in the last
    std::vector<bool> complete_;
    std::deque<std::size_t> travelling_;  // zero2: buckets that were sent last, and hold memory of their own
    std::vector<std::size_t> order_;      // in which buckets are sent
    std::vector<std::size_t> ready_;      // those that are complete, in the order in which they became so
    std::size_t sent_ = 0;                // of order_
    bool ordered_ = false;                // order_ is that of a backward
    bool sending_ = false;                // this backward's gradients travel
    bool known_ = false;                  // expected_ holds
    int rounds_ = 0;                      // backwards whose gradients were summed in this step
    bool finished_ = false;
    ReduceFinding finding_;
};

}  // namespace invar
