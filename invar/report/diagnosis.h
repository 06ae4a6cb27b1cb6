// A diagnosis as rows for tables, as one JSON object, and as an HTML page with heat maps of exponents.
#pragma once

#include <string>
#include <vector>

#include "invar/diagnose/diagnose.h"

namespace invar {

// A module in one direction, as text.
struct PassageRow {
    std::string module, direction, largest, smallest, overflow, subnormal, vanish, head_room, off;
    bool overflows = false, vanishes = false;  // so that it is a concern
};
// Forward in the order the modules run, then backward in the order gradients reach them. Modules whose values all stay
// in FP32 have no shares.
std::vector<PassageRow> passage_rows(const Diagnosis& diagnosis);

// What stands under them: that gradients are shown unscaled, where the loss is scaled in training; else "".
std::string rows_note(const Diagnosis& diagnosis);

// Sentences: the loss scales that serve, or why none does.
std::string scale_sentence(const Diagnosis& diagnosis);
// What the candidate's own loss scale went through; "" where nothing overflowed.
std::string overflow_sentence(const Diagnosis& diagnosis);

// Where there is neither a finding nor a concern.
std::string healthy_sentence(const Diagnosis& diagnosis);

std::string json_diagnosis(const Diagnosis& diagnosis);
std::string html_diagnosis(const Diagnosis& diagnosis, const std::string& title);

}  // namespace invar
