#include "invar/plan/counted_step.h"

#include "invar/core/error.h"
#include "invar/kernels/dry/dry_run.h"
#include "invar/kernels/flops.h"
#include "invar/train/recorded_step.h"
#include "invar/train/review.h"
#include "invar/train/step.h"

namespace invar {

namespace {

constexpr std::int64_t kRead = 3;  // samples that are read to see what a batch looks like

// The same tensors for another number of samples; nobody looks at what is in them.
Batch resized(const Batch& batch, std::int64_t samples, Device device) {
    const PurposeScope purpose(Purpose::data);
    Batch result = batch.map([&](const Tensor& tensor) {
        Shape shape = tensor.shape();
        if (shape.rank() > 0 && shape[0] == batch.size) shape[0] = samples;
        return Tensor::empty(shape, tensor.dtype(), device);
    });
    result.size = samples;
    return result;
}

Batch made_of_few(const Task& task, const Config& config, Split split, std::int64_t samples, Device device) {
    Config few = config;
    few.data.batch_size = kRead;
    const std::unique_ptr<Loader> data = make_loader(task, few, split, device);  // of all, not of a rank's part
    data->start_epoch(0);
    return resized(*data->next(), samples, device);
}

// Marks in which part of the step kernels run: the loss is forward, what follows it backward.
void mark_phases(Setup& setup, dry::DryKernels& kernels) {
    setup.loss = [loss = setup.loss, &kernels](Module& model, const Batch& batch) {
        kernels.set_phase(dry::Phase::forward);
        Tensor result = loss(model, batch);
        kernels.set_phase(dry::Phase::backward);
        return result;
    };
}

// What this rank copies for a checkpoint, as take_snapshot_parts does.
std::size_t saved_bytes(const Setup& setup) {
    const ParameterStore& store = setup.optimizer->store();
    std::size_t bytes = store.own_weights().bytes();
    for (int i = 0; i < store.moments(); ++i) bytes += store.held_moment(i).bytes();
    return bytes + (setup.average ? setup.average->weights().bytes() : 0);
}

CountedStep count(const std::shared_ptr<const Task>& task, const Config& config, std::int64_t batch, dry::DryRun& run) {
    CountedStep counted;
    Setup setup(task, config);
    const Device device = setup.device;
    mark_phases(setup, run.kernels());
    setup.model->train();
    std::vector<Batch> group;
    while (std::int64_t(group.size()) < setup.accumulate)
        group.push_back(made_of_few(*task, config, Split::train, batch, device));
    counted.samples = samples_of(group);
    counted.batches = setup.accumulate;
    const ParameterStore& store = setup.optimizer->store();
    for (const Bucket& bucket : store.buckets()) counted.buckets.insert(counted.buckets.begin(), bucket.count);
    counted.overlap = config.trainer.overlap;
    for (const Parameter* parameter : store.parameters()) {
        counted.parameters += parameter->value.numel();
        if (!parameter->needs_shadow_alone()) counted.wide += parameter->value.numel();
    }
    counted.elements = store.elements();
    counted.masters = store.shadow().defined();
    counted.weight_bytes = int(size_of(counted.masters ? store.shadow().dtype() : store.dtype()));

    RecordedStep step(device, step_function(setup), {config.trainer.cuda_graph});
    release_cached_memory(device);
    reset_peak_memory(device);
    run.kernels().forget_work();
    {
        const FlopCount flops;
        step(group);
        counted.flops = flops.count();
    }
    counted.step = memory_stats(device);
    counted.work = run.kernels().work();

    // What training has beside that: the batch that is on its way, the recording's own memory, evaluation between
    // steps.
    std::vector<Batch> ahead;
    if (!device.is_cpu()) ahead.push_back(resized(group[0], batch, device));
    while (!step.settled(group)) step(group);
    if (device.is_cpu()) {  // where the copies of a checkpoint lie too, which is written beside the next steps
        const Storage copies(saved_bytes(setup), device, Purpose::workspace);
        if (config.trainer.async_checkpoint) step(group);
    }
    counted.recorded = step.parts() > 0;
    reset_peak_memory(device);
    {
        const EvaluationScope scope(*setup.model, setup.precision);
        (void)task->measure(*setup.model, made_of_few(*task, config, Split::test, batch, device));
    }
    counted.evaluation = memory_stats(device);
    counted.held = run.held().most;
    return counted;
}

}  // namespace

std::optional<CountedStep> count_step(const std::shared_ptr<const Task>& task, const Config& config, std::int64_t batch,
                                      const CountFor& on) {
    check<UsageError>(batch >= 1, "a batch of {} samples cannot be planned for", batch);
    Config counted = config;
    counted.trainer.device = on.device.is_cpu() ? "cpu" : "cuda";
    counted.data.num_workers = 0;
    counted.data.drop_last = false;
    counted.data.batch_size = std::max<std::int64_t>(kRead, on.ranks.count);
    counted.trainer.strategy = name_of(on.ranks.strategy);
    counted.trainer.reduce_precision = on.ranks.gradient_bytes == 2 ? "bf16" : "32-true";
    counted.init_from.clear();
    counted.trainer.limit_train_batches = counted.trainer.limit_val_batches = BatchCount::all();
    dry::DryRun run(on.device, on.capacity);
    if (on.costs != nullptr) run.kernels().know(*on.costs);
    CountedRanks ranks(on.ranks.count);
    const WorldScope together(ranks);
    try {
        return count(task, counted, batch, run);
    } catch (const Error&) {
        if (run.held().refused) return std::nullopt;
        throw;
    }
}

}  // namespace invar
