#include "invar/train/bench.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <memory>

#include "invar/core/cpu_use.h"
#include "invar/core/error.h"
#include "invar/data/chains.h"
#include "invar/data/registry.h"
#include "invar/data/synthetic.h"
#include "invar/kernels/devices.h"
#include "invar/kernels/flops.h"
#include "invar/ops/creation.h"
#include "invar/tasks/registry.h"
#include "invar/train/low_precision.h"
#include "invar/train/recorded_step.h"
#include "invar/train/step.h"

namespace invar {

namespace {

constexpr const char* kBaseline = "32-true";

// Steps of one precision before it is another's turn. More than one, since the first finds its data out of the caches,
// and few, so that what else happens on the machine meets all precisions alike.
constexpr int kTurn = 4;

// How long a stretch of steps on a GPU takes at least: waiting for its end must not count.
constexpr double kStretchMs = 5.0;
constexpr int kLongest = 200;

// Everything of a run but its data set: a group of random batches, trained on again and again.
struct Bench {
    Bench(std::shared_ptr<const Task> task, const Config& config)
        : setup(std::move(task), config), step(setup.device, step_function(setup), {config.trainer.cuda_graph}) {
        setup.model->train();
        setup.train_data->start_epoch(0);
        while (std::int64_t(group.size()) < setup.accumulate) group.push_back(*setup.train_data->next());
        samples = whole_samples_of(group);
    }
    // Of one step, as a mean over `count` of them.
    double step_ms(int count = 1) {
        Kernels& kernels = kernels_for(setup.device);
        const Communicator::Times before = setup.ranks->times();
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < count; ++i) step(group);
        kernels.synchronize();
        const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
        const Communicator::Times after = setup.ranks->times();
        exchange.busy += 1e3 * (after.busy - before.busy) / count;
        exchange.waited += 1e3 * (after.waited - before.waited) / count;
        return ms / count;
    }
    void warm_up(int steps) {
        constexpr int kEnough = 8;  // for a step to be recorded, where it can be
        for (int i = 0; i < steps || (i < kEnough && !step.settled(group)); ++i) step_ms();
        if (setup.device.is_cpu()) return;
        stretch = std::clamp(int(kStretchMs / step_ms(kLongest / 10)), 1, kLongest);
        setup.ranks->broadcast(&stretch, sizeof stretch);  // all ranks make the same steps
    }
    Setup setup;
    RecordedStep step;
    std::vector<Batch> group;
    std::int64_t samples = 0;
    int stretch = 1;
    Communicator::Times exchange;  // ms, summed over what step_ms has measured
};

// Of all ranks on the machine of this one: they do not disturb each other's measurement, they are it.
double waited_share(Communicator& ranks, const CpuUse& mine) {
    struct OfRank {
        std::array<char, 256> host{};
        CpuUse use;
    };
    OfRank own{{}, mine};
    ::gethostname(own.host.data(), own.host.size() - 1);
    CpuUse together = mine;
    const std::vector<OfRank> all = ranks.gathered(own);
    for (std::size_t r = 0; r < all.size(); ++r) {
        if (int(r) == ranks.rank() || all[r].host != own.host) continue;
        together.ran += all[r].use.ran;
        together.waited += all[r].use.waited;
        together.others = std::max(0.0, together.others - all[r].use.ran);
    }
    return together.waited_share();
}

double sum_over(Communicator& ranks, double value) {
    ranks.sum(std::span(&value, 1));
    return value;
}

MemoryStats largest(Communicator& ranks, const MemoryStats& mine) {
    const std::vector<MemoryStats> all = ranks.gathered(mine);
    return *std::ranges::max_element(all, {}, &MemoryStats::peak_total);
}

Config config_for(const BenchOptions& options, const std::string& precision) {
    Config config = in_precision(options.base, precision);
    config.trainer.limit_train_batches = BatchCount::all();
    config.trainer.limit_val_batches = BatchCount::all();
    config.data.num_workers = 0;
    return options.task ? config : with_made_up_data(std::move(config));
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

}  // namespace

Config with_made_up_data(Config config) {
    const std::optional<DataInfo> info = describe_data(config.data);
    if (!info || info->more_than_labels || (info->input.rank() != 1 && info->input.rank() != 3)) return config;
    const std::int64_t samples = config.data.batch_size * config.trainer.accumulate_grad_batches;
    if (info->input.rank() == 1) {
        auto& tokens = config.data.choose("chains").as<ChainsOptions>();
        tokens = {.size = samples, .length = info->input[0], .vocabulary = info->outputs};
        return config;
    }
    auto& images = config.data.choose("synthetic").as<SyntheticOptions>();
    images.height = info->input[0], images.width = info->input[1], images.channels = info->input[2];
    images.classes = info->outputs;
    images.size = std::max({samples, std::int64_t(10), info->outputs});
    return config;
}

double measure_product(Device device, const Precision& precision) {
    using Clock = std::chrono::steady_clock;
    const std::int64_t side = device.is_cpu() ? 1024 : 8192;
    const Dtype dtype = precision.compute_dtype();
    const Tf32Scope tf32(precision.kind == Precision::Kind::tf32);
    Generator generator(1);
    const auto random = [&] { return ops::uniform({1, side, side}, -1, 1, dtype, device, generator); };
    const Tensor a = random(), b = random(), out = Tensor::empty_like(a);
    Kernels& kernels = kernels_for(device);
    const auto seconds = [&](int times) {
        const auto start = Clock::now();
        for (int i = 0; i < times; ++i) kernels.matmul(a.view(), b.view(), {}, out.view(), false);
        kernels.synchronize();
        return std::chrono::duration<double>(Clock::now() - start).count() / times;
    };
    seconds(1);
    const int times = std::clamp(int(0.05 / seconds(1)), 1, 50);
    return 2.0 * double(side) * double(side) * double(side) / std::min({seconds(times), seconds(times)});
}

std::vector<BenchResult> run_bench(const BenchOptions& options, const std::function<void(double)>& progress) {
    check<UsageError>(options.steps >= 1, "--steps {}: must be at least 1", options.steps);
    check<UsageError>(options.warmup >= 0, "--warmup {}: must be at least 0", options.warmup);
    check<UsageError>(!options.precisions.empty(), "--precisions is empty; name at least one, as in 32-true,16-mixed");
    set_rank_timeout(options.base.trainer.rank_timeout);
    Communicator& ranks = world();
    ranks.check_same(
        "what they were asked to measure",
        fmt::format("--precisions {} --recompute {} --steps {} --warmup {}", fmt::join(options.precisions, ","),
                    fmt::join(options.recompute, ","), options.steps, options.warmup));
    const Device device = resolve_device(options.base.trainer.device);
    require_precisions(options.base.trainer, device);
    std::vector<std::string> levels = options.recompute;
    for (const std::string& level : levels)
        check<UsageError>(level == "none" || level == "light" || level == "block",
                          "--recompute {}: there are none, light and block", level);
    if (levels.empty()) levels = {options.base.trainer.recompute};
    std::vector<Config> configs;
    std::vector<BenchResult> results;
    for (const std::string& precision : options.precisions) {
        const Precision wanted = Precision::parse(precision);
        const std::string name = wanted.name();
        check<UsageError>(wanted == Precision::parse(name),
                          "--precisions {}: names a level too; use {} with "
                          "trainer.amp_level={}",
                          precision, name, name_of(wanted.level));
        const std::string other = changed_by_level(options.base.trainer, name);
        check<UsageError>(other.empty(), "--precisions {}: {}; leave out one of the two", precision, other);
        for (const std::string& level : levels) {
            const auto same = [&](const BenchResult& r) { return r.precision == name && r.recompute == level; };
            if (std::any_of(results.begin(), results.end(), same)) continue;
            configs.push_back(config_for(options, name));
            configs.back().trainer.recompute = level;
            configs.back().trainer.resolved_precision().require(device);
            results.emplace_back().precision = name;
            results.back().recompute = level;
        }
    }
    const std::size_t n = configs.size();
    const std::shared_ptr<const Task> task = options.task ? options.task : make_task(configs[0]);
    auto tell = [&, done = 0](int steps) mutable {
        done += steps;
        const int all = int(n) * (1 + options.warmup + options.steps);
        if (progress) progress(double(done) / double(all));
    };

    // What the device can do at best, whichever way it may choose; a Setup says again what it wants.
    set_threads(threads_of(options.base.trainer, ranks));
    kernels_for(device).configure({.benchmark = true, .deterministic = false});
    for (std::size_t i = 0; i < n; ++i) {
        ranks.barrier();  // at the same time, as their steps
        results[i].product_flops_per_s =
            sum_over(ranks, measure_product(device, configs[i].trainer.resolved_precision()));
    }

    // Memory first, one precision at a time, so that no other's weights are counted with it.
    for (std::size_t i = 0; i < n; ++i) {
        Bench bench(task, configs[i]);
        release_cached_memory(bench.setup.device);
        reset_peak_memory(bench.setup.device);
        const FlopCount flops;
        bench.step_ms();
        results[i].flops_per_step = sum_over(ranks, flops.count());
        results[i].memory = largest(ranks, memory_stats(bench.setup.device));
        results[i].ranks = ranks.size();
        results[i].memory_used = kernels_for(bench.setup.device).memory_used();
        results[i].device = bench.setup.device.str();
        results[i].threads = threads();
        results[i].samples_per_step = bench.samples;
        tell(1);
    }

    const CpuUse used = cpu_use();
    std::vector<std::unique_ptr<Bench>> benches;
    for (const Config& config : configs) benches.push_back(std::make_unique<Bench>(task, config));
    std::vector<std::vector<double>> times(n);
    for (std::size_t i = 0; i < n; ++i) {
        benches[i]->warm_up(options.warmup);
        benches[i]->exchange = {};
        tell(options.warmup);
    }
    for (int done = 0; done < options.steps; done += kTurn) {
        const int turn = std::min(kTurn, options.steps - done);
        for (std::size_t i = 0; i < n; ++i) {
            for (int step = 0; step < turn; ++step) times[i].push_back(benches[i]->step_ms(benches[i]->stretch));
            tell(turn);
        }
    }

    const double waited =
        device.is_cpu() ? waited_share(ranks, cpu_use() - used) : std::numeric_limits<double>::quiet_NaN();
    double baseline = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        BenchResult& r = results[i];
        r.waited_share = waited;
        const double measured = double(options.steps) * ranks.size();
        r.exchange_ms = sum_over(ranks, benches[i]->exchange.busy) / measured;
        r.exposed_ms = std::min(sum_over(ranks, benches[i]->exchange.waited) / measured, r.exchange_ms);
        ranks.broadcast(times[i].data(), times[i].size() * sizeof(double));  // each has its own clock
        r.ms_per_step = median(times[i]);
        r.fastest_ms = *std::min_element(times[i].begin(), times[i].end());
        r.graph_parts = benches[i]->step.parts();
        r.samples_per_s = 1e3 * double(r.samples_per_step) / r.ms_per_step;
        r.flops_per_s = 1e3 * r.flops_per_step / r.ms_per_step;
        const SpeedUnit unit = task->speed_unit();
        r.rate = {unit.name, r.samples_per_s * unit.per_sample};
        if (r.precision == kBaseline && baseline == 0) baseline = r.samples_per_s;
    }
    for (BenchResult& r : results) r.ratio = baseline > 0 ? r.samples_per_s / baseline : 0.0;
    return results;
}

}  // namespace invar
