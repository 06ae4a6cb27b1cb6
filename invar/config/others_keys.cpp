#include "invar/config/others_keys.h"

namespace invar {
namespace {

struct Foreign {
    std::string_view key;  // with everything below it
    std::string_view advice;
};
constexpr std::string_view kZero = "use trainer.strategy=zero1 or zero2";
constexpr Foreign kForeign[] = {
    {"zero_optimization", kZero},
    {"logger.wandb", "use logger.wandb.enabled and logger.wandb.project"},
    {"logger.mlflow", "Invar writes metrics.jsonl and, with logger.tensorboard=true, TensorBoard files"},
    {"logger.csv", "Invar writes metrics.jsonl and, with logger.tensorboard=true, TensorBoard files"},
    {"wandb", "use logger.wandb.enabled and logger.wandb.project"},
    {"trainer.accelerator", "use trainer.device=cpu, cuda or auto"},
    {"trainer.use_distributed_sampler", "leave it out: every rank reads its part of a batch by itself"},
    {"trainer.find_unused_parameters", "leave it out: parameters that a step does not reach are found by themselves"},
    {"trainer.sync_bn", "use trainer.sync_batchnorm=true"},
    {"trainer.enable_checkpointing", "use trainer.checkpoint_every_n_steps"},
    {"trainer.check_val_every_n_epoch", "use trainer.val_check_interval; 1.0 is once an epoch"},
    {"trainer.fast_dev_run", "use trainer.max_steps=1 trainer.limit_val_batches=1"},
    {"trainer.overfit_batches", "use trainer.limit_train_batches and data.shuffle=false"},
    {"trainer.default_root_dir", "use output_dir"},
    {"loss.name", "the loss is the task's; use task.name=classification, or exponential_loss for the lesson"},
    {"loss_scale", "use scaler.init_scale, with scaler.dynamic=false to keep it"},
    {"hydra", "the run's folder is output_dir/exp_name"},
};

// Those that people write in one section and another, by their last part.
constexpr std::string_view kMixup = "use data.mixup, the alpha of its Beta(alpha, alpha); 0 mixes nothing";
constexpr std::string_view kClasses = "a model has as many outputs as the data have classes; leave it out";
constexpr std::string_view kPretrained =
    "use init_from=FILE for weights to begin with, and init_fresh for what does not take them, such as [fc]";
constexpr std::string_view kSpared = "use optimizer.decay_norms_and_biases=false, which spares norms and biases";
constexpr std::string_view kGpus =
    "a process has one device; use trainer.device=cpu, cuda or cuda:N, and for several mpirun -n N invar train ... "
    "(invar plan has --ranks N)";
constexpr std::string_view kLauncher =
    "the launcher says how many processes there are: mpirun -n N or srun invar train ... (invar plan has --ranks N)";
constexpr Foreign kAnywhere[] = {
    {"mixup_alpha", kMixup},
    {"num_classes", kClasses},
    {"n_classes", kClasses},
    {"classes", kClasses},
    {"pretrained", kPretrained},
    {"pretrained_weights", kPretrained},
    {"backbone_pretrained", kPretrained},
    {"norm_weight_decay", kSpared},
    {"bias_weight_decay", kSpared},
    {"norm_decay", kSpared},
    {"bias_decay", kSpared},
    {"no_bias_decay", kSpared},
    {"no_norm_decay", kSpared},
    {"zero_optimization", kZero},
    {"zero_stage", kZero},
    {"deepspeed", kZero},
    {"fsdp", kZero},
    {"gpus", kGpus},
    {"gpu", kGpus},
    {"devices", kGpus},
    {"n_gpus", kGpus},
    {"num_gpus", kGpus},
    {"num_nodes", kLauncher},
    {"nnodes", kLauncher},
    {"num_processes", kLauncher},
    {"nproc_per_node", kLauncher},
    {"world_size", kLauncher},
    {"local_rank", kLauncher},
    {"ranks", kLauncher},
    {"sync_bn", "use trainer.sync_batchnorm=true"},
    {"train_micro_batch_size_per_gpu", "use data.batch_size, which is that of all ranks together"},
    {"per_device_train_batch_size", "use data.batch_size, which is that of all ranks together"},
    {"fp16", "use trainer.precision=16-mixed"},
    {"bf16", "use trainer.precision=bf16-mixed"},
    {"amp", "use trainer.precision=bf16-mixed, or 16-mixed with a loss scale"},
};

}  // namespace

bool is_below(std::string_view key, std::string_view top) {
    return key.starts_with(top) && (key.size() == top.size() || key[top.size()] == '.');
}

std::string_view advice_on(std::string_view key) {
    for (const Foreign& foreign : kForeign)
        if (is_below(key, foreign.key)) return foreign.advice;
    const std::string_view last = key.substr(key.rfind('.') + 1);
    for (const Foreign& foreign : kAnywhere)
        if (last == foreign.key) return foreign.advice;
    return "";
}

}  // namespace invar
