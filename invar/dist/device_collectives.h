// DeviceCollectives: tensors that devices exchange by themselves, in order with what they compute. No call waits on the
// host, and all of them can be part of a recording. Sums are taken in rank order, as through the host: the same bits.
#pragma once

#include <memory>
#include <string>

#include "invar/core/tensor.h"
#include "invar/kernels/agreement.h"

namespace invar {

class Communicator;

// The bytes that a sum needs beside its tensors where it is taken in rank order: what this rank sends, where that is
// rounded, and then the pieces of all others.
struct ExchangeRoom {
    ExchangeRoom(std::int64_t count, int ranks, Dtype wire)
        : piece(std::size_t(count) * size_of(wire)),
          sent(wire == Dtype::bf16 ? piece * std::size_t(ranks) : 0),
          received(piece * std::size_t(ranks - 1)) {}
    std::size_t total() const { return sent + received; }

    std::size_t piece, sent, received;
};

class DeviceCollectives {
  public:
    using Ticket = std::uint64_t;

    virtual ~DeviceCollectives() = default;
    virtual std::string name() const = 0;  // "NCCL 2.28.3"

    // Where a sum writes what it finds: `key`, on the device, becomes the least of what it is and of the FindingKeys of
    // values that are not finite. `place` is that of the first element of the share, `round` counts sums into it.
    struct Finding {
        std::uint64_t* key = nullptr;  // nullptr: nobody asks
        std::int64_t place = 0;
        int round = 0;
    };
    virtual Ticket reduce_scatter(const Tensor& whole, const Tensor& share, Dtype wire, const Finding& finding) = 0;
    virtual Ticket all_gather(const Tensor& share, const Tensor& whole) = 0;
    // What the device is given from now on comes after that one, and all before it.
    virtual void wait(Ticket ticket) = 0;

    // What each rank found in a step becomes what all of them know. Everything here is on the device.
    struct Agreement {
        StepState* state = nullptr;
        const double* loss = nullptr;  // of this rank; nullptr: there is none
        double* whole_loss = nullptr;
        const std::uint64_t* key = nullptr;  // of its sums
        const SharePiece* pieces = nullptr;
        std::int64_t count = 0;
    };
    virtual void agree(const Agreement& step) = 0;

    // --- by those who watch over the ranks, from another thread ---
    // Throws a RankError where it has noticed that one is lost.
    virtual void check() = 0;
    // For how many seconds the device has been in one and the same exchange.
    virtual double waiting() = 0;
    // Ends what the device waits for. Nothing else may be asked for any more.
    virtual void give_up() noexcept = 0;
};

// NCCL for these ranks, whose tensors are on `device`; all of them call together. Where it cannot be used: nothing, and
// why. INVAR_NCCL_LIBRARY names a library to be loaded in the place of libnccl.so.2, which may then let ranks share a
// card; "none" goes without.
std::unique_ptr<DeviceCollectives> join_nccl(Communicator& ranks, Device device, std::string& why_not);

// What libinvar_nccl.so exports. Nothing may be thrown across: `why` gets what went wrong.
// Loads NCCL, and says on which card this process is.
using NcclOpen = bool (*)(std::string& card, std::string& why);
using NcclJoin = DeviceCollectives* (*)(Communicator& ranks, std::string& why);
inline constexpr const char* kNcclOpen = "invar_nccl_open";
inline constexpr const char* kNcclJoin = "invar_nccl_join";

}  // namespace invar
