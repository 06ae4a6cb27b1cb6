#include "invar/dist/communicator.h"

#include <cstring>

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"

namespace invar {

namespace {

class Alone final : public Communicator {
  public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    std::string name() const override { return "one process"; }
    void all_gather(const void* mine, void* all, std::size_t bytes) override { std::memcpy(all, mine, bytes); }
    void broadcast(void*, std::size_t, int) override {}
    Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype, ReduceFinding*) override {
        return all_gather(whole, share);
    }
    Ticket all_gather(const Tensor& share, const Tensor& whole) override {
        if (share.raw() != whole.raw()) kernels_for(whole.device()).copy(share.view(), whole.view());
        return 0;
    }
    void wait(Ticket) override {}
};

}  // namespace

void Communicator::barrier() {
    gathered(char(0));
}

std::vector<std::string> Communicator::gathered(const std::string& mine) {
    const std::vector<std::uint64_t> sizes = gathered(std::uint64_t(mine.size()));
    std::size_t most = 0;
    for (const std::uint64_t each : sizes) most = std::max(most, std::size_t(each));
    std::string padded = mine, all(most * sizes.size(), '\0');
    padded.resize(most);
    if (most > 0) all_gather(padded.data(), all.data(), most);
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < sizes.size(); ++r) texts.push_back(all.substr(r * most, sizes[r]));
    return texts;
}

std::string Communicator::broadcast_text(std::string text, int root) {
    std::uint64_t length = text.size();
    broadcast(&length, sizeof length, root);
    text.resize(length);
    if (length > 0) broadcast(text.data(), length, root);
    return text;
}

void Communicator::sum(std::span<double> values) {
    if (alone() || values.empty()) return;
    std::vector<double> all(values.size() * std::size_t(size()));
    all_gather(values.data(), all.data(), values.size_bytes());
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = all[i];
        for (std::size_t r = 1; r < std::size_t(size()); ++r) values[i] += all[r * values.size() + i];
    }
}

bool Communicator::any(bool mine) {
    for (const char each : gathered(char(mine)))
        if (each != 0) return true;
    return false;
}

void Communicator::check_same(const std::string& what, const std::string& mine) {
    if (alone()) return;
    const std::vector<std::string> all = gathered(mine);
    for (std::size_t r = 1; r < all.size(); ++r)
        check<UsageError>(all[r] == all[0], "{} differ{} between ranks: '{}' on rank 0 and '{}' on rank {}", what,
                          what.ends_with('s') ? "" : "s", all[0], all[r], r);
}

std::unique_ptr<Communicator> make_alone() {
    return std::make_unique<Alone>();
}

}  // namespace invar
