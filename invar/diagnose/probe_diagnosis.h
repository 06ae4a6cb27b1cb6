// What a probe says of a PyTorch run: by module which formats fail, the loss scale to use, where NaN or Inf arose, and
// which modules to keep in FP32 under autocast.
#pragma once

#include <array>
#include <optional>

#include "invar/diagnose/diagnose.h"
#include "invar/diagnose/probe.h"
#include "invar/diagnose/tensor_verdict.h"

namespace invar {

inline constexpr std::array kProbeFormats = {Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2};

// What torch.autocast does with a module: casts its inputs, computes it in FP32, or leaves it in what it is given.
enum class AutocastRule : std::uint8_t { low, fp32, follows };
AutocastRule autocast_rule(const std::string& class_name);  // of a class that it does not know: low

// One direction of one module, over all steps.
struct ProbeRow {
    std::string module, class_name;
    Direction direction = Direction::forward;
    Dtype ran_in = Dtype::f32;  // its results, or their gradients
    AutocastRule rule = AutocastRule::low;
    Tally tally;                                                    // gradients: unscaled
    std::array<FormatVerdict, kProbeFormats.size()> verdicts = {};  // by format
};

struct ProbeFinding {
    std::int64_t step = 0;
    Direction direction = Direction::forward;
    std::string module;
    Blame blame = Blame::model;
    std::string text, remedy;  // sentences
    bool in_module = true;     // false: it is given what is not finite, by code that is no module's
};

struct ProbeConcern {
    Trouble trouble = Trouble::none;
    Direction direction = Direction::forward;
    std::string module;
    std::string text;
};

struct ProbeDiagnosis {
    Dtype format = Dtype::f16;  // what the concerns are about
    std::string title;
    std::string ran_in;  // "autocast bf16", "f32"
    bool ran_fp16 = false;
    std::vector<std::int64_t> steps;  // that were read
    std::vector<std::string> passed_over;
    std::vector<ProbeRow> rows;           // forward as modules ran, then backward as gradients came
    ScaleRange scale;                     // for FP16: of gradients of results, and of weights that autocast casts
    std::string largest_weight_gradient;  // of which weight
    bool weights_bound_scale = false;     // it overflows before any gradient of a result
    double vanish_unscaled = 0.0;         // share of these that FP16 loses without a loss scale
    double run_scale = 1.0;               // at the last step
    std::int64_t skips = 0;
    int overflows = 0;  // probed steps whose gradients overflowed, which the scaler skipped
    std::optional<ProbeFinding> finding;
    std::vector<ProbeConcern> concerns;
    std::vector<std::string> keep_fp32;  // modules, as they ran
    bool healthy() const { return !finding && concerns.empty(); }
    const FormatVerdict& verdict(const ProbeRow& row) const;
};

// The last `steps` probed steps and every one that failed. `as`: nothing for the run's own format, else FP16.
ProbeDiagnosis diagnose_probe(const Probe& probe, std::optional<Dtype> as, int steps);

// Where NaN or Inf arises in a step; nothing where it has none.
std::optional<ProbeFinding> find_first_bad(const ProbeStep& step);

// Python text with a function apply(model) that keeps those modules in FP32 under torch.autocast.
std::string fp32_patch(const std::vector<std::string>& modules, const std::string& made_from);

}  // namespace invar
