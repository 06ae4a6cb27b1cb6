// Optimizers and schedules by name: each is registered with its keys and with what turns them into the plain struct
// that the step's kernels go by. sgd.cpp, adam.cpp and schedules.cpp are the ones there are.
#pragma once

#include <array>
#include <functional>

#include "invar/config/config.h"
#include "invar/kernels/step.h"
#include "invar/optim/optimizer.h"

namespace invar {

// What a schedule is: the kernels' struct, and the factors where it goes by a curve of its own.
struct Schedule {
    ScheduleSpec spec;
    std::vector<double> curve{};
};

// Fills in what the options say; rate and decay are there already.
using OptimizerMaker = std::function<void(const void* options, OptimizerSpec& spec)>;
// `spec` has the steps of the run and of the rise before it; `lr` is the rate that factors are of.
using SchedulerMaker = std::function<void(const void* options, double lr, Schedule& schedule)>;

template <class Options>
struct RegisterOptimizer {
    template <class Make>  // void(const Options&, OptimizerSpec&)
    RegisterOptimizer(std::string name, std::string about, Make make, std::vector<Key> keys = {}) noexcept {
        register_part<Options>("optimizer", std::move(name), std::move(about), std::move(keys),
                               OptimizerMaker([make](const void* options, OptimizerSpec& spec) {
                                   make(*static_cast<const Options*>(options), spec);
                               }));
    }
};

// The factor on the rate at a step, counted from 0 at the end of the rise, out of so many.
using Curve = std::function<double(std::int64_t step, std::int64_t steps)>;
// Made into factors, one a step. A UsageError where one of them is negative or not finite.
std::vector<double> sampled(const Curve& curve, const ScheduleSpec& spec);

template <class Options>
struct RegisterScheduler {
    template <class Make>  // void(const Options&, double lr, ScheduleSpec&)
    RegisterScheduler(std::string name, std::string about, Make make, std::vector<Key> keys = {}) noexcept {
        register_part<Options>("scheduler", std::move(name), std::move(about), std::move(keys),
                               SchedulerMaker([make](const void* options, double lr, Schedule& schedule) {
                                   make(*static_cast<const Options*>(options), lr, schedule.spec);
                               }));
    }
};

// A schedule by a curve that anyone draws.
template <class Options>
struct RegisterCurve {
    template <class Factor>  // double(const Options&, std::int64_t step, std::int64_t steps)
    RegisterCurve(std::string name, std::string about, Factor factor, std::vector<Key> keys = {}) noexcept {
        register_part<Options>(
            "scheduler", std::move(name), std::move(about), std::move(keys),
            SchedulerMaker([factor](const void* options, double, Schedule& schedule) {
                const Options& typed = *static_cast<const Options*>(options);
                schedule.spec.kind = ScheduleSpec::Kind::curve;
                schedule.curve = sampled(
                    [&](std::int64_t step, std::int64_t steps) { return factor(typed, step, steps); }, schedule.spec);
            }));
    }
};

OptimizerSpec optimizer_spec(const OptimizerConfig& config);
// The parameters of a model, in one group, or in two where norms and biases are spared the weight decay.
std::vector<ParameterGroup> parameter_groups(Module& model, const OptimizerConfig& config);
Schedule make_schedule(const SchedulerConfig& config, double lr, std::int64_t total_steps);

struct SgdOptions {
    double momentum = 0.0;
    bool nesterov = false;
};
struct AdamOptions {
    std::array<double, 2> betas = {0.9, 0.999};
    double eps = 1e-8;
};
struct StepOptions {
    std::int64_t step_size = 1000;
    double gamma = 0.1;
};
struct CosineOptions {
    double min_lr = 0.0;
};
struct OneCycleOptions {
    double pct_start = 0.3;
    double div_factor = 25.0;
    double final_div_factor = 1e4;
};

}  // namespace invar
