// Transport: bytes between ranks, as a library of messages carries them. Every call comes from one thread; all ranks
// make the same calls in the same order, and a call returns when its part is done.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "invar/core/error.h"

namespace invar {

// Another rank is gone, hangs, or has failed: the text says which, and how that was found out.
class RankError : public Error {
  public:
    using Error::Error;
    RankError(const std::string& what, int lost) : Error(what), first_lost(lost) {}
    int first_lost = -1;  // the first of the ranks that give no answer; -1: another trouble
};

// Not all ranks came to be joined.
class MissingRanks : public RankError {
  public:
    MissingRanks(const std::string& what, bool to_be_said) : RankError(what), to_be_said_here(to_be_said) {}
    bool to_be_said_here;  // the first rank is on another machine, which cannot tell who is missing on this one
};

class Transport {
  public:
    virtual ~Transport() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string name() const = 0;  // "Open MPI 4.1.4"

    // Piece r of `from`, of so many bytes, goes to rank r, a part after the other: `arrived` is told where in the
    // pieces a part begins, and gets everybody's, in rank order and `part` apart; a rank's own is not there: it has it.
    // While it looks at one part the next is on its way.
    using Arrived = std::function<void(std::size_t begin, std::size_t bytes, const std::byte* parts)>;
    virtual void all_to_all(const void* from, std::size_t bytes, std::size_t part, const Arrived& arrived) = 0;
    // Everybody's bytes, in rank order; `from` may be this rank's place in `to`.
    virtual void all_gather(const void* from, void* to, std::size_t bytes) = 0;
    virtual void broadcast(void* data, std::size_t bytes, int root) = 0;

    // While nothing else is asked: answers other ranks that want to know whether this one lives. Throws RankError
    // where one of them has said that it failed.
    virtual void listen() = 0;
    // Somebody has waited so long for the others, and not by a call of this: asks for them where that is too long, and
    // throws RankError where one does not answer.
    virtual void look_after(std::chrono::duration<double> /*waited*/) {}
    // What is told of this rank to those who ask, for as long as nothing newer is said.
    virtual void set_status(std::int64_t step) = 0;
    // Tells every rank that this one cannot go on; nothing is waited for.
    virtual void tell_failure(const std::string& reason) = 0;
    // All ranks come to the end of their work.
    virtual void finish() = 0;
};

// How long a rank may keep the others waiting.
using TransportTimeout = std::chrono::milliseconds;

// What a library of ours that wraps one of messages exports: a transport among the processes that were launched.
// Nothing may be thrown across: `why` gets what went wrong, and then nothing is returned.
using TransportStart = Transport* (*)(TransportTimeout timeout, std::string& why);
inline constexpr const char* kTransportStart = "invar_transport_start";

}  // namespace invar
