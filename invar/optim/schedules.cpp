#include "invar/core/error.h"
#include "invar/optim/specs.h"

namespace invar {

namespace {

struct ConstantOptions {};
const RegisterScheduler<ConstantOptions> kConstant{
    "constant", "One rate throughout.",
    [](const ConstantOptions&, double, ScheduleSpec& spec) { spec.kind = ScheduleSpec::Kind::constant; }};

void make_step(const StepOptions& options, double, ScheduleSpec& spec) {
    spec.kind = ScheduleSpec::Kind::step;
    spec.step_size = options.step_size;
    spec.gamma = options.gamma;
}
const RegisterScheduler<StepOptions> kStep{
    "step",
    "A factor on the rate every so many steps.",
    make_step,
    {key("step_size", &StepOptions::step_size, at_least(1), "Every so many steps the rate is multiplied ..."),
     key("gamma", &StepOptions::gamma, above(0), "... by this.")}};

void make_cosine(const CosineOptions& options, double lr, ScheduleSpec& spec) {
    check<UsageError>(options.min_lr <= lr, "scheduler.min_lr = {}: is above optimizer.lr = {}", options.min_lr, lr);
    spec.kind = ScheduleSpec::Kind::cosine;
    spec.final_factor = lr > 0 ? options.min_lr / lr : 0.0;
}
const RegisterScheduler<CosineOptions> kCosine{
    "cosine",
    "Down along half a cosine by the last step.",
    make_cosine,
    {key("min_lr", &CosineOptions::min_lr, at_least(0), "The rate at the end.")}};

void make_one_cycle(const OneCycleOptions& options, double, ScheduleSpec& spec) {
    spec.kind = ScheduleSpec::Kind::one_cycle;
    spec.rise = options.pct_start;
    spec.start_div = options.div_factor;
    spec.final_div = options.final_div_factor;
}
const RegisterScheduler<OneCycleOptions> kOneCycle{
    "one_cycle",
    "Up to the rate, then far down.",
    make_one_cycle,
    {key("pct_start", &OneCycleOptions::pct_start, within(0, 1), "Share of the steps spent rising."),
     key("div_factor", &OneCycleOptions::div_factor, at_least(1), "Starts at lr / div_factor."),
     key("final_div_factor", &OneCycleOptions::final_div_factor, at_least(1),
         "Ends at its start / final_div_factor.")}};

}  // namespace

}  // namespace invar
