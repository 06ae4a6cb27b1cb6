// Config: everything a run can be told, as plain structs whose initialisers are the defaults.
// Models, data sets and tasks bring options of their own (part.h). The table in table.cpp gives every member its key,
// check and help; docs/CONFIG.md tells users.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "invar/amp/precision.h"
#include "invar/config/part.h"
#include "invar/config/plugin.h"
#include "invar/config/types.h"

namespace invar {

struct TrainerConfig {
    std::string precision = "32-true";
    std::string amp_level = "auto";
    PrecisionOverrides precision_overrides{};
    PrecisionSchedule precision_schedule{};
    double gradient_clip_val = 0.0;
    std::string gradient_clip_algorithm = "norm";
    std::string clip_gradients = "auto";
    std::int64_t accumulate_grad_batches = 1;
    bool benchmark = true;
    bool deterministic = true;
    bool cuda_graph = true;
    double ema_decay = 0.0;
    bool ema_warmup = false;
    std::int64_t max_epochs = 1;
    std::int64_t max_steps = -1;
    BatchCount limit_train_batches{};
    BatchCount limit_val_batches{};
    std::int64_t log_every_n_steps = 50;
    BatchCount val_check_interval{};
    std::int64_t checkpoint_every_n_steps = 0;
    std::int64_t keep_checkpoints = 3;
    bool async_checkpoint = true;
    std::string recompute = "none";
    std::vector<std::string> freeze{};  // patterns of parameters or modules
    std::string on_instability = "skip";
    std::string device = "auto";
    std::int64_t threads = 0;
    std::string strategy = "auto";
    std::string reduce_precision = "32-true";
    double bucket_mb = 25.0;
    bool overlap = true;
    double rank_timeout = 30.0;
    bool sync_batchnorm = false;

    // What the run begins with, at `amp_level`.
    Precision resolved_precision() const;
    // What gradients are clipped at; 0 where they are not.
    double clip_limit() const;
    // A precision by name at `amp_level`.
    Precision at_level(const std::string& name) const;
    bool operator==(const TrainerConfig&) const = default;
};

struct ScalerConfig {
    bool enabled = true;
    bool dynamic = true;
    double init_scale = 65536.0;
    double growth_factor = 2.0;
    double backoff_factor = 0.5;
    std::int64_t growth_interval = 2000;
    double min_scale = 0.0;
    double max_scale = 0.0;
    std::int64_t hysteresis = 1;
    bool consecutive_hysteresis = false;
    bool operator==(const ScalerConfig&) const = default;
};

// Which data set, with its own options, and how samples become batches.
struct DataConfig : Part {
    DataConfig() : Part("data", "fashion_mnist") {}
    std::int64_t batch_size = 128;
    bool shuffle = true;
    bool drop_last = false;
    std::int64_t num_workers = 2;
    double mixup = 0.0;
    std::int64_t seed = -1;  // -1: that of the run; see Config::data_seed
    bool operator==(const DataConfig&) const = default;
};

struct OptimizerConfig : Part {
    OptimizerConfig() : Part("optimizer", "adam") {}
    double lr = 1e-3;
    double weight_decay = 0.0;
    bool decay_norms_and_biases = true;
    bool operator==(const OptimizerConfig&) const = default;
};

struct SchedulerConfig : Part {
    SchedulerConfig() : Part("scheduler", "constant") {}
    std::int64_t warmup_steps = 0;
    bool operator==(const SchedulerConfig&) const = default;
};

// What a run is watched for, and how often. 0 leaves a watch out.
struct MonitorConfig {
    bool enabled = true;
    std::int64_t gradients_every_n_steps = 50;
    std::int64_t parameters_every_n_steps = 500;
    std::int64_t activations_every_n_steps = 200;
    std::int64_t memory_every_n_steps = 50;
    std::int64_t throughput_every_n_steps = 50;
    double grad_norm_low = 1e-6;
    double grad_norm_high = 100.0;
    bool operator==(const MonitorConfig&) const = default;
};

// When a run counts as unstable, and how often it may be set right.
struct StabilityConfig {
    double z_score = 10.0;
    std::int64_t window = 50;
    std::int64_t streak = 25;
    std::int64_t max_recoveries = 3;
    bool apply_remedy = true;
    bool operator==(const StabilityConfig&) const = default;
};

// Ends a run whose validations get no better; off without a monitor. Lightning's names.
struct EarlyStoppingConfig {
    std::string monitor{};  // "val_loss"
    std::string mode = "auto";
    std::int64_t patience = 3;
    double min_delta = 0.0;
    bool check_finite = true;
    bool operator==(const EarlyStoppingConfig&) const = default;
};

// Which checkpoints are kept beside the newest ones; none without a monitor. Lightning's names.
struct CheckpointConfig {
    std::string monitor{};
    std::string mode = "auto";
    std::int64_t save_top_k = 1;
    bool save_last = true;
    bool operator==(const CheckpointConfig&) const = default;
};

struct LoggerConfig {
    bool tensorboard = true;
    bool wandb = false;
    std::string wandb_project = "invar";
    bool operator==(const LoggerConfig&) const = default;
};

struct Config {
    std::string exp_name = "run";
    std::string output_dir = "runs";
    std::int64_t seed = 0;
    std::string init_from{};
    std::vector<std::string> init_fresh{};                // patterns of parameters or modules
    std::vector<std::string> plugins = loaded_plugins();  // which are loaded as soon as a file or a word names them
    TrainerConfig trainer{};
    ScalerConfig scaler{};
    Part task{"task", "classification"};
    Part model{"model", "convnet"};
    DataConfig data{};
    OptimizerConfig optimizer{};
    SchedulerConfig scheduler{};
    MonitorConfig monitor{};
    StabilityConfig stability{};
    EarlyStoppingConfig early_stopping{};
    CheckpointConfig checkpoint{};
    LoggerConfig logger{};
    // What the data themselves choose by chance goes by.
    std::uint64_t data_seed() const { return std::uint64_t(data.seed >= 0 ? data.seed : seed); }
    bool operator==(const Config&) const = default;
};

// The same run in another precision from its first step to its last; in FP32 without exceptions for modules.
Config in_precision(Config config, const std::string& precision);

// A key of which a folder of weights knows the value.
struct FolderKey {
    enum class Kind {
        fixed,    // the weights are of it, and nothing else will do
        at_most,  // nor will a larger number
        start     // only where nobody says otherwise, and where the configuration has such a key
    };
    std::string key, value;
    Kind kind = Kind::fixed;
};

// Where group files lie: each folder holds trainer/, model/, data/, ..., experiment/. Earlier folders win.
struct ConfigSources {
    std::vector<std::filesystem::path> config_dirs;
    // What is known of a run whose init_from is this folder; model.name is among it. Nobody is asked where it is empty.
    std::function<std::vector<FolderKey>(const std::filesystem::path& folder)> folder_keys{};
};

// Composes a run's configuration as Hydra does. The first argument is a YAML file or the name of one in experiment/
// ("" for the defaults alone); the overrides are key=value, or group=name for a group file. All errors are UsageErrors
// that name the key, where it was set and what is allowed.
Config load_config(const std::string& config_or_experiment, const std::vector<std::string>& overrides,
                   const ConfigSources& sources);

// One YAML text without `defaults:`; `origin` names it in errors.
Config parse_config(std::string_view yaml, const std::string& origin);

// Every key with its value, as YAML that parse_config reads back to an equal Config.
std::string to_yaml(const Config& config);

struct KeyInfo {
    std::string key;            // "trainer.max_epochs"
    std::string part;           // "mlp", where only that model, data set or task has it
    std::string type;           // "integer"
    std::string default_value;  // as YAML
    std::string allowed;        // "at least 1"
    std::string help;
    std::vector<std::string> aliases;  // other full keys that mean this one
};
std::vector<KeyInfo> config_keys();

// The groups that files can be picked for ("trainer", "model", ...), and the names there are in one, of files and of
// registered parts; for completion.
std::vector<std::string> config_groups();
std::vector<std::string> config_choices(const std::string& group, const ConfigSources& sources);

}  // namespace invar
