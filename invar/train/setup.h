// From a configuration to the parts of a run: data, model, optimizer, scaler. Everything random in it follows the seed.
#pragma once

#include <memory>
#include <optional>

#include "invar/config/config.h"
#include "invar/data/loader.h"
#include "invar/optim/grad_scaler.h"
#include "invar/optim/weight_average.h"
#include "invar/tasks/task.h"

namespace invar {

// The model with its initial weights: drawn by the seed, or read from init_from.
// `checksum` becomes that of the weights that init_from was read for.
std::unique_ptr<Module> make_initial_model(const Task& task, const Config& config, std::uint32_t* checksum = nullptr);

// Throws UsageError where the device lacks the precision of a module (trainer.precision_overrides) or of a later step
// (trainer.precision_schedule), naming the entry. Asked before anything is trained.
void require_precisions(const TrainerConfig& trainer, Device device);

// "fc1.weight" -> "fc1"; "" is the model itself.
std::string module_of(const std::string& parameter);

// The batches of a split, as configured. Throws a UsageError where there can be none.
// `ranks`: who reads each batch together.
std::unique_ptr<Loader> make_loader(const Task& task, const Config& config, Split split, Device device,
                                    const Communicator* ranks = nullptr);

// What a rank was told otherwise than the first one; nothing where all agree. All ranks ask, and get the same answer.
struct SettingsDifference {
    int rank;
    std::string text;  // "'lr: 0.1' on rank 0 and 'lr: 0.5' on rank 1"
};
std::optional<SettingsDifference> difference_of_settings(Communicator& ranks, const Config& config);

// A GPU records its steps and a CPU does not: ranks of both kinds would wait for each other. Throws a UsageError that
// names one of each, and why the one has no GPU (`why_on_cpu`).
void check_same_device(Communicator& ranks, Device device, const std::string& why_on_cpu);
// What ranks must agree on of a data set: its size and how it describes itself.
std::string described(const Dataset& data);
// As configured; ranks on a machine share its cores, unless the launcher has given each its own. 0: the device's
// choice.
int threads_of(const TrainerConfig& trainer, const Communicator& ranks);

// What a run trains with. Made once; lives until the run ends.
struct Setup {
    explicit Setup(const Config& config);
    Setup(std::shared_ptr<const Task> task, const Config& config);
    // Goes on in another precision: weights and moments stay as they are, the scaler begins anew.
    void set_precision(const Precision& wanted);
    // The same for single modules, by name pattern.
    void override_precision(const PrecisionOverrides& wanted);
    // Counts the steps of the run from an epoch and a batch of it that were reached after so many steps: where epochs
    // had another length until there, those that are done stay done, and as many follow as are left. Whether that
    // changes anything.
    bool continue_at(const Config& config, std::int64_t step, std::int64_t epoch, std::int64_t batch);
    // The batches of one step: `accumulate` of them, fewer at the end of an epoch, none behind it.
    std::vector<Batch> next_group();

    Communicator* ranks;  // who train together; one process has itself alone
    // Of the task; a test may put another in its place.
    LossFunction loss;
    std::shared_ptr<const Task> task;
    Precision precision;
    Device device;
    std::string why_on_cpu;  // where the device was left to us and is the CPU
    std::unique_ptr<Module> model;
    std::unique_ptr<Optimizer> optimizer;
    std::unique_ptr<GradScaler> scaler;
    std::unique_ptr<WeightAverage> average;  // where trainer.ema_decay asks for one
    std::unique_ptr<Loader> train_data;
    std::unique_ptr<Loader> test_data;
    ClipSpec clip;
    ScalerConfig scaling;
    struct Change {
        std::int64_t step;  // counted from 0
        Precision precision;
    };
    std::vector<Change> changes;  // that trainer.precision_schedule makes after the first step
    std::int64_t accumulate = 1;
    std::int64_t steps_per_epoch = 0;  // optimizer steps, skipped ones included
    std::int64_t first_epoch_at = 0;   // the step that epoch 0 began at, as if all epochs had been of this length
    std::int64_t total_steps = 0;
    bool sync_batchnorm = false;  // training statistics of batch norms are those of all ranks

  private:
    Sharding sharding_;
    void count_steps(const Config& config);
};

}  // namespace invar
