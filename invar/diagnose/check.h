// check_task: is a task sound? Its data, shapes, gradient, loss, memory, and whether runs of it repeat, in less than a
// minute and before anything is trained. Knows nothing of the task but `Task`.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "invar/config/config.h"
#include "invar/core/memory.h"
#include "invar/tasks/task.h"

namespace invar {

enum class Mark : std::uint8_t { pass, warn, fail };
std::string_view name_of(Mark mark);  // "PASS"

// What a check came to, in one line. A check that could not be made is a warning that says why.
struct Checked {
    Mark mark = Mark::pass;
    std::string text;
};

// The tensors of one name, over all samples that were read.
struct TensorSummary {
    struct Label {
        std::int64_t samples = 0;
        std::int64_t first = 0;  // sample that has it
    };
    std::string name;
    Dtype dtype = Dtype::f32;
    Shape shape;                              // of one sample
    bool varies = false;                      // between batches
    double min = 0.0, max = 0.0, mean = 0.0;  // of its finite values
    std::int64_t not_finite = 0;              // values
    std::int64_t first_not_finite = -1;       // sample
    // How often each number occurs, where a sample has a single whole number and they are few enough to be classes.
    std::map<std::int64_t, Label> labels;
};

struct DataCheck : Checked {
    Split split = Split::train;
    std::int64_t samples = 0, read = 0;
    std::vector<TensorSummary> tensors;
};

// Between the splits, and between labels, model and loss.
struct ShapeCheck : Checked {
    Shape output;              // of the model on a few samples
    std::int64_t classes = 0;  // that the loss tells apart; 0 where it is no such loss
    double loss = 0.0;         // of those samples
};

// The gradient of all parameters together along random directions, against differences of the loss in f64.
struct GradientCheck : Checked {
    int directions = 0;
    double difference = 0.0;             // the largest, as a share of the parameters' own parts
    std::string parameter;               // the one that is wrong most
    double backward = 0.0, slope = 0.0;  // along its direction: by backward, and by differences
};

// The gradient of a batch against that of its parts, each by its share of the samples.
struct SplitCheck : Checked {
    std::vector<std::int64_t> parts;  // of the split that differs most
    double difference = 0.0;          // relative, in the norm
    double factor = 1.0;              // what the parts' gradient is of the whole one, as far as it is one number
};

struct LearningCheck : Checked {
    std::int64_t samples = 0;
    double first = 0.0, last = 0.0;  // losses
    int steps = 0;
};

struct RepeatCheck : Checked {
    std::int64_t steps = 0;
    std::string differs;  // "initial weights (fc1.weight)"; "" where nothing does
};

struct MemoryCheck : Checked {
    std::int64_t samples = 0;  // of a step
    MemoryStats memory;        // of its device, after it
    double seconds = 0.0;      // that it took
};

// A few steps of the run as configured, in FP32.
struct RunCheck : Checked {
    int steps = 0;
    std::string kind, module;  // of what is wrong: "evaluation", "fc1.dropout"
};

struct TaskCheck {
    std::vector<DataCheck> data;
    ShapeCheck shapes;
    GradientCheck gradient;
    SplitCheck split;
    LearningCheck learning;
    RunCheck run;
    MemoryCheck memory;
    RepeatCheck seed, resume;

    // All of them by name, in the order they are made.
    std::vector<std::pair<std::string, const Checked*>> all() const;
    const Checked& find(std::string_view name) const;
    Mark mark() const;  // the worst
};

struct CheckOptions {
    std::int64_t samples = 20000;                         // of each split that are read, at most
    double seconds = 60.0;                                // all of it should take, at most
    std::function<void(std::string_view)> progress = {};  // told the name of each check before it is made
    // And after, with all that was found until then.
    std::function<void(std::string_view, const TaskCheck&)> made = {};
};

TaskCheck check_task(std::shared_ptr<const Task> task, const Config& config, const CheckOptions& options = {});

}  // namespace invar
