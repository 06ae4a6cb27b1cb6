// A training step that is counted and not run: the memory, the kernels and the arithmetic of the real step of the real
// task, on a device that computes nothing (kernels/dry).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "invar/config/config.h"
#include "invar/core/memory.h"
#include "invar/kernels/dry/work.h"
#include "invar/plan/counted_ranks.h"
#include "invar/tasks/task.h"

namespace invar {

struct CountedStep {
    MemoryStats step;          // the peaks of one step by itself, as `invar bench` counts them
    MemoryStats evaluation;    // while a batch is evaluated
    std::int64_t held = 0;     // the most that was taken from the device: first steps, recording and evaluation
    bool recorded = false;     // whether steps are replayed as a whole
    dry::WorkList work;        // of one step
    double flops = 0;          // of its products, without those that are recomputed
    std::int64_t samples = 0;  // of one step
    std::int64_t batches = 1;  // that make up the step
    std::int64_t parameters = 0;
    // Of the flat arrays: each element of weights in the forward pass, whether there are FP32 masters beside them.
    std::int64_t elements = 0;
    int weight_bytes = 4;
    std::int64_t wide = 0;  // elements that operations in FP32 read: where masters are shared out, all ranks have them
    bool masters = false;
    std::vector<std::int64_t> buckets;  // elements of gradients that travel together, in the order of a first step
    bool overlap = true;                // they travel beside backward
};

// Where steps are counted for: what the device is, how much memory it has for us (0: as much as it takes), what
// convolutions were seen to cost there, where somebody has looked, and how many train together. Of these one is
// counted.
struct CountFor {
    Device device{};
    std::int64_t capacity = 0;
    const dry::ConvCosts* costs = nullptr;
    Ranks ranks{};
};

// A step of the configuration on batches of `batch` samples, of a rank; nothing where the memory does not do. Data that
// have to be opened must be there; images and tokens are made up.
std::optional<CountedStep> count_step(const std::shared_ptr<const Task>& task, const Config& config, std::int64_t batch,
                                      const CountFor& on);

}  // namespace invar
