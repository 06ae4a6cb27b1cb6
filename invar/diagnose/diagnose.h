// diagnose: some steps with instruments on. Trains in FP32, so that every value is what it should be, holds it against
// the candidate's format, and replays each step in the candidate to see whether it survives.
#pragma once

#include <functional>
#include <optional>

#include "invar/diagnose/finding.h"
#include "invar/diagnose/instruments.h"

namespace invar {

struct DiagnoseOptions {
    Precision candidate = Precision::parse("16-mixed");
    Dtype format = Dtype::f16;  // what values are held against; the candidate's, unless another was asked for
    bool replays = true;        // also runs the candidate; false for formats that only the tallies know
    int steps = 10;
    double scale = 65536.0;  // of the loss, to begin with; halved while it overflows, as a scaler does, where it moves
    Scaling scaling = Scaling::moving;
    LossFunction loss = {};                                                     // none: the run's own
    std::function<void(int step, std::vector<Batch>& group)> before_step = {};  // may change the batches
    std::function<void(double share)> progress = {};
    bool run_faults = true;                // also looks at what no precision has to do with (run_faults.h)
    std::vector<std::string> freeze = {};  // patterns of parameters that are meant not to learn
};

// Loss scales, as powers of two, that keep all but 0.1% of the gradients from vanishing without an overflow.
struct ScaleRange {
    bool any_gradients = false;
    int least = 0, most = 0;  // exponents; least > most: there is none
    int recommended = 0;
    double vanishing = 0.0;  // share that still vanishes at the recommended one
    bool exists() const { return least <= most; }
};
// Of gradients that were tallied unscaled.
ScaleRange scale_range(const Tally& gradients, Dtype format);
// Scales that keep all but 0.1% of either; either may be empty.
ScaleRange scale_for_both(const Tally& a, const Tally& b, Dtype format);

struct LostUpdates {
    std::string parameter;
    std::int64_t updates = 0;  // weights that a step would have changed, over all steps
    std::int64_t lost = 0;     // those that rounding to the format leaves as they were
    double share() const { return updates > 0 ? double(lost) / double(updates) : 0.0; }
    // Weight decay, where there is one, as a step of its own.
    std::int64_t decays = 0, decays_lost = 0;
    double decay_share() const { return decays > 0 ? double(decays_lost) / double(decays) : 0.0; }
};

// A moving average that the model keeps in 16 bits among its buffers.
struct StillAverage {
    std::string buffer;
    Dtype dtype = Dtype::f16;
    std::int64_t values = 0;  // that move at all
    std::int64_t still = 0;   // those that stand still over a range of places, and not only where they belong
    double range = 1.0;       // how wide that is for half of them: a factor
    double share() const { return values > 0 ? double(still) / double(values) : 0.0; }
};

// What is not NaN or Inf and still wrong.
struct Concern {
    enum class Kind {
        underflow,
        spike,
        overflow,
        lost_updates,
        significance,
        // Of the run, in any precision:
        data,
        constant_labels,
        learning_rate,
        evaluation,
        accumulation,
        clipping,
        frozen,
        no_gradient,
        moving_average
    } kind = Kind::underflow;
    Direction direction = Direction::forward;
    std::string module;    // "" is the model itself
    int step = 0;          // 1 is the first
    bool in_data = false;  // a spike that came with the batch
    std::string text;
    Remedy remedy = {};
};

std::string_view name_of(Concern::Kind kind);
// Whether another precision has something to do with it.
bool is_of_precision(Concern::Kind kind);

// How far the candidate is off FP32 in a module, in the step in which it is the farthest: norms of differences over
// norms.
struct Significance {
    std::string module;
    std::string op;       // whose result is the farthest off for what it was given
    double given = 0.0;   // of its inputs, the farthest
    double made = 0.0;    // of its result
    double off = 0.0;     // of any result of the module
    double cosine = 1.0;  // between the gradients of its weights
    // An op that gives infinities in the candidate, from finite inputs, where FP32 gives at most so much; "" for none.
    std::string infinite_op = {};
    double in_full = 0.0;
};

struct StepFigures {
    double loss = 0.0, grad_norm = 0.0;
};

struct Diagnosis {
    Dtype format = Dtype::f16;
    std::string candidate;
    int steps = 0;  // that were done
    std::vector<StepFigures> figures;
    std::vector<LayerPassages> layers;       // in the order they run forward
    std::vector<Significance> significance;  // likewise; empty where the candidate was not run
    bool scaled = false;  // whether a loss scale is to be had: FP16's, or that of a format that is only tallied
    ScaleRange scale;
    double scale_survived = 1.0;  // the loss scale at the end
    int scale_drops = 0;          // times it had to be lowered
    Scaling scaling = Scaling::moving;
    int overflows = 0;  // steps that a scale which does not move overflowed at
    std::vector<LostUpdates> updates;
    std::vector<StillAverage> averages;
    bool masters = true;  // the candidate keeps FP32 weights
    Finding finding;      // NaN or Inf
    std::vector<Concern> concerns;
    bool healthy() const { return !finding && concerns.empty(); }
};

// `setup` is of an FP32 run; its weights are trained.
Diagnosis diagnose(Setup& setup, const DiagnoseOptions& options);

// The configuration and options for a command's words: `as` is "" or a format. The configuration is made FP32.
DiagnoseOptions diagnose_options(Config& config, const std::string& as);

}  // namespace invar
