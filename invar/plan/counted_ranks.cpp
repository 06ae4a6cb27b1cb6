#include "invar/plan/counted_ranks.h"

#include <cstring>

namespace invar {

namespace {

// As dist/nccl does it, in all but what is sent.
class CountedCollectives final : public DeviceCollectives {
  public:
    CountedCollectives(int ranks, Device device) : ranks_(ranks), device_(device) {
        const PurposeScope purpose(Purpose::workspace);
        findings_ = Tensor::empty({std::int64_t(sizeof(RankFindings)) * (ranks + 1)}, Dtype::u8, device);
    }
    std::string name() const override { return "a device that is counted"; }
    Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype wire, const Finding&) override {
        const std::size_t bytes = ExchangeRoom(share.numel(), ranks_, wire).total();
        if (!staging_ || staging_->bytes() < bytes) {
            staging_.reset();
            staging_ = std::make_unique<Storage>(bytes, device_, Purpose::workspace);
        }
        return travelling_.send(whole, share);
    }
    Ticket all_gather(const Tensor& share, const Tensor& whole) override { return travelling_.send(share, whole); }
    void wait(Ticket ticket) override { travelling_.wait(ticket); }
    void agree(const Agreement&) override {}
    void check() override {}
    double waiting() override { return 0; }
    void give_up() noexcept override {}

  private:
    int ranks_;
    Device device_;
    Tensor findings_;
    std::unique_ptr<Storage> staging_;
    Travelling travelling_;
};

}  // namespace

std::uint64_t Travelling::send(const Tensor& from, const Tensor& to) {
    sent_.push_back({++last_, {from, to}});
    return last_;
}

void Travelling::wait(std::uint64_t ticket) {
    while (!sent_.empty() && sent_.front().ticket <= ticket) sent_.pop_front();
}

void CountedRanks::all_gather(const void* mine, void* all, std::size_t bytes) {
    for (int r = 0; r < count_; ++r) std::memcpy(static_cast<std::byte*>(all) + std::size_t(r) * bytes, mine, bytes);
}

void CountedRanks::prepare(Device device) {
    if (count_ > 1 && !device.is_cpu()) collectives_ = std::make_unique<CountedCollectives>(count_, device);
}

}  // namespace invar
