#include "invar/diagnose/profile.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "invar/core/cpu_use.h"
#include "invar/core/error.h"
#include "invar/kernels/devices.h"
#include "invar/tasks/registry.h"
#include "invar/train/step.h"

namespace invar {

namespace {

using RowKey = std::tuple<StepPart, std::string, std::string, std::string>;

double median(std::vector<double> values) {
    std::ranges::sort(values);
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

struct ProfiledStep {
    std::vector<TimedOp> ops;
    double seconds = 0;
    double own() const {
        double sum = 0;
        for (const TimedOp& op : ops) sum += op.own;
        return sum;
    }
};

// Batches of one size: an epoch's last ones may be fewer, and would be another step.
class Groups {
  public:
    explicit Groups(Setup& setup) : setup_(setup) { setup_.train_data->start_epoch(0); }
    std::vector<Batch> next() {
        std::vector<Batch> group = setup_.next_group();
        if (whole_samples_of(group) < samples_ || group.empty()) {
            setup_.train_data->start_epoch(++epoch_);
            group = setup_.next_group();
        }
        samples_ = whole_samples_of(group);
        return group;
    }
    std::int64_t samples() const { return samples_; }

  private:
    Setup& setup_;
    std::int64_t epoch_ = 0, samples_ = 0;
};

ProfileRow row_of(const TimedOp& op, const Card& rates) {
    ProfileRow row;
    row.part = op.part, row.module = op.module, row.op = op.op, row.dtype = op.dtype_name();
    row.calls = 1, row.seconds = op.own, row.flops = op.flops, row.bytes = op.bytes;
    const double rate = rates.product_rate(op.dtype, op.tf32);
    if (op.flops > 0 && rate > 0) row.compute = op.flops / rate;
    row.memory = op.bytes / rates.copy;
    row.floor = std::max(row.compute, row.memory);
    return row;
}

// The same operations in each step, or nearly: where a step has none of a row it has 0 of it.
std::vector<ProfileRow> rows_of(const std::vector<ProfiledStep>& steps, const Card& rates) {
    std::map<RowKey, std::vector<ProfileRow>> all;
    for (std::size_t i = 0; i < steps.size(); ++i)
        for (const TimedOp& op : steps[i].ops) {
            const ProfileRow one = row_of(op, rates);
            std::vector<ProfileRow>& of_steps = all[{one.part, one.module, one.op, one.dtype}];
            of_steps.resize(steps.size());
            of_steps[i].add(one);
        }
    std::vector<ProfileRow> rows;
    for (const auto& [key, of_steps] : all) {
        ProfileRow row;
        std::tie(row.part, row.module, row.op, row.dtype) = key;
        for (double ProfileRow::*figure :
             {&ProfileRow::calls, &ProfileRow::seconds, &ProfileRow::flops, &ProfileRow::bytes, &ProfileRow::compute,
              &ProfileRow::memory, &ProfileRow::floor}) {
            std::vector<double> values;
            for (const ProfileRow& of_step : of_steps) values.push_back(of_step.*figure);
            row.*figure = median(values);
        }
        rows.push_back(row);
    }
    return rows;
}

// What products may be in: the run's precision and those of single modules. FP32 is measured in any case.
std::vector<Precision> precisions_of(const TrainerConfig& trainer) {
    std::vector<Precision> all{trainer.resolved_precision()};
    for (const auto& [pattern, name] : trainer.precision_overrides) all.push_back(Precision::parse(name));
    std::vector<Precision> different;
    for (const Precision& precision : all)
        if (std::ranges::find(different, precision) == different.end()) different.push_back(precision);
    return different;
}

// Before the steps and behind them, whichever was faster: others may be on the machine.
Card faster_of(const Card& a, const Card& b) {
    Card best = a;
    for (double Card::*rate : {&Card::fp32, &Card::tf32, &Card::fp16, &Card::bf16, &Card::copy})
        best.*rate = std::max(a.*rate, b.*rate);
    return best;
}

void sort_by_time(std::vector<ProfileRow>& rows) {
    std::ranges::stable_sort(rows, [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
}

}  // namespace

void ProfileRow::add(const ProfileRow& other) {
    calls += other.calls, seconds += other.seconds, flops += other.flops, bytes += other.bytes;
    compute += other.compute, memory += other.memory, floor += other.floor;
}

ProfileBy parse_profile_by(std::string_view text) {
    if (text == "op") return ProfileBy::op;
    if (text == "module") return ProfileBy::module;
    if (text == "dtype") return ProfileBy::dtype;
    check<UsageError>(text == "all", "--by {}: there are all, op, module and dtype", text);
    return ProfileBy::all;
}

std::vector<ProfileRow> grouped(const std::vector<ProfileRow>& rows, ProfileBy by) {
    std::map<RowKey, ProfileRow> groups;
    for (const ProfileRow& row : rows) {
        ProfileRow named;
        if (by == ProfileBy::all) named = row;
        if (by == ProfileBy::op) named.op = row.op, named.part = row.part;
        if (by == ProfileBy::module) named.module = row.module;
        if (by == ProfileBy::dtype) named.dtype = row.dtype;
        const auto [group, fresh] = groups.try_emplace({named.part, named.module, named.op, named.dtype});
        if (fresh) {
            group->second.part = named.part, group->second.module = named.module;
            group->second.op = named.op, group->second.dtype = named.dtype;
        }
        group->second.add(row);
    }
    std::vector<ProfileRow> result;
    for (const auto& [key, group] : groups) result.push_back(group);
    sort_by_time(result);
    return result;
}

double Profile::operations() const {
    double sum = 0;
    for (const ProfileRow& row : rows) sum += row.seconds;
    return sum;
}

Profile run_profile(const ProfileOptions& options, const std::function<void(double)>& progress) {
    check<UsageError>(options.steps >= 1, "--steps {}: must be at least 1", options.steps);
    check<UsageError>(options.warmup >= 0, "--warmup {}: must be at least 0", options.warmup);
    check<UsageError>(world().alone(), "a step is profiled by one process; start it without ranks");
    const Config& config = options.base;
    const Device device = resolve_device(config.trainer.device);
    config.trainer.resolved_precision().require(device);
    require_precisions(config.trainer, device);
    const std::shared_ptr<const Task> task = options.task ? options.task : make_task(config);

    Profile profile;
    set_threads(threads_of(config.trainer, world()));
    const std::vector<Precision> precisions = precisions_of(config.trainer);
    Card before, behind;
    measure_rates(before, device, precisions);
    Setup setup(task, config);  // says again what it wants of the device
    setup.model->train();
    Groups groups(setup);
    Kernels& kernels = kernels_for(device);
    const auto step = step_function(setup);
    auto tell = [&, done = 0]() mutable {
        if (progress) progress(double(++done) / double(options.warmup + 2 * options.steps));
    };
    for (int i = 0; i < options.warmup; ++i) step(groups.next()), tell();

    // In turn, so that what else happens on the machine meets both alike.
    const CpuUse used = cpu_use();
    std::vector<double> unwatched, watched, between;
    std::vector<ProfiledStep> steps;
    OpRecorder recorder(device);
    for (int i = 0; i < options.steps; ++i) {
        kernels.synchronize();
        const auto start = std::chrono::steady_clock::now();
        step(groups.next());
        kernels.synchronize();
        unwatched.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        tell();
        recorder.begin_step();
        {
            const WatchScope watch(&recorder);
            std::vector<Batch> group;
            {
                const TimedPart timed(StepPart::loading, "load_batch", Dtype::f32, [] { return 0.0; });
                group = groups.next();
            }
            step(group);
        }
        const double seconds = recorder.end_step();
        steps.push_back({recorder.take_ops(), seconds});
        watched.push_back(seconds);
        between.push_back(seconds - steps.back().own());
        tell();
    }
    profile.waited_share =
        device.is_cpu() ? (cpu_use() - used).waited_share() : std::numeric_limits<double>::quiet_NaN();

    measure_rates(behind, device, precisions);
    profile.rates = faster_of(before, behind);
    profile.rows = rows_of(steps, profile.rates);
    sort_by_time(profile.rows);
    profile.between = std::max(0.0, median(between));
    profile.step = median(unwatched);
    profile.watched = median(watched);
    std::ranges::sort(steps, {}, &ProfiledStep::seconds);
    ProfiledStep& shown = steps[steps.size() / 2];
    profile.traced = shown.seconds;
    profile.trace = std::move(shown.ops);
    std::ranges::stable_sort(profile.trace, [](const TimedOp& a, const TimedOp& b) {
        return a.start != b.start ? a.start < b.start : a.seconds > b.seconds;
    });
    profile.precision = setup.precision.name();
    profile.device = device.str();
    profile.threads = threads();
    profile.samples = groups.samples();
    return profile;
}

}  // namespace invar
