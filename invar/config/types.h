// The kinds of values that a configuration has beside numbers and texts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace invar {

// So many batches, or, as Lightning has it, a share of all of them: 50 is fifty batches, 0.5 is half, 1.0 is all.
struct BatchCount {
    bool is_share = true;
    double share = 1.0;
    std::int64_t count = 0;

    static BatchCount all() { return {}; }
    static BatchCount of(std::int64_t count) { return {false, 0.0, count}; }
    // Out of `batches`; a share above zero is at least one of them.
    std::int64_t among(std::int64_t batches) const;
    bool operator==(const BatchCount&) const = default;
};

// Module-name pattern and canonical precision name, in the order given; a later match wins.
using PrecisionOverrides = std::vector<std::pair<std::string, std::string>>;

// From a step on, or from the first step of an epoch: the canonical name of a precision.
struct PrecisionChange {
    bool is_epoch = false;
    std::int64_t at = 0;
    std::string precision;
    std::string key() const { return std::to_string(at) + (is_epoch ? "e" : ""); }
    bool operator==(const PrecisionChange&) const = default;
};
using PrecisionSchedule = std::vector<PrecisionChange>;

}  // namespace invar
