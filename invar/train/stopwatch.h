// Stopwatch: wall time, without the stretches in which it was stopped.
#pragma once

#include <chrono>

namespace invar {

class Stopwatch {
  public:
    void start() {
        if (!running_) started_ = Clock::now();
        running_ = true;
    }
    void stop() {
        before_ = seconds();
        running_ = false;
    }
    double seconds() const {
        return before_ + (running_ ? std::chrono::duration<double>(Clock::now() - started_).count() : 0.0);
    }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point started_;
    double before_ = 0.0;
    bool running_ = false;
};

}  // namespace invar
