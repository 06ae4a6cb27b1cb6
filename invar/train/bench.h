// Measures a training step under several precisions side by side: time, throughput, arithmetic, peak memory by purpose.
// Ranks that train together measure theirs: the step is that of all of them, and all get the same result.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "invar/config/config.h"
#include "invar/core/memory.h"
#include "invar/train/speed.h"

namespace invar {

struct BenchOptions {
    std::shared_ptr<const Task> task =
        {};       // with its data; none: that of the configuration, on images made up where it has any
    Config base;  // model, batch, optimizer, clipping, threads
    std::vector<std::string> precisions = {"32-true", "16-mixed", "bf16-mixed"};
    std::vector<std::string> recompute = {};  // levels to measure for each precision; none: that of the configuration
    int steps = 20;  // timed, of each precision; on a GPU each stands for a stretch of steps without a wait between
    int warmup = 3;  // before them, not timed
};

struct BenchResult {
    std::string precision;  // canonical name
    std::string recompute;
    std::string device;
    int threads = 0;
    std::int64_t samples_per_step = 0;
    double ms_per_step = 0.0;  // the median
    double fastest_ms = 0.0;
    double samples_per_s = 0.0;
    Rate rate;                     // the same in the task's unit
    double ratio = 0.0;            // of the throughput to the first of 32-true; 0 where that was not measured
    std::int64_t graph_parts = 0;  // kernels and copies of the recorded step that was replayed; 0: it was not recorded
    double flops_per_step = 0.0;   // of products and convolutions, without those that are recomputed
    double flops_per_s = 0.0;
    double product_flops_per_s = 0.0;  // one large product in the format this precision multiplies in, same run
    MemoryStats memory;                // of several ranks, the one that held the most
    int ranks = 1;
    double exchange_ms = 0.0;      // of a step, in which something travelled between the ranks; the mean over them
    double exposed_ms = 0.0;       // of these, in which they waited for it: what backward and the like did not hide
    double waited_share = 0.0;     // see CpuUse; over all that was timed, NaN where nothing is known or the GPU did it
    std::int64_t memory_used = 0;  // of the whole card, as its driver counts after the step; 0: not known
};

// The same run on images or tokens that are made up, as many as a step takes, where its data can be told without
// opening them; else on its own.
Config with_made_up_data(Config config);

// The FLOP/s of a large square product in this precision's format: what a step's arithmetic can be held against.
double measure_product(Device device, const Precision& precision);

// `progress` is told the share that is done, now and then.
std::vector<BenchResult> run_bench(const BenchOptions& options, const std::function<void(double)>& progress = {});

}  // namespace invar
