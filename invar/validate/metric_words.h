// The words a metric's name is made of, and which way is better by them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invar/validate/metric_names.h"

namespace invar {

using Words = std::vector<std::string>;

// In lower case: "val/Top1_Error" -> val top1 error, "valLoss" -> val loss, "mAP50-95(B)" -> map50 95 b.
Words metric_words(std::string_view name);
// Nothing where no word says it, or where they say both.
std::optional<Better> direction_by(const Words& words);

// Whether a list of words, each with a blank before and behind it, holds this one.
inline bool is_one_of(std::string_view word, std::string_view list) {
    for (std::size_t at = list.find(word, 1); !word.empty() && at != list.npos; at = list.find(word, at + 1))
        if (list[at - 1] == ' ' && list[at + word.size()] == ' ') return true;
    return false;
}

}  // namespace invar
