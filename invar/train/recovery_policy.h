// RecoveryPolicy: what a run does about an instability. It has the failed step explained, then decides how to go on
// from the last checkpoint, or that the run is to be given up. What it decided lies in the checkpoint that the run goes
// on from, so that being killed loses nothing.
#pragma once

#include <functional>
#include <optional>

#include "invar/core/error.h"
#include "invar/train/precision_plan.h"
#include "invar/train/remedy.h"
#include "invar/train/setup.h"
#include "invar/train/stability.h"

namespace invar {

// The step that showed that the run has become unstable, and how things stood before it. The weights still do, where
// its loss or gradients were not finite.
struct FailedStep {
    std::filesystem::path run;
    Config config;  // as it is at this step, whatever has been changed since the start
    std::vector<Batch> group;
    Instability found;
    std::int64_t checkpoint = -1;  // the last good one; -1: there is none
    const Progress& progress() const { return found.at.before; }
    const RngState& rng() const { return found.at.rng; }
    double scale() const { return found.at.scale_before; }
};

// Why a step failed.
struct Explanation {
    std::string cause = {};    // in a sentence or two; "" where nothing is known
    Remedy remedy = {};        // what should mend it
    bool verified = false;     // the step was replayed with the remedy and was finite
    std::string command = {};  // the command line that tells more; "" where there is none
    // What FP32 makes of the same steps, from before the trouble began.
    enum class FullPrecision : std::uint8_t { unknown, survives, thrown_off, fails };
    FullPrecision full_precision = FullPrecision::unknown;
    // Whether no other precision would have spared the run its trouble.
    bool of_any_precision() const {
        return full_precision == FullPrecision::thrown_off || full_precision == FullPrecision::fails;
    }
};
// As summary.json has it: "survives", "thrown_off", "fails".
std::string_view name_of(Explanation::FullPrecision full_precision);
Explanation::FullPrecision full_precision_named(std::string_view name);
// Asked before anything is changed.
using ExplainFailure = std::function<Explanation(Setup&, const FailedStep&)>;

// A run that was given up, and all that is known of the reason.
struct RunFailure {
    Instability found;
    std::string not_recovered;  // why it was not recovered from, where that was to be
    std::string precision;
    std::optional<double> scale;  // where the loss is scaled
    std::int64_t good_checkpoint = -1;
    Explanation why;
    Remedy advice;

    // For people, in one line; the second without the command that tells more.
    std::string text() const { return text(true); }
    std::string reason() const { return text(false); }

  private:
    std::string text(bool with_command) const;
};

class UnstableError : public Error {
  public:
    explicit UnstableError(RunFailure failure) : Error(failure.text()), failure_(std::move(failure)) {}
    const RunFailure& failure() const { return failure_; }

  private:
    RunFailure failure_;
};

class RecoveryPolicy {
  public:
    // All three must outlive it.
    RecoveryPolicy(const Config& config, Setup& setup, PrecisionPlan& plan)
        : config_(config), setup_(setup), plan_(plan) {}
    void set_diagnosis(ExplainFailure explain) { explain_ = std::move(explain); }

    // Whether an unstable run goes back to its last checkpoint; and whether it goes on as if nothing had happened.
    bool recovers() const { return config_.trainer.on_instability == "recover"; }
    bool skips() const { return config_.trainer.on_instability == "skip"; }
    // A run that only skips bad steps is hopeless after so many of them.
    bool hopeless(const Instability& found) const;
    // After what a device that may be many steps ahead takes no further step.
    HaltSpec halts() const;

    // How to go on, from the checkpoint of this step (-1: there is none); throws UnstableError where nothing is left to
    // try. `run` is the run's folder. Nothing is changed yet.
    Recovery decide(const Instability& found, std::int64_t checkpoint, const std::filesystem::path& run);
    [[noreturn]] void give_up(const Instability& found, const std::string& not_recovered, std::int64_t checkpoint,
                              const std::filesystem::path& run, const std::optional<Explanation>& known = {});

    // Makes the run what these recoveries have made of it, but for its precision, which the plan has now.
    void apply(std::vector<Recovery> recoveries);
    const std::vector<Recovery>& recoveries() const { return recoveries_; }

  private:
    Explanation explain(const Instability& found, std::int64_t checkpoint, const std::filesystem::path& run);
    Config config_now() const;

    const Config& config_;
    Setup& setup_;
    PrecisionPlan& plan_;
    ExplainFailure explain_;
    std::vector<Recovery> recoveries_;
};

}  // namespace invar
