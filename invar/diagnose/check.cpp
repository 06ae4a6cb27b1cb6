#include "invar/diagnose/check.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/core/printable.h"
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

// Makes the checks of a task one by one and tells of each.
class Checker {
  public:
    Checker(TaskCheck& all, const CheckOptions& options) : all_(all), options_(options) {}
    // Whatever the parts of a task throw is what the check has found.
    template <class Result, class Make>
    void operator()(Result& result, std::string_view name, const Make& make) const {
        if (options_.progress) options_.progress(name);
        try {
            result = make();
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::exception& error) {
            result.mark = Mark::fail;
            result.text = error.what();
        }
        result.text = printable(result.text);  // one line, whatever somebody's exception says
        if (options_.made) options_.made(name, all_);
    }

  private:
    TaskCheck& all_;
    const CheckOptions& options_;
};

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
                                 {"run", &run},
                                 {"memory", &memory},
                                 {"seed", &seed},
                                 {"resume", &resume}});
    return checks;
}

const Checked& TaskCheck::find(std::string_view name) const {
    for (const auto& [own, each] : all())
        if (own == name) return *each;
    fail<UsageError>("there is no check '{}'", name);
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
    for (const Split split : {Split::train, Split::test}) make_loader(*task, config, split, device);
    set_threads(int(config.trainer.threads));
    TaskCheck result;
    const Checker make_check(result, options);
    for (const Split split : {Split::train, Split::test}) {
        DataCheck& data = result.data.emplace_back();
        data.split = split;
        make_check(data, name_of(split),
                   [&] { return check_data(*task, split, options.samples, options.seconds / 8); });
    }
    make_check(result.shapes, "shapes", [&] { return check_shapes(*task, config, result.data); });
    // Nothing can be said of a model whose loss cannot be computed.
    const bool sound = result.shapes.mark != Mark::fail;
    Config quick = config;
    const auto make_if_sound = [&]<class Result>(Result& each, const char* name, const auto& make) {
        make_check(each, name, [&] {
            if (sound) return make();
            Result not_made;
            not_made.mark = Mark::warn;
            not_made.text = "not checked: the shapes, or the loss of a few samples, are not in order";
            return not_made;
        });
    };
    make_if_sound(result.gradient, "gradient", [&] { return check_gradient(*task, config, options.seconds / 6); });
    make_if_sound(result.split, "split", [&] { return check_split(*task, config); });
    make_if_sound(result.learning, "learning", [&] { return check_learning(*task, config, options.seconds / 6); });
    make_if_sound(result.run, "run", [&] { return check_run(task, config); });
    make_if_sound(result.memory, "memory", [&] { return check_memory(task, quick); });
    make_if_sound(result.seed, "seed", [&] { return check_seed(task, quick); });
    make_if_sound(result.resume, "resume", [&] { return check_resume(task, quick); });
    return result;
}

}  // namespace invar
