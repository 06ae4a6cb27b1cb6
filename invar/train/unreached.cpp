#include "invar/train/unreached.h"

#include <fmt/format.h>

#include <algorithm>

namespace invar {

namespace {

constexpr std::int64_t kShort = 100;  // steps; in more of them a rise has its peak, or comes within hundredths of it

}  // namespace

std::vector<std::string> unreached_settings(const Config& config, const Setup& setup) {
    const SchedulerConfig& scheduler = config.scheduler;
    const ScheduleSpec& schedule = setup.optimizer->schedule();
    const std::int64_t total = setup.total_steps;
    const std::string steps = fmt::format("{} step{}", total, total == 1 ? "" : "s");
    std::vector<std::string> notes;
    // Of a run that is so short that it matters.
    const auto highest = [&] {
        double factor = total > kShort ? 1.0 : 0.0;
        for (std::int64_t step = 0; step < total && total <= kShort; ++step)
            factor = std::max(factor, schedule.factor(step));
        return factor * config.optimizer.lr;
    };
    if (scheduler.warmup_steps >= total && scheduler.warmup_steps > 0)
        notes.push_back(fmt::format(
            "scheduler.warmup_steps={} in a run of {}: the learning rate is still rising at the end, no higher "
            "than "
            "{:.3g} where optimizer.lr is {:g}",
            scheduler.warmup_steps, steps, schedule.factor(total - 1) * config.optimizer.lr, config.optimizer.lr));
    else if (schedule.kind == ScheduleSpec::Kind::one_cycle && highest() < 0.99 * config.optimizer.lr)
        notes.push_back(fmt::format(
            "scheduler one_cycle: in {} the learning rate gets no higher than {:.3g}, and optimizer.lr is {:g}", steps,
            highest(), config.optimizer.lr));
    else if (schedule.kind == ScheduleSpec::Kind::step && schedule.step_size >= total - scheduler.warmup_steps)
        notes.push_back(fmt::format("scheduler.step_size={} is not reached in {}: the learning rate stays at {:g}",
                                    schedule.step_size, steps, config.optimizer.lr));
    if (!config.init_fresh.empty() && config.init_from.empty())
        notes.push_back("init_fresh changes nothing without init_from: all weights are fresh");
    if (!config.optimizer.decay_norms_and_biases && config.optimizer.weight_decay == 0)
        notes.push_back("optimizer.decay_norms_and_biases=false changes nothing where optimizer.weight_decay is 0");
    if (config.trainer.ema_warmup && config.trainer.ema_decay == 0)
        notes.push_back("trainer.ema_warmup=true changes nothing where trainer.ema_decay is 0");
    const bool leveled = config.trainer.amp_level != "auto" && config.trainer.amp_level != "O0";
    if (leveled && setup.precision.level == Level::O0 && config.trainer.precision_schedule.empty())
        notes.push_back(
            fmt::format("trainer.amp_level={} changes nothing in {}; set trainer.precision=16-mixed or "
                        "bf16-mixed beside it",
                        config.trainer.amp_level, setup.precision.name()));
    const std::string wanted = Precision::parse(config.trainer.precision).name();
    if (config.trainer.amp_level == "O0" && setup.precision.name() != wanted)
        notes.push_back(fmt::format("trainer.amp_level=O0: nothing is cast, and trainer.precision={} trains as {}",
                                    wanted, setup.precision.name()));
    for (const PrecisionChange& change : config.trainer.precision_schedule) {
        const std::int64_t from =
            change.is_epoch ? setup.first_epoch_at + change.at * setup.steps_per_epoch : change.at;
        if (from > 0 && from >= total)
            notes.push_back(fmt::format("trainer.precision_schedule.{}={} is not reached in {}", change.key(),
                                        change.precision, steps));
    }
    return notes;
}

}  // namespace invar
