// Ranks as threads of the test: the same Communicator over a Transport that copies memory, so that sanitizers see both
// sides and a test needs no launcher.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "invar/dist/communicator.h"

namespace invar {

class ThreadTransport final : public Transport {
  public:
    struct Shared {
        explicit Shared(int size) : meeting(size), from(std::size_t(size)) {}
        std::barrier<> meeting;
        std::vector<const void*> from;
    };
    ThreadTransport(std::shared_ptr<Shared> shared, int rank, int size)
        : shared_(std::move(shared)), rank_(rank), size_(size) {}
    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string name() const override { return "threads"; }
    void all_to_all(const void* from, std::size_t bytes, std::size_t part, const Arrived& arrived) override {
        std::vector<std::byte> parts(part * std::size_t(size_));
        for (std::size_t begin = 0; begin < bytes; begin += part) {
            const std::size_t count = std::min(part, bytes - begin);
            exchange(from, [&] {
                for (int r = 0; r < size_; ++r) {
                    const auto* const piece = static_cast<const std::byte*>(shared_->from[std::size_t(r)]) + begin;
                    if (r != rank_)
                        std::memcpy(parts.data() + std::size_t(r) * part, piece + std::size_t(rank_) * bytes, count);
                }
            });
            arrived(begin, count, parts.data());
        }
    }
    void all_gather(const void* from, void* to, std::size_t bytes) override {
        exchange(from, [&] {
            for (int r = 0; r < size_; ++r) {
                std::byte* const place = static_cast<std::byte*>(to) + std::size_t(r) * bytes;
                if (place != from) std::memcpy(place, shared_->from[std::size_t(r)], bytes);
            }
        });
    }
    void broadcast(void* data, std::size_t bytes, int root) override {
        exchange(data, [&] {
            if (rank_ != root) std::memcpy(data, shared_->from[std::size_t(root)], bytes);
        });
    }
    void listen() override {}
    void set_status(std::int64_t) override {}
    void tell_failure(const std::string&) override {}
    void finish() override { shared_->meeting.arrive_and_wait(); }

  private:
    template <class Copy>
    void exchange(const void* from, Copy&& copy) {
        shared_->from[std::size_t(rank_)] = from;
        shared_->meeting.arrive_and_wait();
        copy();
        shared_->meeting.arrive_and_wait();
    }
    std::shared_ptr<Shared> shared_;
    int rank_, size_;
};

// Runs `work` once for each rank, at the same time, each with its own world. What one throws is thrown here; the ranks
// must fail together, or not at all.
inline void as_ranks(int size, const std::function<void(Communicator& ranks)>& work) {
    auto shared = std::make_shared<ThreadTransport::Shared>(size);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
        threads.emplace_back([&, r] {
            const std::unique_ptr<Communicator> ranks =
                make_communicator([&] { return std::make_unique<ThreadTransport>(shared, r, size); });
            const WorldScope scope(*ranks);
            try {
                work(*ranks);
            } catch (...) {
                errors[std::size_t(r)] = std::current_exception();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
        if (error) std::rethrow_exception(error);
}

}  // namespace invar
