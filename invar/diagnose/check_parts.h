// The single checks that check_task is made of, one file each, and what they share.
#pragma once

#include <chrono>
#include <span>

#include "invar/diagnose/check.h"

namespace invar {

// Counts down from when it was made.
class TimeLimit {
  public:
    explicit TimeLimit(double seconds) : start_(Clock::now()), limit_(seconds) {}
    double used() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
    bool over() const { return used() > limit_; }

  private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point start_;
    double limit_;
};

// So many samples from all over a data set: its first ones may be of one class.
std::vector<std::int64_t> spread_samples(const Dataset& data, std::int64_t count);

DataCheck check_data(const Task& task, Split split, std::int64_t most_samples, double seconds);
ShapeCheck check_shapes(const Task& task, const Config& config, std::span<const DataCheck> data);
GradientCheck check_gradient(const Task& task, const Config& config, double seconds);
SplitCheck check_split(const Task& task, const Config& config);
LearningCheck check_learning(const Task& task, const Config& config, double seconds);
RunCheck check_run(std::shared_ptr<const Task> task, const Config& config);
// Of one step; `config` is then changed to smaller batches where that step took long.
MemoryCheck check_memory(std::shared_ptr<const Task> task, Config& config);
RepeatCheck check_seed(std::shared_ptr<const Task> task, const Config& config);
RepeatCheck check_resume(std::shared_ptr<const Task> task, const Config& config);

}  // namespace invar
