// The first tensor of a probed step that is not finite, and who is to blame for it.
#include <fmt/format.h>

#include <cmath>

#include "invar/core/printable.h"
#include "invar/diagnose/probe_diagnosis.h"

namespace invar {

namespace {

constexpr const char* kKeepFp32 = "keep that module in FP32 (the patch does), or train in BF16";
constexpr const char* kSlower = "lower the learning rate, clip gradients, or look at what the module computes";

std::string title(const ProbeTensor& t) {
    const std::string name = t.module.empty() ? "the model itself" : printable(t.module);
    return fmt::format("{} ({})", name, printable(t.class_name));
}

std::string amount(const ProbeTensor& t) {
    std::string text;
    if (t.tally.infinities > 0) text = fmt::format("{} infinities", t.tally.infinities);
    if (t.tally.nans > 0) text += fmt::format("{}{} NaN", text.empty() ? "" : " and ", t.tally.nans);
    return fmt::format("{}{} among {} values in {}", t.reckoned ? "about " : "", text, t.tally.values,
                       name_of(t.dtype));
}

// The largest finite magnitude that the module was given.
double largest_input(const ProbeStep& step, const ProbeTensor& of) {
    double largest = 0.0;
    for (const ProbeTensor& t : step.tensors)
        if (t.kind == ProbeKind::input && t.module == of.module) largest = std::max(largest, t.tally.largest);
    return largest;
}

ProbeFinding found(const ProbeStep& step, const ProbeTensor& t, Direction direction, Blame blame, std::string text,
                   std::string remedy) {
    const bool in_module = t.kind != ProbeKind::input;
    return {step.step, direction, t.module, blame, std::move(text), std::move(remedy), in_module};
}

std::optional<ProbeFinding> forward_fault(const ProbeStep& step) {
    for (const ProbeTensor& t : step.tensors)
        if (t.module.empty() && t.kind == ProbeKind::input && !t.finite())
            return found(
                step, t, Direction::forward, Blame::data,
                fmt::format("the batch itself holds {} (argument {} of the model)", amount(t), printable(t.index)),
                "mend the data: find the samples of that step that are not finite");
    for (const ProbeTensor& t : step.tensors)
        if (t.kind == ProbeKind::weight && !t.finite())
            return found(step, t, Direction::forward, Blame::weights,
                         fmt::format("{}: its {} holds {} before the step", title(t), printable(t.index), amount(t)),
                         "go back to an earlier checkpoint; give probe.step() a `replay`, so that the step that "
                         "spoils the weights is kept");
    for (const ProbeTensor& t : step.tensors) {
        if (t.finite() || t.module.empty()) continue;
        const bool overflow = t.dtype == Dtype::f16;
        if (t.kind == ProbeKind::input)
            return found(step, t, Direction::forward, overflow ? Blame::precision : Blame::model,
                         fmt::format("{} is given {}, which no module before it has made: code between them did",
                                     title(t), amount(t)),
                         overflow ? "run that code in FP32: with torch.autocast(device_type, enabled=False) around it, "
                                    "on .float() tensors"
                                  : kSlower);
        if (t.kind == ProbeKind::output)
            return found(
                step, t, Direction::forward, overflow ? Blame::precision : Blame::model,
                fmt::format("{} makes {} of finite inputs up to {:.3g}", title(t), amount(t), largest_input(step, t)),
                overflow ? kKeepFp32 : kSlower);
    }
    return {};
}

std::optional<ProbeFinding> backward_fault(const ProbeStep& step) {
    const ProbeTensor* before = nullptr;
    for (const ProbeTensor& t : step.tensors) {
        if (t.kind != ProbeKind::output_grad && t.kind != ProbeKind::weight_grad) continue;
        if (t.finite()) {
            if (t.kind == ProbeKind::output_grad) before = &t;
            continue;
        }
        const Blame blame = step.scale > 1          ? Blame::loss_scale
                            : t.dtype == Dtype::f16 ? Blame::precision
                                                    : Blame::model;
        const std::string remedy = blame == Blame::loss_scale
                                       ? fmt::format(
                                             "a smaller loss scale than {:g}; a GradScaler halves it and skips "
                                             "the step, which is a fault only where it never ends",
                                             step.scale)
                                   : blame == Blame::precision ? kKeepFp32
                                                               : kSlower;
        std::string text =
            t.kind == ProbeKind::weight_grad
                ? fmt::format("{}: the gradient of its {} holds {}", title(t), printable(t.index), amount(t))
            : before == nullptr ? fmt::format("the gradient that the loss sends to {} holds {}", title(t), amount(t))
                                : fmt::format("the gradient that reaches {} holds {}; it was finite at {} before",
                                              title(t), amount(t), title(*before));
        const bool passed = t.kind == ProbeKind::output_grad && before != nullptr;  // through the one before
        return found(step, passed ? *before : t, Direction::backward, blame, std::move(text), remedy);
    }
    return {};
}

}  // namespace

std::optional<ProbeFinding> find_first_bad(const ProbeStep& step) {
    std::optional<ProbeFinding> finding = forward_fault(step);
    if (!finding && step.loss && !std::isfinite(*step.loss))
        finding =
            ProbeFinding{step.step,
                         Direction::forward,
                         "loss",
                         Blame::model,
                         "every module's result is finite, and the loss is not",
                         "look first for NaN or Inf in the targets, which the probe does not see; then compute the "
                         "loss in FP32, and look for a logarithm or a quotient of zero in it",
                         false};
    if (!finding) finding = backward_fault(step);
    if (finding && step.failed_step)
        finding->text += fmt::format("; step {} had failed before this one was armed", *step.failed_step);
    return finding;
}

}  // namespace invar
