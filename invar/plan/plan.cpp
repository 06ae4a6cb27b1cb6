#include "invar/plan/plan.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/plan/measured_convolutions.h"
#include "invar/tasks/registry.h"
#include "invar/train/bench.h"
#include "invar/train/low_precision.h"

namespace invar {

namespace {

Device device_of(const Card& card) {
    return card.is_cpu() ? Device::cpu() : Device::cuda();
}

// The largest batch that fits while one more does not, by doubling and halving. Now and then a batch does not fit where
// a somewhat larger one does, since other blocks of memory can be used again: so it looks a little further.
std::int64_t largest_that(const std::function<bool(std::int64_t)>& fits, std::int64_t start) {
    std::int64_t good = 0, bad = 0, next = std::min(start, kMostBatch);
    const auto close_in = [&] {
        while (good == 0 || bad == 0 || bad - good > 1) {
            if (fits(next)) {
                good = next;
                if (good >= kMostBatch) return;
            } else {
                bad = next;
                if (bad == 1) return;
            }
            next = bad == 0    ? std::min(good * 2, kMostBatch)
                   : good == 0 ? std::max<std::int64_t>(1, bad / 2)
                               : good + (bad - good) / 2;
        }
    };
    close_in();
    constexpr std::int64_t kSteps = 16, kLooks = 6;  // sixteenths of what was found
    for (std::int64_t look = 1; good > 0 && good < kMostBatch && look <= kLooks; ++look) {
        const std::int64_t further = good + look * std::max<std::int64_t>(1, good / kSteps);
        if (further <= bad || !fits(further)) continue;
        good = further, bad = 0, next = std::min(good * 2, kMostBatch), look = 0;
        close_in();
    }
    return good;
}

// One precision: the step of one who trains alone, and of one of many.
class Planner {
  public:
    Planner(std::shared_ptr<const Task> task, const PlanOptions& options, const std::string& precision)
        : task_(std::move(task)),
          options_(options),
          precision_(precision),
          config_(in_precision(options.base, precision)),
          costs_(costs_here()),
          step_(*count_step(task_, config_, config_.data.batch_size, {device_of(options.card), 0, &costs_})),
          alone_(time_of_rank(step_, {}, options.card).total()) {}

    const CountedStep& step() const { return step_; }

    PlanRow row(int ranks, Strategy strategy) const {
        PlanRow row;
        row.precision = precision_;
        row.ranks = {ranks, strategy, options_.gradient_bytes};
        const CountedStep of_rank = *count(config_.data.batch_size, row.ranks, 0);
        row.memory = {of_rank.step.peak, of_rank.step.peak_total, of_rank.evaluation.peak_total, of_rank.held};
        std::optional<CountedStep> within;  // what training makes of less
        if (row.memory.held > options_.card.usable() && options_.card.usable() > 0)
            within = count(config_.data.batch_size, row.ranks, options_.card.usable());
        row.fits = row.memory.held <= options_.card.usable() || within;
        row.eager = within && of_rank.recorded && !within->recorded;
        row.wire = wire_bytes(of_rank, row.ranks);
        row.time = time_of_rank(within ? *within : of_rank, row.ranks, options_.card);
        const double each = double(step_.samples) * task_->speed_unit().per_sample;
        row.per_second = ranks * each / row.time.total();
        row.scaling = alone_ / row.time.total();
        return row;
    }
    std::int64_t largest_batch(const Ranks& ranks) const {
        return largest_that([&](std::int64_t batch) { return fits(batch, ranks); }, config_.data.batch_size);
    }

  private:
    // What is known of the GPU at hand, and cannot be known of others.
    dry::ConvCosts costs_here() const {
        if (!options_.card.measured || options_.card.is_cpu()) return {};
        const std::optional<CountedStep> step =
            count_step(task_, config_, config_.data.batch_size, {device_of(options_.card)});
        return measure_convolutions(step->work, config_, device_of(options_.card));
    }
    std::optional<CountedStep> count(std::int64_t batch, const Ranks& ranks, std::int64_t capacity) const {
        return count_step(task_, config_, batch, {device_of(options_.card), capacity, &costs_, ranks});
    }
    bool fits(std::int64_t batch, const Ranks& ranks) const {
        const std::int64_t capacity = options_.card.usable();
        return capacity > 0 && count(batch, ranks, capacity).has_value();
    }

    std::shared_ptr<const Task> task_;
    const PlanOptions& options_;
    std::string precision_;
    Config config_;
    dry::ConvCosts costs_;
    CountedStep step_;
    double alone_;
};

std::vector<std::string> names_of(const PlanOptions& options) {
    check<UsageError>(!options.precisions.empty(),
                      "--precisions is empty; name at least one, as in 32-true,bf16-mixed");
    check<UsageError>(!options.strategies.empty(), "--strategies is empty; name at least one of ddp, zero1, zero2");
    check<UsageError>(options.ranks >= 1 && options.ranks <= kMostRanks, "--ranks {}: must be 1 to {}", options.ranks,
                      kMostRanks);
    std::vector<std::string> names;
    for (const std::string& text : options.precisions) {
        const std::string name = Precision::parse(text).name();
        Precision::parse(name).require(device_of(options.card));
        const std::string other = changed_by_level(options.base.trainer, name);
        check<UsageError>(other.empty(), "--precisions {}: {}; leave out one of the two", text, other);
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
}

}  // namespace

bool Plan::any_fits() const {
    return std::any_of(rows.begin(), rows.end(), [](const PlanRow& row) { return row.fits; });
}

std::string how_it_fits(const PlanRow& row) {
    return !row.fits ? "no" : row.eager ? "eagerly" : "yes";
}

Plan make_plan(const PlanOptions& options, const std::function<void(double)>& progress) {
    const std::vector<std::string> precisions = names_of(options);
    PlanOptions planned = options;
    if (!options.task) planned.base = with_made_up_data(options.base);
    const std::shared_ptr<const Task> task = options.task ? options.task : make_task(planned.base);
    Plan plan;
    plan.card = options.card;
    plan.unit = task->speed_unit();
    plan.batch = options.base.data.batch_size;
    plan.ranks = options.ranks;
    const double all = double(precisions.size() * options.strategies.size());
    for (const std::string& precision : precisions) {
        const Planner planner(task, planned, precision);
        plan.samples_per_step = planner.step().samples;
        plan.parameters = planner.step().parameters;
        for (const Strategy strategy : options.strategies) {
            PlanRow row = planner.row(options.ranks, strategy);
            if (options.largest_batch) row.largest_batch = planner.largest_batch(row.ranks);
            plan.rows.push_back(row);
            for (int ranks = 1; ranks <= kMostRanks; ranks *= 2) plan.scaling.push_back(planner.row(ranks, strategy));
            if (progress) progress(double(plan.rows.size()) / all);
        }
    }
    return plan;
}

}  // namespace invar
