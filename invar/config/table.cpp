#include "invar/config/table.h"

#include <type_traits>

#include "invar/core/error.h"

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
    return text("see Precision names", canonical_precision);
}

Rule amp_level() {
    return text("auto, O0, O1, O2 or O3", [](const std::string& value) {
        if (value == "auto" || value == "AUTO" || value == "Auto") return std::string("auto");
        return std::string(name_of(Precision::parse_level(value)));
    });
}

Rule device() {
    return text("cpu, cuda, cuda:N or auto", [](const std::string& value) {
        const bool numbered = value.starts_with("cuda:") && value.size() > 5 && value.size() < 9 &&
                              value.find_first_not_of("0123456789", 5) == std::string::npos;
        check<UsageError>(value == "cpu" || value == "cuda" || value == "auto" || numbered,
                          "must be cpu, cuda, cuda:N or auto");
        return value;
    });
}

// It names a folder, so it must not lead out of its parent.
Rule folder_name() {
    return text("a folder name", [](const std::string& value) {
        const bool good = !value.empty() && value.size() <= 200 && value.find('/') == std::string::npos &&
                          value != "." && value != "..";
        check<UsageError>(good, "must be a name for a folder, without '/'");
        return value;
    });
}

Rule path() {
    return text("a path", [](const std::string& value) {
        check<UsageError>(!value.empty(), "must be a path");
        return value;
    });
}

Rule or_zero_is_all(Rule rule) {
    rule.zero_is_all = true;
    return rule;
}

// One section of the table. `access` takes a Config (const or not) to the struct of the section.
template <class Access>
class Section {
  public:
    Section(std::vector<Field>& fields, std::string name, Access access)
        : fields_(fields), name_(std::move(name)), access_(access) {}

    template <class Struct, class T>
    Section& row(const std::string& leaf, T Struct::*member, const Rule& rule, const std::string& help,
                 Names aliases = {}) {
        Field field;
        field.key = name_.empty() ? leaf : name_ + "." + leaf;
        field.section = name_;
        field.leaf = leaf;
        field.type = type_name(T{});
        field.allowed = rule.allowed;
        field.help = help;
        field.aliases = std::move(aliases);
        field.is_map = std::is_same_v<T, PrecisionOverrides> || std::is_same_v<T, PrecisionSchedule>;
        field.set = [=, access = access_](Config& config, const Setting& setting) {
            const bool to_default = setting.value.kind == YamlNode::Kind::null && setting.entry.empty();
            if (to_default) {
                Config defaults;
                access(config).*member = access(defaults).*member;
            } else {
                read_value(setting, rule, access(config).*member);
            }
        };
        field.print = [=, access = access_](const Config& config) { return print_value(access(config).*member); };
        fields_.push_back(std::move(field));
        return *this;
    }

  private:
    std::vector<Field>& fields_;
    std::string name_;
    Access access_;
};

std::vector<Field> make_fields() {
    std::vector<Field> fields;
    Section(
        fields, "", [](auto& c) -> auto& { return c; })
        .row("exp_name", &Config::exp_name, folder_name(), "Name of the run; its folder is output_dir/exp_name.")
        .row("output_dir", &Config::output_dir, path(), "Where the folders of runs are made.")
        .row("seed", &Config::seed, at_least(0), "Seed of initial weights, shuffling and dropout.")
        .row("init_from", &Config::init_from, any(),
             "A safetensors file with the initial weights; empty for fresh ones.");

    using T = TrainerConfig;
    Section(
        fields, "trainer", [](auto& c) -> auto& { return c.trainer; })
        .row("precision", &T::precision, precision(), "Number formats of the run; any spelling under Precision names.",
             {"policy.precision", "mixed_precision"})
        .row("amp_level", &T::amp_level, amp_level(),
             "How far mixed precision goes: O0 casts nothing, O1 goes by op, O2 almost all low, O3 so and 16-bit "
             "weights; "
             "auto is the precision's own.",
             {"amp_opt_level", "trainer.amp_opt_level"})
        .row("precision_overrides", &T::precision_overrides, precision(),
             "Precision of single modules by name pattern, such as {fc2: 32-true}; a later match wins.")
        .row("precision_schedule", &T::precision_schedule, precision(),
             "Precision from a step on, or from an epoch on, such as {0: 32-true, 1e: bf16-mixed, 500: 16-mixed}.")
        .row("gradient_clip_val", &T::gradient_clip_val, at_least(0), "Clip gradients at this; 0 does not clip.",
             {"policy.max_grad_norm", "max_grad_norm"})
        .row("gradient_clip_algorithm", &T::gradient_clip_algorithm, one_of({"norm", "value"}),
             "Clip by the norm of all gradients, or each value.")
        .row("accumulate_grad_batches", &T::accumulate_grad_batches, at_least(1), "Batches to a step.",
             {"grad_accum_steps", "gradient_accumulation_steps"})
        .row("benchmark", &T::benchmark, any(), "Let the device try algorithms and keep the fastest.")
        .row("deterministic", &T::deterministic, any(), "Only algorithms that give the same bits on every run.")
        .row("cuda_graph", &T::cuda_graph, any(),
             "On a GPU, record the step after a few and replay it as a whole; the results are the same.")
        .row("max_epochs", &T::max_epochs, at_least(1), "Epochs to train for.", {"epochs"})
        .row("max_steps", &T::max_steps,
             custom("at least 1, or -1 for no limit", [](double v) { return v >= 1 || v == -1; }),
             "Stop after so many steps; -1 for no limit.")
        .row("limit_train_batches", &T::limit_train_batches, or_zero_is_all(any()),
             "Batches of an epoch to train on: an integer counts them, a share is of all; 0 is all of them.")
        .row("limit_val_batches", &T::limit_val_batches, any(),
             "Batches to validate on, likewise; 0 does not validate.")
        .row("log_every_n_steps", &T::log_every_n_steps, at_least(1), "Steps between lines of metrics.")
        .row("val_check_interval", &T::val_check_interval, above(0),
             "Validate every so many training batches, or after this share of an epoch.")
        .row("checkpoint_every_n_steps", &T::checkpoint_every_n_steps, at_least(0),
             "Steps between checkpoints; 0 makes one at the end of each epoch.")
        .row("keep_checkpoints", &T::keep_checkpoints, at_least(1), "Newest checkpoints to keep.")
        .row("grad_ckpt", &T::grad_ckpt, any(), "Recompute activations in backward instead of keeping them.")
        .row("on_instability", &T::on_instability, one_of({"stop", "skip", "recover"}),
             "skip leaves steps with NaN or Inf out and goes on; stop ends the run with a diagnosis; recover goes back "
             "to the last checkpoint and on in a safer precision.")
        .row("device", &T::device, device(), "Where to run.")
        .row("threads", &T::threads, within(0, 4096),
             "CPU threads; 0 for OMP_NUM_THREADS, or one per core that the process may use.");

    using S = ScalerConfig;
    Section(
        fields, "scaler", [](auto& c) -> auto& { return c.scaler; })
        .row("enabled", &S::enabled, any(), "Scale the loss under 16-mixed; other precisions never do.")
        .row("dynamic", &S::dynamic, any(), "Move the scale with overflows; false keeps init_scale.")
        .row("init_scale", &S::init_scale, above(0), "Scale at the start.", {"grad_scaler_init"})
        .row("growth_factor", &S::growth_factor, above(1), "Factor after growth_interval clean steps.")
        .row("backoff_factor", &S::backoff_factor,
             custom("above 0 and below 1", [](double v) { return float(v) > 0 && float(v) < 1; }),
             "Factor on overflow.", {"grad_scaler_backoff"})
        .row("growth_interval", &S::growth_interval, within(1, 2147483647), "Clean steps before the scale grows.",
             {"grad_scaler_growth_interval"})
        .row("min_scale", &S::min_scale, at_least(0), "The scale falls no lower; 0 for no floor.")
        .row("max_scale", &S::max_scale, at_least(0), "The scale grows no higher; 0 for finite FP32.")
        .row("hysteresis", &S::hysteresis, within(1, 1000000), "Overflows it takes until the scale backs off.")
        .row("consecutive_hysteresis", &S::consecutive_hysteresis, any(),
             "A clean step refills the hysteresis, not growth alone.");

    using M = ModelConfig;
    Section(
        fields, "model", [](auto& c) -> auto& { return c.model; })
        .row("name", &M::name, one_of({"mlp", "convnet"}), "Which network.")
        .row("hidden", &M::hidden, within(1, 1 << 20), "Widths of the mlp's hidden layers; [] is its own, [512].")
        .row("classes", &M::classes, within(1, 1 << 20), "Outputs; those of the data unless set.")
        .row("dropout", &M::dropout,
             custom("from 0 to below 1, or -1", [](double v) { return v == -1 || (v >= 0 && v < 1); }),
             "Dropout probability everywhere; -1 for the model's own, 0 turns all off.");

    using F = LossConfig;
    Section(
        fields, "loss", [](auto& c) -> auto& { return c.loss; })
        .row("name", &F::name, one_of({"cross_entropy", "exp"}),
             "What is minimised; exp is the mean of the sums whose logarithm cross_entropy is, and overflows.")
        .row("weight", &F::weight, above(0), "Factor on the loss, as where it is one of several.");

    using D = DataConfig;
    Section(
        fields, "data", [](auto& c) -> auto& { return c.data; })
        .row("name", &D::name, one_of({"fashion_mnist", "mnist", "cifar10", "cifar100", "synthetic"}),
             "Which data set.")
        .row("root", &D::root, path(), "Folder of its files; distribution packages are found in their own place.")
        .row("batch_size", &D::batch_size, within(1, 1 << 24), "Samples to a batch.")
        .row("shuffle", &D::shuffle, any(), "A new order each epoch, from the seed.")
        .row("drop_last", &D::drop_last, any(), "Leave out a last batch that is not full.")
        .row("num_workers", &D::num_workers, within(0, 256), "Threads that prepare batches ahead; 0 for none.")
        .row("mean", &D::mean, any(), "A pixel v in [0, 1] becomes (v - mean) / std.")
        .row("std", &D::std, above(0), "See mean.")
        .row("size", &D::size, within(1, 1e9), "Training samples; only the synthetic set can be told.")
        .row("height", &D::height, within(1, 1 << 16), "Rows of an image, likewise.")
        .row("width", &D::width, within(1, 1 << 16), "Columns of an image, likewise.")
        .row("channels", &D::channels, within(1, 1 << 12), "Channels of an image, likewise.")
        .row("classes", &D::classes, within(1, 1 << 20), "Classes, likewise.");

    using O = OptimizerConfig;
    Section(
        fields, "optimizer", [](auto& c) -> auto& { return c.optimizer; })
        .row("name", &O::name, one_of({"sgd", "adam", "adamw"}), "Which optimizer.")
        .row("lr", &O::lr, at_least(0), "Learning rate; the peak of a schedule.",
             {"learning_rate", "optimizer.learning_rate"})
        .row("weight_decay", &O::weight_decay, at_least(0), "L2 penalty; decoupled from the gradient in adamw.")
        .row("momentum", &O::momentum, below(0, 1), "Momentum of sgd.")
        .row("nesterov", &O::nesterov, any(), "Nesterov momentum of sgd.")
        .row("betas", &O::betas, below(0, 1), "Decay of adam's averages of gradient and square.")
        .row("eps", &O::eps, above(0), "Added to adam's denominator.");

    using L = SchedulerConfig;
    Section(
        fields, "scheduler", [](auto& c) -> auto& { return c.scheduler; })
        .row("name", &L::name, one_of({"constant", "step", "cosine", "one_cycle"}), "Learning rate over the steps.")
        .row("warmup_steps", &L::warmup_steps, at_least(0), "Steps of linear rise before the schedule.")
        .row("step_size", &L::step_size, at_least(1), "step: every so many steps the rate is multiplied ...")
        .row("gamma", &L::gamma, above(0), "step: ... by this.")
        .row("min_lr", &L::min_lr, at_least(0), "cosine: the rate at the end.")
        .row("pct_start", &L::pct_start, within(0, 1), "one_cycle: share of the steps spent rising.")
        .row("div_factor", &L::div_factor, at_least(1), "one_cycle: starts at lr / div_factor.")
        .row("final_div_factor", &L::final_div_factor, at_least(1), "one_cycle: ends at its start / final_div_factor.");

    using W = MonitorConfig;
    Section(
        fields, "monitor", [](auto& c) -> auto& { return c.monitor; })
        .row("enabled", &W::enabled, any(), "Watch the run and raise alerts; false leaves out all of it.")
        .row("gradients_every_n_steps", &W::gradients_every_n_steps, at_least(0),
             "Steps between looks at the gradient norm of each module; 0 for none.")
        .row("parameters_every_n_steps", &W::parameters_every_n_steps, at_least(0),
             "Steps between searches of the weights for NaN and Inf; 0 for none.")
        .row("activations_every_n_steps", &W::activations_every_n_steps, at_least(0),
             "Steps between looks at the largest activation of each module; 0 for none.")
        .row("memory_every_n_steps", &W::memory_every_n_steps, at_least(0),
             "Steps between records of the memory in use; 0 for none.")
        .row("throughput_every_n_steps", &W::throughput_every_n_steps, at_least(0),
             "Steps between records of the time a step takes; 0 for none.")
        .row("grad_norm_low", &W::grad_norm_low, at_least(0), "A gradient norm below this raises an alert.")
        .row("grad_norm_high", &W::grad_norm_high, above(0), "A gradient norm above this raises an alert.");

    using B = StabilityConfig;
    Section(
        fields, "stability", [](auto& c) -> auto& { return c.stability; })
        .row("z_score", &B::z_score, above(0),
             "A loss or gradient norm so many standard deviations above its last values is a spike.")
        .row("window", &B::window, within(2, 10000), "How many last values that are.")
        .row("streak", &B::streak, at_least(1), "So many skipped steps in a row are one too many.")
        .row("max_recoveries", &B::max_recoveries, at_least(0), "Recoveries before the run is given up.")
        .row(
            "apply_remedy", &B::apply_remedy, any(),
            "Recover with the setting that a replay of the failed step has shown to mend it, where there is one; false "
            "always takes the next safer precision.");

    using G = LoggerConfig;
    Section(
        fields, "logger", [](auto& c) -> auto& { return c.logger; })
        .row("tensorboard", &G::tensorboard, any(), "Write TensorBoard event files beside metrics.jsonl.");
    return fields;
}

}  // namespace

const std::vector<Field>& config_fields() {
    static const std::vector<Field> fields = make_fields();
    return fields;
}

const std::vector<std::string>& config_sections() {
    static const std::vector<std::string> sections = [] {
        std::vector<std::string> names;
        for (const Field& field : config_fields())
            if (!field.section.empty() && (names.empty() || names.back() != field.section))
                names.push_back(field.section);
        return names;
    }();
    return sections;
}

}  // namespace invar
