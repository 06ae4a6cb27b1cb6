// preflight: before ranks train together, is everything there on every one of them, and do they understand each other?
// All of them ask at the same time, and all get the same answer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invar/config/config.h"
#include "invar/diagnose/check.h"
#include "invar/dist/communicator.h"

namespace invar {

// What a rank has, as far as it could find out; 0 and "" where it could not.
struct RankFacts {
    std::string host, device, version, library;
    std::string train_data, test_data;  // as the data sets describe themselves
    std::int64_t train_samples = 0, test_samples = 0;
    std::int64_t memory_needed = 0, memory_there = 0;  // bytes, of the device, for this rank and for all that share it
    std::int64_t disk_needed = 0, disk_there = 0;      // bytes, for one checkpoint, and where runs are written
    std::string memory_of;                             // which memory: ranks with the same one share it
    double clock_offset = 0;                           // seconds that its wall clock is ahead of the first rank's
};

struct Problem {
    int rank;
    Mark mark;         // warn or fail
    std::string what;  // "data"
    std::string text;
};

// How fast an array of so many bytes is summed up, each rank getting a piece, and how fast pieces are handed round: the
// bytes that a rank sends, and receives, in a second.
struct ExchangeSpeed {
    std::int64_t bytes = 0;
    double reduce_scatter = 0, all_gather = 0;
};

struct Preflight {
    std::vector<RankFacts> ranks;
    std::vector<ExchangeSpeed> speeds;
    double clock_error = 0;  // seconds by which offsets may be wrong
    std::vector<Problem> problems;
    Mark mark() const;
    const Problem* first_failure() const;
};

struct PreflightOptions {
    std::optional<Config> config;  // of this rank; none where it could not be had, for this reason:
    std::string why_no_config = {};
    std::function<double()> wall_clock = {};  // seconds since 1970; the system's
    std::function<void(std::string_view what)> progress = {};
};

// Throws a RankError that tells the hosts where a rank is lost meanwhile.
Preflight preflight(Communicator& ranks, const PreflightOptions& options);

}  // namespace invar
