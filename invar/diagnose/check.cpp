#include "invar/diagnose/check.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/diagnose/check_parts.h"
#include "invar/kernels/devices.h"
#include "invar/kernels/kernels.h"
#include "invar/train/setup.h"

namespace invar {

namespace {

// The caller's random numbers go on where they were.
class KeepRandom {
  public:
    KeepRandom() : state_(default_generator().state()) {}
    ~KeepRandom() { default_generator().set_state(state_); }
    KeepRandom(const KeepRandom&) = delete;
    KeepRandom& operator=(const KeepRandom&) = delete;

  private:
    RngState state_;
};

// Whatever the parts of a task throw is what the check has found.
template <class Result, class Make>
void make_check(Result& result, const CheckOptions& options, const char* name, const Make& make) {
    if (options.progress) options.progress(name);
    try {
        result = make();
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        result.mark = Mark::fail;
        result.text = error.what();
    }
}

}  // namespace

std::string_view name_of(Mark mark) {
    constexpr std::string_view kNames[] = {"PASS", "WARN", "FAIL"};
    return kNames[static_cast<int>(mark)];
}

std::vector<std::int64_t> spread_samples(const Dataset& data, std::int64_t count) {
    const std::int64_t size = data.size();
    count = std::min(count, size);
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < count; ++i) samples.push_back(std::int64_t(double(i) * double(size) / double(count)));
    return samples;
}

std::vector<std::pair<std::string, const Checked*>> TaskCheck::all() const {
    std::vector<std::pair<std::string, const Checked*>> checks;
    for (const DataCheck& each : data) checks.emplace_back(name_of(each.split), &each);
    checks.insert(checks.end(), {{"shapes", &shapes},
                                 {"gradient", &gradient},
                                 {"split", &split},
                                 {"learning", &learning},
                                 {"memory", &memory},
                                 {"seed", &seed},
                                 {"resume", &resume}});
    return checks;
}

Mark TaskCheck::mark() const {
    Mark worst = Mark::pass;
    for (const auto& [name, each] : all()) worst = std::max(worst, each->mark);
    return worst;
}

TaskCheck check_task(std::shared_ptr<const Task> task, const Config& config, const CheckOptions& options) {
    const KeepRandom keep;
    // What cannot be had at all is trouble, and not what a check finds.
    const Device device = resolve_device(config.trainer.device);
    config.trainer.resolved_precision().require(device);
    require_precisions(config.trainer, device);
    for (const Split split : {Split::train, Split::test}) task->data(split);
    set_threads(int(config.trainer.threads));
    TaskCheck result;
    for (const Split split : {Split::train, Split::test}) {
        DataCheck& data = result.data.emplace_back();
        data.split = split;
        const auto make = [&] { return check_data(*task, split, options.samples, options.seconds / 8); };
        make_check(data, options, split == Split::train ? "train" : "test", make);
        data.split = split;
    }
    make_check(result.shapes, options, "shapes", [&] { return check_shapes(*task, config, result.data); });
    if (result.shapes.mark == Mark::fail) {
        // Nothing can be said of a model whose loss cannot be computed.
        const Checked not_made{Mark::warn, "not checked: the shapes, or the loss of a few samples, are not in order"};
        for (Checked* each : {static_cast<Checked*>(&result.gradient), static_cast<Checked*>(&result.split),
                              static_cast<Checked*>(&result.learning), static_cast<Checked*>(&result.memory),
                              static_cast<Checked*>(&result.seed), static_cast<Checked*>(&result.resume)})
            *each = not_made;
        return result;
    }
    make_check(result.gradient, options, "gradient",
               [&] { return check_gradient(*task, config, options.seconds / 6); });
    make_check(result.split, options, "split", [&] { return check_split(*task, config); });
    make_check(result.learning, options, "learning",
               [&] { return check_learning(*task, config, options.seconds / 6); });
    Config quick = config;
    make_check(result.memory, options, "memory", [&] { return check_memory(task, quick); });
    make_check(result.seed, options, "seed", [&] { return check_seed(task, quick); });
    make_check(result.resume, options, "resume", [&] { return check_resume(task, quick); });
    return result;
}

}  // namespace invar
