// What a step takes, and whether two runs of the same seed are the same run.
#include <algorithm>
#include <cstring>

#include "invar/core/error.h"
#include "invar/diagnose/check_parts.h"
#include "invar/train/setup.h"
#include "invar/train/step.h"

namespace invar {

namespace {

constexpr int kSteps = 3;
constexpr double kLongStep = 1.5;  // seconds, above which later checks take smaller batches

Tensor train_on(Setup& setup, std::span<const Batch> group) {
    return training_step(setup.loss, *setup.model, *setup.optimizer, *setup.scaler, setup.precision, setup.clip, group);
}

bool same_bytes(const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

std::string first_difference(const StateDict& a, const StateDict& b) {
    for (const auto& [name, tensor] : a)
        if (const auto found = b.find(name); found == b.end() || !same_bytes(tensor, found->second)) return name;
    return "";
}

// The first steps of a run, as bytes.
struct Beginning {
    StateDict initial, batch, weights;
    std::vector<double> losses;

    Beginning(std::shared_ptr<const Task> task, const Config& config) {
        Setup setup(std::move(task), config);
        initial = setup.model->state_dict();
        setup.model->train();
        setup.train_data->start_epoch(0);
        for (int step = 0; step < kSteps; ++step) {
            std::vector<Batch> group = setup.next_group();
            if (group.empty()) {
                setup.train_data->start_epoch(setup.train_data->epoch() + 1);
                group = setup.next_group();
            }
            if (step == 0)
                for (const auto& [name, tensor] : group[0].tensors())
                    batch.emplace(name, to_file(tensor, {}));  // a dense copy on the host
            losses.push_back(train_on(setup, group).item());
        }
        weights = setup.model->state_dict();
    }
};

std::string difference_of(const Beginning& a, const Beginning& b) {
    if (const std::string name = first_difference(a.initial, b.initial); !name.empty())
        return fmt::format("the initial weights ({})", name);
    if (const std::string name = first_difference(a.batch, b.batch); !name.empty())
        return fmt::format("the first batch ({})", name);
    for (int step = 0; step < kSteps; ++step)
        if (std::memcmp(&a.losses[std::size_t(step)], &b.losses[std::size_t(step)], sizeof(double)) != 0)
            return fmt::format("the loss of step {} ({} and {})", step + 1, a.losses[std::size_t(step)],
                               b.losses[std::size_t(step)]);
    if (const std::string name = first_difference(a.weights, b.weights); !name.empty())
        return fmt::format("the weights after {} steps ({})", kSteps, name);
    return "";
}

std::string mebibytes(std::int64_t bytes) {
    return fmt::format("{:.1f} MiB", double(bytes) / (1 << 20));
}

}  // namespace

MemoryCheck check_memory(std::shared_ptr<const Task> task, Config& config) {
    Setup setup(std::move(task), config);
    setup.model->train();
    setup.train_data->start_epoch(0);
    const std::vector<Batch> group = setup.next_group();
    release_cached_memory(setup.device);
    reset_peak_memory(setup.device);
    const TimeLimit clock(0);
    train_on(setup, group).item();
    MemoryCheck result;
    result.seconds = clock.used();
    result.memory = memory_stats(setup.device);
    result.samples = samples_of(group);
    result.text = fmt::format("a step on {} samples in {} peaks at {}:", result.samples, setup.precision.name(),
                              mebibytes(result.memory.peak_total));
    for (int i = 0; i < kPurposes; ++i)
        if (const std::int64_t bytes = result.memory.peak_of(Purpose(i)); bytes > 0)
            result.text +=
                fmt::format("{} {} {}", result.text.ends_with(':') ? "" : ",", name_of(Purpose(i)), mebibytes(bytes));
    if (result.seconds > kLongStep)
        config.data.batch_size =
            std::max<std::int64_t>(1, std::int64_t(double(config.data.batch_size) * kLongStep / result.seconds));
    return result;
}

RepeatCheck check_seed(std::shared_ptr<const Task> task, const Config& config) {
    RepeatCheck result;
    const Beginning first(task, config), second(task, config);
    result.steps = kSteps;
    result.differs = difference_of(first, second);
    if (result.differs.empty()) {
        result.text = fmt::format("seed {} gives the same bytes twice, over {} steps of {} samples", config.seed,
                                  kSteps, std::min(config.data.batch_size, task->data(Split::train)->size()));
        return result;
    }
    result.mark = config.trainer.deterministic ? Mark::fail : Mark::warn;
    result.text = fmt::format("two runs with seed {} differ, first in {}: {}", config.seed, result.differs,
                              config.trainer.deterministic
                                  ? "what is random must come from default_generator(), or from the sample's number"
                                  : "trainer.deterministic is false");
    return result;
}

}  // namespace invar
