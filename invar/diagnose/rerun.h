// The steps of a run again, from a checkpoint or from its beginning: as it was, to come back to the state before a
// step, or in FP32, or more slowly, to see whether the trouble comes again.
#pragma once

#include <filesystem>
#include <memory>

#include "invar/train/recovery_policy.h"

namespace invar {

// Where a rerun begins.
struct RerunStart {
    std::shared_ptr<const Task> task;
    LossFunction loss;
    Config config;                     // what is trained now
    std::filesystem::path checkpoint;  // "" is the beginning
};

// A run of its own; the random numbers of others are left as they were when it ends.
class Rerun {
  public:
    explicit Rerun(const RerunStart& start);
    ~Rerun();
    Rerun(const Rerun&) = delete;
    Rerun& operator=(const Rerun&) = delete;

    // Trains until so many steps are done, or the run breaks, which is then told; `after` every step.
    std::optional<Instability> train_until(std::int64_t step, const std::function<void()>& after = {});
    // Whether the loss was thrown off and has not come back yet.
    bool is_thrown_off() const { return stability_.is_thrown_off(); }
    // Whether the last losses lie below that of the untrained network by more than chance explains.
    bool has_learnt() const;
    Setup& setup() { return setup_; }
    const Progress& progress() const { return progress_; }

  private:
    const RngState others_;
    Setup setup_;
    PrecisionPlan plan_;
    Progress progress_;
    Stability stability_;
    std::vector<double> losses_;
};

// Steps that are worth doing again.
inline constexpr std::int64_t kMostStepsAgain = 1000;

// Steps after a leap by which it shows where the loss goes.
inline constexpr std::int64_t kStepsAfter = 25;

// A tenth, a hundredth or a thousandth of the learning rate with which the steps until then go well: the largest that
// is seen to learn, else the largest that stays. Nothing where none does.
Remedy slower_rate(const RerunStart& start, std::int64_t until);

// What FP32 makes of the steps to the failed one and some after it; and, where it is thrown off too, a learning rate
// with which they go well. Sets that and the remedy; says it in a sentence.
std::string try_in_full_precision(const RerunStart& start, const FailedStep& step, Explanation& why);

}  // namespace invar
