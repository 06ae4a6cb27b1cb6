// Follows a NaN or an infinity through every op, forward and backward: one that is washed away lets a broken step pass
// for a good one.
#pragma once

#include <string>
#include <vector>

#include "tests/ops/cases.h"

namespace invar::testing {

// Puts NaN, +Inf and -Inf into elements of each input of a case and of the gradient that comes in, one at a time, and
// names results and gradients that hide it, a few of them. What must show it is found on the CPU in f64:
// - NaN shows in whatever changes with that element;
// - an infinity shows, or gives what ever larger numbers lead to.
// A refusal, an Error, hides nothing; what else may is in exceptions().
std::vector<std::string> hidden_by(const OpCase& op_case, Dtype dtype, Device device);

// Dropout is a product with 0 or 1 / (1 - p), so that NaN stays where it is dropped too: how many of `count` that go in
// come out, forward and then backward.
std::pair<std::int64_t, std::int64_t> nan_through_dropout(std::int64_t count, double p, Dtype dtype, Device device);

// Cases whose gradient, or result, may be finite all the same.
struct Exception {
    enum Kind {
        gate,  // at NaN it has no derivative: the gradient is passed on, so it must not be 0
        one_winner,
        result_shows,  // ... and to the NaN alone
        order,         // it takes another place, and all others keep their values; the table of values has where
        power,         // of -Inf, where that of a large negative number is no number
    };
    const char* cases;  // how their names begin
    Kind kind;
    const char* reason;
};
const std::vector<Exception>& exceptions();

}  // namespace invar::testing
