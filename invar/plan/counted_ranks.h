// CountedRanks: so many ranks, of which one is counted and the others are not there. What travels goes nowhere; it is
// held as long, and takes as much room beside it, as where it does.
#pragma once

#include <array>
#include <deque>
#include <memory>

#include "invar/dist/communicator.h"
#include "invar/dist/device_collectives.h"
#include "invar/dist/strategy.h"

namespace invar {

struct Ranks {
    int count = 1;
    Strategy strategy = Strategy::ddp;
    int gradient_bytes = 4;  // of each gradient on the wire: FP32, or 2: BF16
};

// What was sent and not waited for.
class Travelling {
  public:
    std::uint64_t send(const Tensor& from, const Tensor& to);
    void wait(std::uint64_t ticket);

  private:
    struct Sent {
        std::uint64_t ticket;
        std::array<Tensor, 2> tensors;
    };
    std::deque<Sent> sent_;
    std::uint64_t last_ = 0;
};

class CountedRanks final : public Communicator {
  public:
    explicit CountedRanks(int count) : count_(count) {}

    int rank() const override { return 0; }
    int size() const override { return count_; }
    std::string name() const override { return "ranks that are counted"; }
    // The others say what this one says.
    void all_gather(const void* mine, void* all, std::size_t bytes) override;
    void broadcast(void*, std::size_t, int) override {}
    Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype, ReduceFinding*) override {
        return travelling_.send(whole, share);
    }
    Ticket all_gather(const Tensor& share, const Tensor& whole) override { return travelling_.send(share, whole); }
    void wait(Ticket ticket) override { travelling_.wait(ticket); }
    // GPUs exchange by themselves, as by NCCL.
    void prepare(Device device) override;
    DeviceCollectives* device_collectives(Device device) override {
        return device.is_cpu() ? nullptr : collectives_.get();
    }

  private:
    int count_;
    Travelling travelling_;
    std::unique_ptr<DeviceCollectives> collectives_;
};

}  // namespace invar
