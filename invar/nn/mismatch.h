// Where weights do not fit a model: every name, by what is wrong with it, told in one line.
#pragma once

#include <string>
#include <vector>

#include "invar/core/shape.h"

namespace invar {

struct WeightMismatch {
    std::vector<std::string> missing;     // that the model has
    std::vector<std::string> unexpected;  // that it does not have
    std::vector<std::string> misshapen;   // "fc1.weight is [3] and should be [4]"
    std::vector<std::string> unusable;    // anything else: "fc1.weight is of i8"

    void add_misshapen(const std::string& name, const Shape& is, const Shape& should_be);
    bool empty() const { return missing.empty() && unexpected.empty() && misshapen.empty() && unusable.empty(); }
    // "these weights are of another model: missing a, b and 12 more; unexpected c".
    std::string str() const;
};

}  // namespace invar
