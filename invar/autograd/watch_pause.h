// Ops that a node uses inside its backward are its own business and no part of the forward pass: the engine pauses the
// watcher around them, and a region that runs forward again in backward resumes it.
#pragma once

#include "invar/autograd/watch.h"

namespace invar {

class PauseWatch {
  public:
    PauseWatch();
    ~PauseWatch();
    PauseWatch(const PauseWatch&) = delete;
    PauseWatch& operator=(const PauseWatch&) = delete;

  private:
    OpWatcher* outer_;  // that was paused before
    WatchScope none_;
};

// The watcher that was paused last, if any.
class ResumeWatch : public WatchScope {
  public:
    ResumeWatch();
};

}  // namespace invar
