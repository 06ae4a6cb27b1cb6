// Transport: bytes between ranks, as a library of messages carries them. Every call comes from one thread; all ranks
// make the same calls in the same order, and a call returns when its part is done.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "invar/core/error.h"

namespace invar {

// Another rank is gone, hangs, or has failed: the text says which, and how that was found out.
class RankError : public Error {
  public:
    using Error::Error;
};

class Transport {
  public:
    virtual ~Transport() = default;
    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string name() const = 0;  // "Open MPI 4.1.4"

    // Piece r of `from` goes to rank r, as its piece `rank()` of `to`.
    virtual void all_to_all(const void* from, void* to, std::size_t bytes) = 0;
    // Everybody's bytes, in rank order.
    virtual void all_gather(const void* from, void* to, std::size_t bytes) = 0;
    virtual void broadcast(void* data, std::size_t bytes, int root) = 0;

    // While nothing else is asked: answers other ranks that want to know whether this one lives. Throws RankError
    // where one of them has said that it failed.
    virtual void listen() = 0;
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
