// `invar plan`: what a run would hold, send and take on so many ranks, for each precision and strategy, before anything
// runs.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "invar/plan/ranks.h"

namespace invar {

struct PlanOptions {
    std::shared_ptr<const Task> task = {};  // with its data; none: that of the configuration
    Config base;
    Card card;
    std::vector<std::string> precisions;
    std::vector<Strategy> strategies = {Strategy::ddp, Strategy::zero1, Strategy::zero2};
    int ranks = 1;
    int gradient_bytes = 4;     // of each gradient on the wire
    bool largest_batch = true;  // look for it, which takes some twenty counts each
};

// What a rank holds.
struct RankMemory {
    std::array<std::int64_t, kPurposes> peak{};  // by purpose, in a step
    std::int64_t total = 0;       // the peak of all; less than their sum, since they do not peak together
    std::int64_t evaluation = 0;  // the peak of all while a batch is evaluated
    std::int64_t held = 0;        // the most that is taken from the card
};

// One precision and strategy on so many ranks.
struct PlanRow {
    std::string precision;
    Ranks ranks;
    RankMemory memory;
    bool fits = false;
    bool eager = false;              // it does so without the recording of its step, for which there is no room
    std::int64_t largest_batch = 0;  // samples of a batch that fits while one more does not, kMostBatch where that fits
                                     // too; 0: none does, or nobody asked
    Wire wire;
    RankTime time;
    double per_second = 0;  // of all ranks, in the task's unit
    double scaling = 0;     // of that, over as many times what one rank does by itself
};

struct Plan {
    Card card;
    SpeedUnit unit;
    std::int64_t batch = 0, samples_per_step = 0, parameters = 0;  // of a rank
    int ranks = 1;
    std::vector<PlanRow> rows;     // at the number of ranks that was asked for
    std::vector<PlanRow> scaling;  // each of them from 1 to 1024 ranks, by powers of two; nothing is searched for these
    bool any_fits() const;
};

std::string how_it_fits(const PlanRow& row);  // "yes", "eagerly" or "no"

inline constexpr int kMostRanks = 1024;
inline constexpr std::int64_t kMostBatch = std::int64_t(1) << 20;  // nothing larger is looked for

// `progress` is told the share that is done, now and then.
Plan make_plan(const PlanOptions& options, const std::function<void(double)>& progress = {});

}  // namespace invar
