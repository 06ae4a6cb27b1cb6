// The steps of a preflight: what a rank finds out by itself, and what all of them find out together.
#pragma once

#include <filesystem>

#include "invar/diagnose/preflight.h"

namespace invar {

struct OwnFindings {
    RankFacts facts;
    std::vector<Problem> problems;
};
// Without a word to the others; what fails is a problem of this rank.
OwnFindings look_around(const Config& config, int rank, int size);

// Offsets of all wall clocks to that of the first rank, by the quickest of some round trips; `error` gets its length.
std::vector<double> clock_offsets(Communicator& ranks, const std::function<double()>& clock, double& error);
// Sums and pieces handed round, each held against what it must be, for arrays of a few sizes. Wrong ones are problems.
std::vector<ExchangeSpeed> try_exchange(Communicator& ranks, Device device, std::vector<Problem>& problems);

// The folder itself, or the nearest one above it that is there: it will be made in that.
std::filesystem::path nearest_folder(const std::filesystem::path& wanted);
// "4.2 GiB"
std::string bytes_text(std::int64_t bytes);

}  // namespace invar
