// A Communicator over a Transport. One thread makes all calls of the transport, one after the other in the order in
// which they were asked for; whoever asked goes on until it has to wait.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "invar/core/error.h"
#include "invar/dist/communicator.h"
#include "invar/dist/device_collectives.h"
#include "invar/dist/rank_sum.h"
#include "invar/kernels/kernels.h"

namespace invar {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of what is summed, the bytes that come at once from all ranks together, and from one.
constexpr std::size_t kPartsAtOnce = std::size_t(1) << 21, kLeastPart = std::size_t(1) << 14,
                      kMostPart = std::size_t(1) << 18;

// Tickets of the device's own way are told from the others.
constexpr Communicator::Ticket kOfDevice = Communicator::Ticket(1) << 63;

class TransportCommunicator final : public Communicator {
  public:
    explicit TransportCommunicator(std::function<std::unique_ptr<Transport>()> start) {
        thread_ = std::thread([this, start = std::move(start)] { work(start); });
        std::unique_lock lock(mutex_);
        done_.wait(lock, [&] { return started_ || error_; });
        if (error_) {
            lock.unlock();
            thread_.join();
            std::rethrow_exception(error_);
        }
    }
    ~TransportCommunicator() override {
        std::unique_ptr<DeviceCollectives> collectives;
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
            collectives = std::move(collectives_);
            if (collectives && (error_ || !leaving_.empty())) {
                collectives->give_up();
                (void)collectives.release();  // its library cannot be ended in order without the others
            }
        }
        collectives.reset();
        wake_.notify_all();
        thread_.join();
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string name() const override { return way_.empty() ? name_ : name_ + ", " + way_; }

    void all_gather(const void* mine, void* all, std::size_t bytes) override {
        wait(submit([=](Transport& transport) { transport.all_gather(mine, all, bytes); }));
    }
    void broadcast(void* data, std::size_t bytes, int root) override {
        wait(submit([=](Transport& transport) { transport.broadcast(data, bytes, root); }));
    }

    Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype wire, ReduceFinding* finding) override {
        check(whole.dtype() == Dtype::f32 && share.dtype() == Dtype::f32 && whole.numel() == share.numel() * size_ &&
                  whole.is_contiguous() && share.is_contiguous() && (wire == Dtype::f32 || wire == Dtype::bf16),
              "reduce_scatter of {} into {} over {} ranks as {}", whole.str(), share.str(), size_, name_of(wire));
        if (whole.device().is_cpu()) {
            return submit([this, whole, share, wire, finding](Transport& transport) {
                reduce(transport, whole.data<float>(), share.data<float>(), share.numel(), wire, finding);
            });
        }
        Kernels& device = kernels_for(whole.device());
        if (DeviceCollectives* const collectives = device_collectives(whole.device())) {
            if (finding == nullptr) return kOfDevice | collectives->reduce_scatter(whole, share, wire, {});
            const Tensor key = Tensor::empty({1}, Dtype::i64, whole.device());
            device.fill(key.view(), -1);
            auto* const bits = static_cast<std::uint64_t*>(key.raw());
            collectives->wait(collectives->reduce_scatter(whole, share, wire, {bits, 0, 0}));
            std::uint64_t found = 0;
            device.download(&found, bits, sizeof found);  // the host asks for it, and waits
            *finding = {FindingKey::place(found), FindingKey::rank(found)};
            return 0;
        }
        std::vector<float> from(std::size_t(whole.numel())), to(std::size_t(share.numel()));
        device.download(from.data(), whole.raw(), whole.bytes());
        wait(submit(
            [&](Transport& transport) { reduce(transport, from.data(), to.data(), share.numel(), wire, finding); }));
        device.upload(share.raw(), to.data(), share.bytes());
        return 0;
    }

    Ticket all_gather(const Tensor& share, const Tensor& whole) override {
        check(whole.dtype() == share.dtype() && whole.numel() == share.numel() * size_ && whole.is_contiguous() &&
                  share.is_contiguous(),
              "all_gather of {} into {} over {} ranks", share.str(), whole.str(), size_);
        if (whole.device().is_cpu()) {
            return submit([this, share, whole](Transport& transport) {
                transport.all_gather(share.raw(), whole.raw(), share.bytes());
            });
        }
        if (DeviceCollectives* const collectives = device_collectives(whole.device()))
            return kOfDevice | collectives->all_gather(share, whole);
        Kernels& device = kernels_for(whole.device());
        std::vector<std::byte> all(whole.bytes());
        std::byte* const mine = all.data() + std::size_t(rank_) * share.bytes();
        device.download(mine, share.raw(), share.bytes());
        wait(submit([&](Transport& transport) { transport.all_gather(mine, all.data(), share.bytes()); }));
        device.upload(whole.raw(), all.data(), all.size());
        return 0;
    }

    void wait(Ticket ticket) override {
        if ((ticket & kOfDevice) != 0) return device_collectives(Device::cuda())->wait(ticket & ~kOfDevice);
        const Clock::time_point start = Clock::now();
        std::unique_lock lock(mutex_);
        done_.wait(lock, [&] { return finished_ >= ticket || error_; });
        waited_ += seconds_since(start);
        if (error_ && finished_ < ticket) std::rethrow_exception(error_);
    }

    void prepare(Device device) override {
        if (!any(!device.is_cpu() && way_.empty())) return;
        std::string why_not;
        std::unique_ptr<DeviceCollectives> found = join_nccl(*this, device, why_not);
        way_ = found ? found->name() : "tensors of GPUs by way of the host: " + why_not;
        const std::lock_guard lock(mutex_);
        collectives_ = std::move(found);
    }
    DeviceCollectives* device_collectives(Device device) override {
        const std::lock_guard lock(mutex_);
        if (!device.is_cpu() && collectives_ && error_) std::rethrow_exception(error_);
        return device.is_cpu() ? nullptr : collectives_.get();
    }

    Times times() const override {
        const std::lock_guard lock(mutex_);
        return {busy_, waited_};
    }
    void set_step(std::int64_t step) override {
        const std::lock_guard lock(mutex_);
        step_ = step;
    }
    void leave(const std::string& why) noexcept override {
        try {
            {
                const std::lock_guard lock(mutex_);
                leaving_ = why;
            }
            wake_.notify_all();
            std::unique_lock lock(mutex_);
            done_.wait_for(lock, std::chrono::seconds(2), [&] { return told_ || error_; });
            if (collectives_) collectives_->give_up();
        } catch (...) {  // nobody is left to be told
        }
    }

  private:
    using Job = std::function<void(Transport&)>;

    Ticket submit(Job job) {
        Ticket ticket = 0;
        {
            const std::lock_guard lock(mutex_);
            if (error_) std::rethrow_exception(error_);
            jobs_.push_back(std::move(job));
            ticket = ++submitted_;
        }
        wake_.notify_all();
        return ticket;
    }

    // Everybody's pieces come here, and are added in rank order. The rank's own piece may be where the sum goes.
    void reduce(Transport& transport, const float* whole, float* share, std::int64_t count, Dtype wire,
                ReduceFinding* finding) {
        const auto all = std::size_t(count) * std::size_t(size_);
        if (wire == Dtype::f32)
            return reduce(transport, whole, share, count, finding, [](float value) { return value; });
        sent_.resize(all * sizeof(std::uint16_t));
        auto* const out = reinterpret_cast<std::uint16_t*>(sent_.data());
        for (std::size_t i = 0; i < all; ++i) out[i] = to_bf16_bits(whole[i]);
        reduce(transport, out, share, count, finding, from_bf16_bits);
    }

    template <class Sent, class Widen>
    void reduce(Transport& transport, const Sent* out, float* share, std::int64_t count, ReduceFinding* finding,
                Widen widen) {
        if (finding != nullptr) *finding = {};
        const std::size_t part = std::clamp(kPartsAtOnce / std::size_t(size_), kLeastPart, kMostPart);
        const auto bytes = std::size_t(count) * sizeof(Sent);
        transport.all_to_all(out, bytes, part, [&](std::size_t at, std::size_t arrived, const std::byte* parts) {
            const auto begin = std::int64_t(at / sizeof(Sent));
            const auto piece = [&](int r) {
                return r == rank_ ? out + r * count + begin
                                  : reinterpret_cast<const Sent*>(parts + std::size_t(r) * part);
            };
            const ReduceFinding bad = add_up(piece, share + begin, std::int64_t(arrived / sizeof(Sent)), widen);
            if (finding != nullptr && finding->place < 0 && bad.place >= 0) *finding = {begin + bad.place, bad.rank};
        });
    }

    // In blocks that stay near while every piece is read once.
    template <class Piece, class Widen>
    ReduceFinding add_up(const Piece& piece, float* share, std::int64_t count, Widen widen) const {
        constexpr std::int64_t kBlock = 2048;
        std::array<float, kBlock> sum;
        ReduceFinding finding;
        for (std::int64_t begin = 0; begin < count; begin += kBlock) {
            const auto block = std::size_t(std::min(kBlock, count - begin));
            const auto* const first = piece(0) + begin;
            for (std::size_t i = 0; i < block; ++i) sum[i] = widen(first[i]);
            for (int r = 1; r < size_; ++r) {
                const auto* const more = piece(r) + begin;
                for (std::size_t i = 0; i < block; ++i) sum[i] += widen(more[i]);
            }
            int any = 0;
            for (std::size_t i = 0; i < block; ++i) any |= is_bad(sum[i]);
            for (std::size_t i = 0; any && finding.place < 0; ++i) {
                if (!is_bad(sum[i])) continue;
                finding.place = begin + std::int64_t(i);
                for (int r = size_ - 1; r >= 0; --r)
                    if (is_bad(widen(piece(r)[finding.place]))) finding.rank = r;
            }
            std::memcpy(share + begin, sum.data(), block * sizeof(float));
        }
        return finding;
    }

    void work(const std::function<std::unique_ptr<Transport>()>& start) {
        std::unique_ptr<Transport> transport;
        try {
            transport = start();
            std::unique_lock lock(mutex_);
            rank_ = transport->rank(), size_ = transport->size(), name_ = transport->name();
            started_ = true;
            done_.notify_all();
            while (run_one(*transport, lock)) {
            }
            lock.unlock();
            transport->finish();
        } catch (...) {
            {
                const std::lock_guard lock(mutex_);
                error_ = std::current_exception();
                if (collectives_) collectives_->give_up();  // so that nobody waits for a device that waits for others
            }
            done_.notify_all();
            const std::string told = wait_for_end();  // whether we have failed too, the others may still want to know
            if (transport && !told.empty()) transport->tell_failure(told);
            (void)transport.release();  // its library cannot be ended in order without the others
        }
    }

    std::string wait_for_end() {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_ || !leaving_.empty(); });
        return leaving_;
    }

    // One job, or a look at who asks for us. False at the end.
    bool run_one(Transport& transport, std::unique_lock<std::mutex>& lock) {
        constexpr auto kListenEvery = std::chrono::milliseconds(20);
        wake_.wait_for(lock, kListenEvery, [&] { return stop_ || !jobs_.empty() || (!leaving_.empty() && !told_); });
        const std::int64_t step = step_;
        if (!leaving_.empty() && !told_) {
            const std::string why = leaving_;
            lock.unlock();
            transport.set_status(step);
            transport.tell_failure(why);
            lock.lock();
            told_ = true;
            done_.notify_all();
            left_ = true;
        }
        if (jobs_.empty() || left_) {
            if (stop_) {
                if (left_) throw RankError(leaving_);
                return false;
            }
            const double waited = collectives_ ? collectives_->waiting() : 0.0;
            if (collectives_) collectives_->check();
            lock.unlock();
            transport.set_status(step);
            transport.listen();
            transport.look_after(std::chrono::duration<double>(waited));
            lock.lock();
            return true;
        }
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        transport.set_status(step);
        const Clock::time_point begin = Clock::now();
        job(transport);
        job = nullptr;  // and with it its tensors, before anybody hears of it
        lock.lock();
        busy_ += seconds_since(begin);
        ++finished_;
        done_.notify_all();
        return true;
    }

    mutable std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::deque<Job> jobs_;
    Ticket submitted_ = 0, finished_ = 0;
    bool started_ = false, stop_ = false, told_ = false, left_ = false;
    std::string leaving_;
    std::exception_ptr error_;
    double busy_ = 0.0, waited_ = 0.0;
    std::int64_t step_ = -1;
    int rank_ = 0, size_ = 1;
    std::string name_, way_;  // of tensors that are not the host's; "" before anybody asked
    std::unique_ptr<DeviceCollectives> collectives_;
    std::vector<std::byte> sent_;  // of the thread
    std::thread thread_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::function<std::unique_ptr<Transport>()> start) {
    return std::make_unique<TransportCommunicator>(std::move(start));
}

}  // namespace invar
