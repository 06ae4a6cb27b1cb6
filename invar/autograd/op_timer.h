// OpTimer: an OpWatcher that is also told when each operation begins, and of the parts of a step that are no
// operations. With it a step runs as it does unwatched: what is timed is what is trained.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "invar/autograd/watch.h"

namespace invar {

enum class StepPart : std::uint8_t { loading, forward, backward, update };

constexpr std::string_view name_of(StepPart part) {
    constexpr std::string_view kName[] = {"loading", "forward", "backward", "update"};
    return kName[static_cast<int>(part)];
}

class OpTimer : public OpWatcher {
  public:
    // Ops without a gradient begin too, and nobody is told of their end.
    virtual void begin_forward(const char* op) = 0;
    virtual void begin_backward(const Node& node) = 0;
    // The node that runs backward reads this of what forward has saved.
    virtual void read_saved(const Tensor& tensor) = 0;
    // A kernel that makes this has just run, for an operation that will hand it on and move nothing itself.
    virtual void made_ahead(const Tensor& tensor) = 0;
    virtual void begin_part(StepPart part, const char* name, Dtype dtype, double bytes) = 0;
    virtual void end_part() = 0;

    // The watcher of this thread, where it is one; and the one that waits while a node runs backward.
    static OpTimer* current();
    static OpTimer* paused();
};

// What has to be read or written of a tensor: elements that are repeated count once. 0 for none.
double bytes_of(const Tensor& tensor);

// A part of a step that is no operation, for whoever times it until the end of a scope.
class TimedPart {
  public:
    // `bytes()`, what it reads and writes, is asked only where somebody times.
    template <class Bytes>
    TimedPart(StepPart part, const char* name, Dtype dtype, Bytes&& bytes) : timer_(OpTimer::current()) {
        if (timer_ != nullptr) timer_->begin_part(part, name, dtype, std::forward<Bytes>(bytes)());
    }
    ~TimedPart() {
        if (timer_ != nullptr) timer_->end_part();
    }
    TimedPart(const TimedPart&) = delete;
    TimedPart& operator=(const TimedPart&) = delete;

  private:
    OpTimer* timer_;
};

}  // namespace invar
