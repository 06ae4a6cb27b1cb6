// One training step by operation: where its time goes, and how near each part of it is to what the device can do at
// best. Rates of a product and of a copy are measured on the device; an operation's floor is the longer of the two.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "invar/config/config.h"
#include "invar/diagnose/op_recorder.h"
#include "invar/plan/cards.h"
#include "invar/tasks/task.h"

namespace invar {

struct ProfileOptions {
    Config base;
    std::shared_ptr<const Task> task;  // nullptr: that of the configuration
    int steps = 5, warmup = 3;
};

// Operations that share a name, a module, a direction and a dtype. Medians over steps, of all calls of one step.
struct ProfileRow {
    StepPart part = StepPart::forward;
    std::string module, op, dtype;
    double calls = 0, seconds = 0, flops = 0, bytes = 0;
    double compute = 0, memory = 0;  // seconds that arithmetic and traffic take at the measured rates
    double floor = 0;                // of each call the longer of the two; 0: nothing is known of it
    bool by_compute() const { return compute > memory; }
    double over_floor() const { return floor > 0 && seconds > floor ? seconds - floor : 0; }
    void add(const ProfileRow& other);
};

enum class ProfileBy : std::uint8_t { all, op, module, dtype };
ProfileBy parse_profile_by(std::string_view text);  // throws a UsageError
// Added up by one of their names, the most time first; what they are not grouped by is "".
std::vector<ProfileRow> grouped(const std::vector<ProfileRow>& rows, ProfileBy by);

struct Profile {
    std::vector<ProfileRow> rows;  // the most time first
    double between = 0;            // of a step, what no operation accounts for
    double step = 0;               // seconds of a step that nobody watches, and waits for at its end alone
    double watched = 0;            // and of one that is watched, without the watcher's own work
    std::vector<TimedOp> trace;    // one step's, by when they began
    double traced = 0;             // its length
    Card rates;
    std::string precision, device;
    int threads = 0;
    std::int64_t samples = 0;  // of a step
    double waited_share = 0;   // of the time, what others had of the processor
    double operations() const;
    double total() const { return operations() + between; }
};

// Trains in memory alone: nothing is written.
Profile run_profile(const ProfileOptions& options, const std::function<void(double)>& progress = nullptr);

}  // namespace invar
