#include "invar/train/setup.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "invar/core/error.h"
#include "invar/core/promised.h"
#include "invar/core/version.h"
#include "invar/dist/launcher.h"
#include "invar/io/checkpoint.h"
#include "invar/kernels/devices.h"
#include "invar/kernels/threads.h"
#include "invar/optim/specs.h"
#include "invar/tasks/registry.h"
#include "invar/train/precision_plan.h"
#include "invar/train/weights.h"

namespace invar {

namespace {

// Dropout draws from a sequence of its own, so that it does not depend on how the weights came to be.
constexpr std::uint64_t kDropoutStream = 0x9e3779b97f4a7c15u;

ScalerOptions scaler_options(const ScalerConfig& c, const Precision& precision) {
    ScalerOptions options;
    options.init_scale = c.init_scale;
    options.spec.enabled = c.enabled && precision.needs_scaler();
    options.spec.dynamic = c.dynamic;
    options.spec.growth_factor = c.growth_factor;
    options.spec.backoff_factor = c.backoff_factor;
    options.spec.growth_interval = int(c.growth_interval);
    options.spec.min_scale = float(c.min_scale);
    options.spec.max_scale = float(c.max_scale);
    options.spec.hysteresis = int(c.hysteresis);
    options.spec.consecutive_hysteresis = c.consecutive_hysteresis;
    return options;
}

ClipSpec clip_spec(const TrainerConfig& c) {
    const double limit = c.clip_limit();
    if (limit == 0) return {};
    return {c.gradient_clip_algorithm == "value" ? ClipSpec::Kind::value : ClipSpec::Kind::norm, float(limit)};
}

// Each line with the keys that it stands below: "optimizer.lr: 0.001".
std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines, above;
    for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
        end = std::min(text.find('\n', begin), text.size());
        const std::string line = text.substr(begin, end - begin);
        const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
        above.resize(std::min(above.size(), indent / 2));
        lines.push_back(fmt::format("{}{}{}", fmt::join(above, "."), above.empty() ? "" : ".", line.substr(indent)));
        if (line.ends_with(':')) above.push_back(line.substr(indent, line.size() - indent - 1));
    }
    return lines;
}

// Ranks that were told different things would train different things.
void check_same_settings(Communicator& ranks, const Config& config) {
    if (ranks.alone()) return;
    ranks.check_same("the version of Invar", INVAR_VERSION);
    if (const auto difference = difference_of_settings(ranks, config))
        fail<UsageError>("the configurations of the ranks differ: {}", difference->text);
    check<UsageError>(config.data.batch_size >= ranks.size(),
                      "data.batch_size={} is less than the {} ranks that share a batch", config.data.batch_size,
                      ranks.size());
}

// And so would those who have other data.
void check_same_data(Communicator& ranks, const Dataset& data, const std::string& split) {
    if (ranks.alone()) return;
    ranks.check_same(fmt::format("the data to {} on", split), described(data));
}

Sharding sharding_of(const TrainerConfig& c, Communicator& ranks) {
    Sharding sharding;
    sharding.ranks = &ranks;
    sharding.strategy = parse_strategy(c.strategy);
    sharding.bucket_bytes = std::int64_t(c.bucket_mb * 0x1p20);
    sharding.wire = c.reduce_precision.starts_with("bf16") ? Dtype::bf16 : Dtype::f32;
    sharding.overlap = c.overlap;
    sharding.recomputes = c.recompute == "block" || c.recompute == "true";
    return sharding;
}

}  // namespace

int threads_of(const TrainerConfig& c, const Communicator& ranks) {
    if (c.threads > 0 || ranks.alone() || std::getenv("OMP_NUM_THREADS") != nullptr) return int(c.threads);
    const int cores = available_threads(), here = launch_from_environment().local_size;
    return cores < ::sysconf(_SC_NPROCESSORS_ONLN) ? 0 : std::max(1, cores / here);
}

std::optional<SettingsDifference> difference_of_settings(Communicator& ranks, const Config& config) {
    const std::vector<std::string> all = ranks.gathered(to_yaml(config));
    const std::vector<std::string> first = lines_of(all[0]);
    for (std::size_t r = 1; r < all.size(); ++r) {
        const std::vector<std::string> other = lines_of(all[r]);
        for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
            const std::string a = i < first.size() ? first[i] : "nothing", b = i < other.size() ? other[i] : "nothing";
            if (a != b) return SettingsDifference{int(r), fmt::format("'{}' on rank 0 and '{}' on rank {}", a, b, r)};
        }
    }
    return std::nullopt;
}

void check_same_device(Communicator& ranks, Device device, const std::string& why_on_cpu) {
    const std::vector<char> on_cpu = ranks.gathered(char(device.is_cpu()));
    const std::vector<std::string> reasons = ranks.gathered(why_on_cpu);
    const auto cpu = std::ranges::find(on_cpu, 1), gpu = std::ranges::find(on_cpu, 0);
    if (cpu == on_cpu.end() || gpu == on_cpu.end()) return;
    const std::string& why = reasons[std::size_t(cpu - on_cpu.begin())];
    fail<UsageError>("rank {} is on a GPU and rank {} on the CPU{}; --device cpu takes the CPU of all of them",
                     gpu - on_cpu.begin(), cpu - on_cpu.begin(), why.empty() ? "" : ": " + why);
}

std::string described(const Dataset& data) {
    std::string text = fmt::format("{} samples", data.size());
    for (const auto& [name, value] : data.description()) text += fmt::format("; {}: {}", name, value);
    return text;
}

std::unique_ptr<Loader> make_loader(const Task& task, const Config& config, Split split, Device device,
                                    const Communicator* ranks) {
    std::shared_ptr<const Dataset> data = task.data(split);
    LoaderOptions options;
    if (ranks != nullptr) options.part = ranks->rank(), options.parts = ranks->size();
    options.batch_size = config.data.batch_size;
    options.num_workers = int(config.data.num_workers);
    options.prefetch = std::max(options.prefetch, 2 * options.num_workers);  // one in hand and one ahead for each
    options.seed = std::uint64_t(config.seed);
    options.device = device;
    options.shuffle = split == Split::train && config.data.shuffle;
    options.drop_last = split == Split::train && config.data.drop_last;
    options.mixup = split == Split::train ? config.data.mixup : 0.0;
    if (split == Split::test) options.batch_size = std::min(options.batch_size, data->size());
    const std::int64_t batches = Loader(data, options).batches_per_epoch();
    options.limit =
        (split == Split::train ? config.trainer.limit_train_batches : config.trainer.limit_val_batches).among(batches);
    return std::make_unique<Loader>(data, options);
}

std::string module_of(const std::string& parameter) {
    const std::size_t dot = parameter.rfind('.');
    return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

std::unique_ptr<Module> make_initial_model(const Task& task, const Config& config, std::uint32_t* checksum) {
    default_generator().set_state({std::uint64_t(config.seed), 0});
    std::unique_ptr<Module> model;
    {
        const DeferDraws one_by_one;  // whoever trains it moves its weights into memory of its own
        model = task.make_model();
    }
    if (!config.init_from.empty()) {
        try {
            load_weights(*model, config.init_from, &config.init_fresh);
            for (const Parameter* p : model->parameters()) {
                const Tensor read = settled(p->value);
                check(kernels_for(read.device()).all_finite(read.view()),
                      "{}: {} holds NaN or infinite values, from which nothing can be learned", config.init_from,
                      p->name);
                if (checksum != nullptr) *checksum = checksum_of(read, *checksum);
            }
        } catch (const IoError&) {
            throw;
        } catch (const Error& error) {
            fail<UsageError>("init_from={}", error.what());
        }
    }
    for (const std::string& pattern : config.trainer.freeze) model->freeze(pattern);
    const auto trained = [](const Parameter* parameter) { return parameter->value.requires_grad(); };
    check<UsageError>(config.trainer.freeze.empty() || std::ranges::any_of(model->parameters(), trained),
                      "trainer.freeze: nothing is left to train");
    override_precision(*model, config.trainer.precision_overrides);
    const std::string& recompute = config.trainer.recompute;
    if (recompute == "light") model->set_recompute(Recompute::light);
    if (recompute == "block" || recompute == "true")
        for (Module* block : model->checkpoint_blocks()) block->set_recompute(Recompute::block);
    default_generator().set_state({std::uint64_t(config.seed) ^ kDropoutStream, 0});
    return model;
}

void require_precisions(const TrainerConfig& trainer, Device device) {
    const auto require = [&](const char* key, const std::string& entry, const std::string& name,
                             const Precision& precision) {
        try {
            precision.require(device);
        } catch (const UsageError& error) {
            fail<UsageError>("trainer.{}.{} = {}: {}", key, entry, name, error.what());
        }
    };
    for (const auto& [pattern, name] : trainer.precision_overrides)
        require("precision_overrides", pattern, name, Precision::parse(name));
    for (const PrecisionChange& change : trainer.precision_schedule)
        require("precision_schedule", change.key(), change.precision, trainer.at_level(change.precision));
}

Setup::Setup(const Config& config) : Setup(make_task(config), config) {}

Setup::Setup(std::shared_ptr<const Task> trained, const Config& config)
    : ranks((set_rank_timeout(config.trainer.rank_timeout), &world())),
      loss([trained](Module& model, const Batch& batch) { return trained->loss(model, batch); }),
      task(std::move(trained)),
      precision(config.trainer.resolved_precision()),
      device(resolve_device(config.trainer.device)),
      why_on_cpu(invar::why_on_cpu(config.trainer.device)),
      clip(clip_spec(config.trainer)),
      scaling(config.scaler),
      accumulate(config.trainer.accumulate_grad_batches),
      sync_batchnorm(config.trainer.sync_batchnorm) {
    (void)parse_config(to_yaml(config), "options");  // what no key would allow is refused in C++ too
    check_same_settings(*ranks, config);
    check_same_device(*ranks, device, why_on_cpu);
    ranks->prepare(device);
    precision.require(device);
    require_precisions(config.trainer, device);
    set_threads(threads_of(config.trainer, *ranks));
    kernels_for(device).configure({config.trainer.benchmark, config.trainer.deterministic});
    (void)MetricSums(task->metrics());  // refuses what could not be measured, before anything is trained
    train_data = make_loader(*task, config, Split::train, device, ranks);
    test_data = make_loader(*task, config, Split::test, device, ranks);
    check_same_data(*ranks, train_data->dataset(), "train");
    check_same_data(*ranks, test_data->dataset(), "validate");
    const Shape trained_on = train_data->dataset().info().input, judged_on = test_data->dataset().info().input;
    check<UsageError>(trained_on == judged_on, "the samples to train on are {}, and those to validate on are {}",
                      trained_on.str(), judged_on.str());
    check<UsageError>(train_data->batches_per_epoch() > 0, "trainer.limit_train_batches leaves no batch to train on");
    std::uint32_t read = 0;
    model = make_initial_model(*task, config, ranks->alone() ? nullptr : &read);
    if (!config.init_from.empty())
        ranks->check_same(fmt::format("init_from={}: the weights", config.init_from),
                          fmt::format("checksum {:08x}", read));
    model->buffers_to(device);
    sharding_ = sharding_of(config.trainer, *ranks);
    StoreOptions store = StoreOptions::for_precision(precision, sharding_);
    store.device = device;
    optimizer = std::make_unique<Optimizer>(parameter_groups(*model, config.optimizer), store);
    scaler = std::make_unique<GradScaler>(scaler_options(scaling, precision), device);
    if (config.trainer.ema_decay > 0)
        average = std::make_unique<WeightAverage>(
            *model, *optimizer, AverageSpec{.decay = config.trainer.ema_decay, .warmup = config.trainer.ema_warmup});
    steps_per_epoch = (train_data->batches_per_epoch() + accumulate - 1) / accumulate;
    count_steps(config);
}

bool Setup::continue_at(const Config& config, std::int64_t step, std::int64_t epoch, std::int64_t batch) {
    check<UsageError>(batch == 0 || batch < train_data->batches_per_epoch(),
                      "it stands behind batch {} of an epoch, and an epoch has {} now; go on from a checkpoint at the "
                      "end of an epoch",
                      batch, train_data->batches_per_epoch());
    const std::int64_t begun = step - epoch * steps_per_epoch - (batch + accumulate - 1) / accumulate;
    if (begun == first_epoch_at) return false;
    first_epoch_at = begun;
    count_steps(config);
    return true;
}

void Setup::count_steps(const Config& config) {
    total_steps = first_epoch_at + steps_per_epoch * config.trainer.max_epochs;
    if (config.trainer.max_steps >= 0) total_steps = std::min(total_steps, config.trainer.max_steps);
    const PrecisionPlan plan(config.trainer, steps_per_epoch, first_epoch_at);
    changes.clear();
    for (const std::int64_t change : plan.changes())
        if (change > 0 && change < total_steps && plan.at(change) != plan.at(change - 1))
            changes.push_back({change, plan.at(change)});
    Schedule schedule = make_schedule(config.scheduler, config.optimizer.lr, total_steps);
    optimizer->set_schedule(schedule.spec, std::move(schedule.curve));
}

void Setup::set_precision(const Precision& wanted) {
    wanted.require(device);
    precision = wanted;
    const StoreOptions options = StoreOptions::for_precision(wanted, sharding_);
    if (options.weights == optimizer->store().dtype()) {
        optimizer->store().set_shadow(options.shadow);
    } else {  // from weights of 16 bits alone to FP32 ones: they move to a new store
        optimizer->store().keep_all_masters();
        auto moved = std::make_unique<Optimizer>(optimizer->parameter_groups(), options);
        moved->set_schedule(optimizer->schedule(), optimizer->curve());
        moved->set_state(optimizer->state());
        moved->load_state_dict(optimizer->state_dict());
        optimizer = std::move(moved);
    }
    scaler->configure(scaler_options(scaling, wanted));
}

std::vector<Batch> Setup::next_group() {
    std::vector<Batch> group;
    while (std::int64_t(group.size()) < accumulate) {
        std::optional<Batch> batch = train_data->next();
        if (!batch) break;
        group.push_back(std::move(*batch));
    }
    return group;
}

void Setup::override_precision(const PrecisionOverrides& wanted) {
    invar::override_precision(*model, wanted);
    optimizer->store().keep_all_masters();
}

}  // namespace invar
