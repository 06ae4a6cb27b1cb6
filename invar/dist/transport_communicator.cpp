// A Communicator over a Transport. One thread makes all calls of the transport, one after the other in the order in
// which they were asked for; whoever asked goes on until it has to wait.
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "invar/core/error.h"
#include "invar/dist/communicator.h"
#include "invar/kernels/kernels.h"

namespace invar {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Loops of the compiler's own: the threads that compute are not asked while they do.
std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return std::uint16_t(bits >> 16 | 0x40u);  // stays NaN
    return std::uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float from_bf16(std::uint16_t value) {
    return std::bit_cast<float>(std::uint32_t(value) << 16);
}

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
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        wake_.notify_all();
        thread_.join();
    }

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string name() const override { return name_; }

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
        std::vector<float> from(std::size_t(whole.numel())), to(std::size_t(share.numel()));
        device.download(from.data(), whole.raw(), whole.bytes());
        wait(submit([&](Transport& transport) {
            reduce(transport, from.data(), to.data(), share.numel(), wire, finding);
        }));
        device.upload(share.raw(), to.data(), share.bytes());
        return 0;
    }

    Ticket all_gather(const Tensor& share, const Tensor& whole) override {
        check(whole.dtype() == share.dtype() && whole.numel() == share.numel() * size_ && whole.is_contiguous() &&
                  share.is_contiguous(),
              "all_gather of {} into {} over {} ranks", share.str(), whole.str(), size_);
        if (whole.device().is_cpu()) {
            return submit([this, share, whole](Transport& transport) {
                gather(transport, share.raw(), whole.raw(), share.bytes());
            });
        }
        Kernels& device = kernels_for(whole.device());
        std::vector<std::byte> from(share.bytes()), to(whole.bytes());
        device.download(from.data(), share.raw(), share.bytes());
        wait(submit([&](Transport& transport) { transport.all_gather(from.data(), to.data(), from.size()); }));
        device.upload(whole.raw(), to.data(), whole.bytes());
        return 0;
    }

    void wait(Ticket ticket) override {
        const Clock::time_point start = Clock::now();
        std::unique_lock lock(mutex_);
        done_.wait(lock, [&] { return finished_ >= ticket || error_; });
        waited_ += seconds_since(start);
        if (error_ && finished_ < ticket) std::rethrow_exception(error_);
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
        const std::size_t all = std::size_t(count) * std::size_t(size_);
        if (wire == Dtype::f32) {
            received_.resize(all * sizeof(float));
            transport.all_to_all(whole, received_.data(), std::size_t(count) * sizeof(float));
            add_up(reinterpret_cast<const float*>(received_.data()), share, count, finding);
            return;
        }
        sent_.resize(all * sizeof(std::uint16_t));
        received_.resize(all * (sizeof(std::uint16_t) + sizeof(float)));
        auto* const out = reinterpret_cast<std::uint16_t*>(sent_.data());
        for (std::size_t i = 0; i < all; ++i) out[i] = to_bf16(whole[i]);
        auto* const in = reinterpret_cast<std::uint16_t*>(received_.data() + all * sizeof(float));
        transport.all_to_all(out, in, std::size_t(count) * sizeof(std::uint16_t));
        auto* const wide = reinterpret_cast<float*>(received_.data());
        for (std::size_t i = 0; i < all; ++i) wide[i] = from_bf16(in[i]);
        add_up(wide, share, count, finding);
    }

    void add_up(const float* pieces, float* share, std::int64_t count, ReduceFinding* finding) const {
        std::memcpy(share, pieces, std::size_t(count) * sizeof(float));
        for (int r = 1; r < size_; ++r) {
            const float* const piece = pieces + std::int64_t(r) * count;
            for (std::int64_t i = 0; i < count; ++i) share[i] += piece[i];
        }
        if (finding == nullptr) return;
        const auto bad = [](float value) { return !(std::fabs(value) <= 3.402823466e38f); };
        *finding = {};
        int any = 0;
        for (std::int64_t i = 0; i < count; ++i) any |= bad(share[i]);
        for (std::int64_t i = 0; any && finding->place < 0; ++i) {
            if (!bad(share[i])) continue;
            finding->place = i;
            for (int r = size_ - 1; r >= 0; --r)
                if (bad(pieces[std::int64_t(r) * count + i])) finding->rank = r;
        }
    }

    // A library may want the two apart: the share is often a piece of the whole.
    void gather(Transport& transport, const void* share, void* whole, std::size_t bytes) {
        const auto* const begin = static_cast<const std::byte*>(whole);
        const auto* const from = static_cast<const std::byte*>(share);
        if (from < begin || from >= begin + bytes * std::size_t(size_)) return transport.all_gather(share, whole, bytes);
        sent_.assign(from, from + bytes);
        transport.all_gather(sent_.data(), whole, bytes);
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
            lock.unlock();
            transport.set_status(step);
            transport.listen();
            lock.lock();
            return true;
        }
        const Job job = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        transport.set_status(step);
        const Clock::time_point begin = Clock::now();
        job(transport);
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
    std::int64_t step_ = 0;
    int rank_ = 0, size_ = 1;
    std::string name_;
    std::vector<std::byte> sent_, received_;  // of the thread
    std::thread thread_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::function<std::unique_ptr<Transport>()> start) {
    return std::make_unique<TransportCommunicator>(std::move(start));
}

}  // namespace invar
