// Communicator: those who train together. All ranks make the same calls in the same order. Sums are taken in rank
// order, so that they are the same bits on every rank and in every run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "invar/core/tensor.h"
#include "invar/dist/transport.h"

namespace invar {

class DeviceCollectives;

// Where in a rank's piece of a sum the first value is that is not finite, and the first rank whose part was not; -1: all
// parts were, their sum is not.
struct ReduceFinding {
    std::int64_t place = -1;  // -1: all is finite
    int rank = -1;
};

class Communicator {
  public:
    virtual ~Communicator() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string name() const = 0;
    bool alone() const { return size() == 1; }
    bool leads() const { return rank() == 0; }  // the one who speaks and writes

    // --- plain data of the host; each call waits for all ranks ---
    virtual void all_gather(const void* mine, void* all, std::size_t bytes) = 0;
    virtual void broadcast(void* data, std::size_t bytes, int root = 0) = 0;
    void barrier();
    template <class T>
    std::vector<T> gathered(const T& mine) {
        static_assert(std::is_trivially_copyable_v<T>);
        std::vector<T> all(static_cast<std::size_t>(size()));
        all_gather(&mine, all.data(), sizeof(T));
        return all;
    }
    std::vector<std::string> gathered(const std::string& mine);
    std::string broadcast_text(std::string text, int root = 0);
    void sum(std::span<double> values);      // each by its own sum
    bool any(bool mine);                     // whether it is so for at least one
    void check_same(const std::string& what, const std::string& mine);  // throws a UsageError on every rank

    // --- tensors: each begun by all ranks in the same order, done beside other work until it is waited for ---
    using Ticket = std::uint64_t;
    // `whole` is cut in size() equal pieces; `share` gets the sum over the ranks of the one that is this rank's, and may
    // be that piece itself. f32; on the wire f32, or bf16, of which each rank's part is rounded and the sum is not.
    // `finding`, where it is given, is written when the sum is.
    virtual Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype wire = Dtype::f32,
                                  ReduceFinding* finding = nullptr) = 0;
    // `whole` gets everybody's share, in rank order; one may be this rank's piece of it.
    virtual Ticket all_gather(const Tensor& share, const Tensor& whole) = 0;
    virtual void wait(Ticket ticket) = 0;
    // Tensors of this device are going to travel: finds the best way for them, together with all ranks. name() then says
    // which it is.
    virtual void prepare(Device) {}
    // The way of tensors of this device that does not go by the host; nullptr where there is none.
    virtual DeviceCollectives* device_collectives(Device) { return nullptr; }

    // Seconds in which something travelled by way of the host, and in which someone waited for it.
    struct Times {
        double busy = 0.0, waited = 0.0;
    };
    virtual Times times() const { return {}; }
    // Where this rank stands, for those who would miss it.
    virtual void set_step(std::int64_t) {}
    // This rank cannot go on: the others are told why. The last call.
    virtual void leave(const std::string& /*why*/) noexcept {}
};

// One process by itself: nothing travels.
std::unique_ptr<Communicator> make_alone();
// Over a transport, whose calls are made by a thread of its own; tensors of any device, those of others by way of the
// host.
std::unique_ptr<Communicator> make_communicator(std::function<std::unique_ptr<Transport>()> start);

// Those whom the launcher started with this process, joined at the first call; alone where it started one. Throws a
// UsageError where the library that joins them is missing.
Communicator& world();
// The same, where all of them are expected to come now, within so many seconds: world() itself gives those who come late
// ten times what set_rank_timeout says. Throws a RankError that names who is missing, as far as this machine can tell.
Communicator& join_world(double seconds);
// While one lives, these are the world of this thread: for programs and tests that join by themselves.
class WorldScope {
  public:
    explicit WorldScope(Communicator& ranks);
    ~WorldScope();
    WorldScope(const WorldScope&) = delete;
    WorldScope& operator=(const WorldScope&) = delete;

  private:
    Communicator* previous_;
};
// Leaves the world in order, where one was joined: all ranks come here. Without it, a process that ends has failed.
void leave_world();
// Tells the others, where there are any, that this rank has failed.
void fail_world(const std::string& why) noexcept;
// This process is asked to stop, and will with all others where they live: that they do is found out in 5 seconds. May be
// called from a signal handler.
void hurry_world() noexcept;
bool world_hurries() noexcept;
// How long a rank may keep the others waiting before they give up. Before the first call of world().
void set_rank_timeout(double seconds);

}  // namespace invar
