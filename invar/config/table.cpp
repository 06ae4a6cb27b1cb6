#include "invar/config/table.h"

#include <map>
#include <mutex>

#include "invar/core/error.h"
#include "invar/dist/strategy.h"

namespace invar {
namespace {

using Names = std::vector<std::string>;

std::string canonical_precision(const std::string& value) {
    const Precision precision = Precision::parse(value);
    check<UsageError>(precision == Precision::parse(precision.name()),
                      "names a level too; use {} with trainer.amp_level={}", precision.name(),
                      name_of(precision.level));
    return precision.name();
}

Rule precision() {
    return canonical_text("see Precision names", canonical_precision);
}

Rule amp_level() {
    return canonical_text("auto, O0, O1, O2 or O3", [](const std::string& value) {
        if (value == "auto" || value == "AUTO" || value == "Auto") return std::string("auto");
        return std::string(name_of(Precision::parse_level(value)));
    });
}

Rule strategy() {
    return canonical_text("auto, ddp, zero1 or zero2", [](const std::string& value) {
        return value == "auto" ? value : name_of(parse_strategy(value));
    });
}

Rule device() {
    return canonical_text("cpu, cuda, cuda:N or auto", [](const std::string& value) {
        const bool numbered = value.starts_with("cuda:") && value.size() > 5 && value.size() < 9 &&
                              value.find_first_not_of("0123456789", 5) == std::string::npos;
        check<UsageError>(value == "cpu" || value == "cuda" || value == "auto" || numbered,
                          "must be cpu, cuda, cuda:N or auto");
        return value;
    });
}

// It names a folder, so it must not lead out of its parent.
Rule folder_name() {
    return canonical_text("a folder name", [](const std::string& value) {
        const bool good = !value.empty() && value.size() <= 200 && value.find('/') == std::string::npos &&
                          value != "." && value != "..";
        check<UsageError>(good, "must be a name for a folder, without '/'");
        return value;
    });
}

Rule or_zero_is_all(Rule rule) {
    rule.zero_is_all = true;
    return rule;
}

// `access` takes a Config (const or not) to the address of the struct that the keys belong to.
template <class Access>
void add_section(std::vector<Field>& fields, const std::string& name, Access access, std::vector<Key> keys) {
    for (Key& key : keys) {
        Field field;
        field.key = name.empty() ? key.name : name + "." + key.name;
        field.section = name;
        field.details = std::move(key);
        field.set = [access, set = field.details.set](Config& config, const Setting& setting) {
            set(access(config), setting);
        };
        field.print = [access, print = field.details.print](const Config& config) { return print(access(config)); };
        fields.push_back(std::move(field));
    }
}

// A section of which a part is chosen: the choice, the keys that all parts of the kind have, and those of each part.
template <class Access>
void add_part_section(std::vector<Field>& fields, const std::string& section, Access access, const std::string& help,
                      std::vector<Key> common = {}) {
    const Rule rule = one_of(part_names(section));
    Field choice;
    choice.key = section + ".name";
    choice.section = section;
    choice.details.name = "name";
    choice.details.type = "text";
    choice.details.allowed = rule.allowed;
    choice.details.help = help;
    choice.chooses = true;
    choice.set = [=](Config& config, const Setting& setting) {
        const Config defaults;
        std::string name = access(defaults)->name();
        if (setting.value.kind != YamlNode::Kind::null) read_value(setting, rule, name);
        access(config)->choose(name);
    };
    choice.print = [=](const Config& config) { return print_value(access(config)->name()); };
    fields.push_back(std::move(choice));
    add_section(fields, section, access, std::move(common));
    for (const PartInfo* part : parts_of(section)) {
        const std::size_t first = fields.size();
        const auto options = [access](auto& config) { return access(config)->options(); };
        add_section(fields, section, options, part->keys);
        for (std::size_t i = first; i < fields.size(); ++i) fields[i].part = part->name;
    }
}

std::vector<Field> make_fields() {
    std::vector<Field> fields;
    add_section(
        fields, "", [](auto& c) { return &c; },
        {key("exp_name", &Config::exp_name, folder_name(), "Name of the run; its folder is output_dir/exp_name. ${key} in either stands for a key's value: run_${seed}."),
         key("output_dir", &Config::output_dir, path(), "Where the folders of runs are made."),
         key("seed", &Config::seed, at_least(0), "Seed of initial weights, shuffling and dropout."),
         key("init_from", &Config::init_from, any(),
             "A safetensors file with the initial weights, a checkpoint, the folder of a run (its last checkpoint), or "
             "a "
             "folder of Hugging Face's, which chooses the model too; empty for fresh ones."),
         key("init_fresh", &Config::init_fresh, any(),
             "What begins with fresh weights all the same, by patterns as in trainer.freeze, such as [fc]: init_from "
             "need not hold it, and what it holds of it is not read."),
         key("plugins", &Config::plugins, path(), "Shared libraries that register models, data sets or tasks.")});

    using T = TrainerConfig;
    add_section(
        fields, "trainer", [](auto& c) { return &c.trainer; },
        {key("precision", &T::precision, precision(), "Number formats of the run; any spelling under Precision names.",
             {"policy.precision", "mixed_precision"}),
         key("amp_level", &T::amp_level, amp_level(),
             "How far mixed precision goes: O0 casts nothing, O1 goes by op, O2 almost all low, O3 so and 16-bit "
             "weights; "
             "auto is the precision's own.",
             {"amp_opt_level", "trainer.amp_opt_level"}),
         key("precision_overrides", &T::precision_overrides, precision(),
             "Precision of single modules by name pattern, such as {fc2: 32-true}; a later match wins."),
         key("precision_schedule", &T::precision_schedule, precision(),
             "Precision after so many steps, or epochs (1e), such as {0: 32-true, 1e: bf16-mixed, 500: 16-mixed}."),
         key("gradient_clip_val", &T::gradient_clip_val, at_least(0), "Clip gradients at this; 0 does not clip.",
             {"policy.max_grad_norm", "max_grad_norm"}),
         key("gradient_clip_algorithm", &T::gradient_clip_algorithm, one_of({"norm", "value"}),
             "Clip by the norm of all gradients, or each value."),
         key("clip_gradients", &T::clip_gradients, one_of({"auto", "true", "false"}),
             "Whether to clip at all: auto does where gradient_clip_val is set, true clips at 1 where it is not.",
             {"policy.gradient_clipping"}),
         key("accumulate_grad_batches", &T::accumulate_grad_batches, at_least(1), "Batches to a step.",
             {"grad_accum_steps", "gradient_accumulation_steps"}),
         key("benchmark", &T::benchmark, any(), "Let the device try algorithms and keep the fastest."),
         key("deterministic", &T::deterministic, any(), "Only algorithms that give the same bits on every run."),
         key("cuda_graph", &T::cuda_graph, any(),
             "On a GPU, record the step after a few and replay it as a whole; the results are the same."),
         key("ema_decay", &T::ema_decay, below(0, 1),
             "Keep an exponential moving average of the weights, such as 0.999: the share of itself that it keeps at "
             "each step. Validations, eval, predict, sample and export use it; 0 keeps none."),
         key("ema_warmup", &T::ema_warmup, any(),
             "Let the average follow faster at first: a share of (1 + n) / (10 + n) where n steps came before, up to ema_decay."),
         key("max_epochs", &T::max_epochs, at_least(1), "Epochs to train for.", {"epochs"}),
         key("max_steps", &T::max_steps,
             custom("at least 1, or -1 for no limit", [](double v) { return v >= 1 || v == -1; }),
             "Stop after so many steps; -1 for no limit."),
         key("limit_train_batches", &T::limit_train_batches, or_zero_is_all(any()),
             "Batches of an epoch to train on: an integer counts them, a share is of all; 0 is all of them."),
         key("limit_val_batches", &T::limit_val_batches, any(),
             "Batches to validate on, likewise; 0 does not validate."),
         key("log_every_n_steps", &T::log_every_n_steps, at_least(1), "Steps between lines of metrics."),
         key("val_check_interval", &T::val_check_interval, above(0),
             "Validate every so many training batches, or after this share of an epoch."),
         key("checkpoint_every_n_steps", &T::checkpoint_every_n_steps, at_least(0),
             "Steps between checkpoints; 0 makes one at the end of each epoch.", {"checkpoint.every_n_train_steps"}),
         key("keep_checkpoints", &T::keep_checkpoints, at_least(1), "Newest checkpoints to keep."),
         key("async_checkpoint", &T::async_checkpoint, any(),
             "Write checkpoints beside the next steps, from a copy in host memory; false lets the steps wait."),
         key("recompute", &T::recompute, one_of({"none", "light", "block", "true", "false"}),
             "What backward makes anew instead of keeping it. light: norms, activations and casts, for a little "
             "time; block: all of each block of the model. true is block, and false is none.",
             {"trainer.grad_ckpt"}),
         key("freeze", &T::freeze, any(),
             "Parameters that are not trained, by patterns of their names or of modules around them, such as [conv*]."),
         key("on_instability", &T::on_instability, one_of({"stop", "skip", "recover"}),
             "skip leaves steps with NaN or Inf out and goes on; stop ends the run with a diagnosis; recover goes back "
             "to the last checkpoint and on in a safer precision."),
         key("device", &T::device, device(), "Where to run."),
         key("threads", &T::threads, within(0, 4096),
             "CPU threads; 0 for OMP_NUM_THREADS, or one per core that the process may use."),
         key("strategy", &T::strategy, strategy(),
             "What ranks that train together hold: ddp everything, zero1 the optimizer's state of their share, zero2 "
             "the gradients of it too; auto is ddp."),
         key("reduce_precision", &T::reduce_precision, one_of({"32-true", "fp32", "bf16", "bf16-mixed"}),
             "What gradients travel as between ranks; they are summed in FP32."),
         key("bucket_mb", &T::bucket_mb, above(0), "Gradients of a bucket, in MiB, which travel together."),
         key("overlap", &T::overlap, any(), "Send a bucket as soon as backward has made it, not when all are."),
         key("rank_timeout", &T::rank_timeout, within(0.001, 1e6),
             "Seconds that a rank may keep the others waiting before they give it up."),
         key("sync_batchnorm", &T::sync_batchnorm, any(),
             "Batch norms take their statistics over the samples of all ranks, not over those of each.")});

    using S = ScalerConfig;
    add_section(fields, "scaler", [](auto& c) { return &c.scaler; },
                {key("enabled", &S::enabled, any(), "Scale the loss under 16-mixed; other precisions never do."),
                 key("dynamic", &S::dynamic, any(), "Move the scale with overflows; false keeps init_scale."),
                 key("init_scale", &S::init_scale, above(0), "Scale at the start.", {"grad_scaler_init"}),
                 key("growth_factor", &S::growth_factor, above(1), "Factor after growth_interval clean steps."),
                 key("backoff_factor", &S::backoff_factor,
                     custom("above 0 and below 1", [](double v) { return float(v) > 0 && float(v) < 1; }),
                     "Factor on overflow.", {"grad_scaler_backoff"}),
                 key("growth_interval", &S::growth_interval, within(1, 2147483647),
                     "Clean steps before the scale grows.", {"grad_scaler_growth_interval"}),
                 key("min_scale", &S::min_scale, at_least(0), "The scale falls no lower; 0 for no floor."),
                 key("max_scale", &S::max_scale, at_least(0), "The scale grows no higher; 0 for finite FP32."),
                 key("hysteresis", &S::hysteresis, within(1, 1000000), "Overflows it takes until the scale backs off."),
                 key("consecutive_hysteresis", &S::consecutive_hysteresis, any(),
                     "A clean step refills the hysteresis, not growth alone.")});

    add_part_section(
        fields, "task", [](auto& c) { return &c.task; },
        "What is trained: how its loss is computed and what it is judged by.");
    add_part_section(
        fields, "model", [](auto& c) { return &c.model; }, "Which network.");

    using D = DataConfig;
    add_part_section(
        fields, "data", [](auto& c) { return &c.data; }, "Which data set.",
        {key("batch_size", &D::batch_size, within(1, 1 << 24), "Samples to a batch."),
         key("shuffle", &D::shuffle, any(), "A new order each epoch, from the seed."),
         key("drop_last", &D::drop_last, any(), "Leave out a last batch that is not full."),
         key("num_workers", &D::num_workers, within(0, 256), "Threads that prepare batches ahead; 0 for none."),
         key("mixup", &D::mixup, at_least(0),
             "Train on pairs of samples mixed by shares from Beta(mixup, mixup), their classes likewise; 0 for "
             "none."),
         key("seed", &D::seed, at_least(-1),
             "Seed of what the data themselves choose by chance: scenes, made-up samples, which ones are kept to "
             "validate on; -1 for that of the run.")});

    using O = OptimizerConfig;
    add_part_section(
        fields, "optimizer", [](auto& c) { return &c.optimizer; }, "Which optimizer.",
        {key("lr", &O::lr, at_least(0), "Learning rate; the peak of a schedule.",
             {"learning_rate", "optimizer.learning_rate"}),
         key("weight_decay", &O::weight_decay, at_least(0), "L2 penalty; decoupled from the gradient in adamw."),
         key("decay_norms_and_biases", &O::decay_norms_and_biases, any(),
             "Whether weight_decay is also for parameters of one dimension: weights of norms, and biases.")});

    using L = SchedulerConfig;
    add_part_section(fields, "scheduler", [](auto& c) { return &c.scheduler; }, "Learning rate over the steps.",
                     {key("warmup_steps", &L::warmup_steps, at_least(0), "Steps of linear rise before the schedule.")});

    using W = MonitorConfig;
    add_section(fields, "monitor", [](auto& c) { return &c.monitor; },
                {key("enabled", &W::enabled, any(), "Watch the run and raise alerts; false leaves out all of it."),
                 key("gradients_every_n_steps", &W::gradients_every_n_steps, at_least(0),
                     "Steps between looks at the gradient norm of each module; 0 for none."),
                 key("parameters_every_n_steps", &W::parameters_every_n_steps, at_least(0),
                     "Steps between searches of the weights for NaN and Inf; 0 for none."),
                 key("activations_every_n_steps", &W::activations_every_n_steps, at_least(0),
                     "Steps between looks at the largest activation of each module; 0 for none."),
                 key("memory_every_n_steps", &W::memory_every_n_steps, at_least(0),
                     "Steps between records of the memory in use; 0 for none."),
                 key("throughput_every_n_steps", &W::throughput_every_n_steps, at_least(0),
                     "Steps between records of the time a step takes; 0 for none."),
                 key("grad_norm_low", &W::grad_norm_low, at_least(0), "A gradient norm below this raises an alert."),
                 key("grad_norm_high", &W::grad_norm_high, above(0), "A gradient norm above this raises an alert.")});

    using B = StabilityConfig;
    add_section(fields, "stability", [](auto& c) { return &c.stability; },
                {key("z_score", &B::z_score, above(0),
                     "A loss or gradient norm so many standard deviations above its last values is a spike."),
                 key("window", &B::window, within(2, 10000), "How many last values that are."),
                 key("streak", &B::streak, at_least(1), "So many skipped steps in a row are one too many."),
                 key("max_recoveries", &B::max_recoveries, at_least(0), "Recoveries before the run is given up."),
                 key("apply_remedy", &B::apply_remedy, any(),
                     "Recover with the setting that a replay of the failed step has shown to mend it, where there is "
                     "one; false "
                     "always takes the next safer precision.")});

    using E = EarlyStoppingConfig;
    add_section(
        fields, "early_stopping", [](auto& c) { return &c.early_stopping; },
        {key("monitor", &E::monitor, any(),
             "Metric of the validations that must get better, such as val_loss; empty never stops a run "
             "early."),
         key("mode", &E::mode, one_of({"min", "max", "auto"}), "What better is; auto is the metric's own direction."),
         key("patience", &E::patience, at_least(1), "Validations without improvement until the run is stopped."),
         key("min_delta", &E::min_delta, at_least(0), "An improvement is more than this."),
         key("check_finite", &E::check_finite, any(), "Stop where the metric is NaN or infinite.")});

    using K = CheckpointConfig;
    add_section(
        fields, "checkpoint", [](auto& c) { return &c.checkpoint; },
        {key("monitor", &K::monitor, any(),
             "Metric of the validations whose best checkpoints are kept, such as val_accuracy; empty keeps "
             "none."),
         key("mode", &K::mode, one_of({"min", "max", "auto"}), "What better is; auto is the metric's own direction."),
         key("save_top_k", &K::save_top_k, at_least(-1),
             "How many best ones, beside the newest trainer.keep_checkpoints; -1 for every validation's, 0 for "
             "none."),
         key("save_last", &K::save_last, any(),
             "Keep the newest ones too when the run has finished; false keeps only the best.")});

    using G = LoggerConfig;
    add_section(fields, "logger", [](auto& c) { return &c.logger; },
                {key("tensorboard", &G::tensorboard, any(), "Write TensorBoard event files beside metrics.jsonl."),
                 key("wandb.enabled", &G::wandb, any(),
                     "Write wandb.jsonl beside metrics.jsonl, which scripts/wandb_upload.py uploads to Weights & "
                     "Biases; the run itself uploads nothing."),
                 key("wandb.project", &G::wandb_project, any(), "The project that it is uploaded to.")});
    return fields;
}

struct Table {
    std::vector<Field> fields = make_fields();
    std::vector<std::string> sections;
};

// One for each number of parts there have been, so that what was handed out stays.
const Table& table() {
    static std::mutex mutex;
    static std::map<std::size_t, Table> tables;
    const std::lock_guard lock(mutex);
    Table& table = tables[parts_registered()];
    if (table.sections.empty())
        for (const Field& field : table.fields)
            if (!field.section.empty() && (table.sections.empty() || table.sections.back() != field.section))
                table.sections.push_back(field.section);
    return table;
}

}  // namespace

const std::vector<Field>& config_fields() {
    return table().fields;
}

const std::vector<std::string>& config_sections() {
    return table().sections;
}

Part* part_in(Config& config, const std::string& section) {
    for (Part* part :
         std::initializer_list<Part*>{&config.task, &config.model, &config.data, &config.optimizer, &config.scheduler})
        if (part->kind() == section) return part;
    return nullptr;
}

const Part* part_in(const Config& config, const std::string& section) {
    return part_in(const_cast<Config&>(config), section);
}

bool Field::applies(const Config& config) const {
    return part.empty() || part_in(config, section)->name() == part;
}

}  // namespace invar
