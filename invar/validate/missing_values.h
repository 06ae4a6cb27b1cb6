// What was not logged and is written as NaN, told from what was computed and is NaN: pandas fills its tables so.
#pragma once

#include <string>
#include <vector>

#include "invar/validate/run_log.h"

namespace invar {

// Takes the NaN that stand for "not logged" out of these series of one table, which all have a value in every row, and
// notes them in log.passed_over. They are those in rows of another kind (a row of validation has no training loss), and
// those that come as regularly as values that are logged now and then. A NaN was computed where it is the only gap, or
// gaps differ, or it lasts longer at the end than ever before, or where another figure of the same data has a value.
void drop_missing(RunLog& log, const std::vector<std::string>& names);

// Puts those back at whose steps the baseline has a value of that name: what was logged there was logged here too.
void restore_computed(RunLog& log, const RunLog& baseline);

}  // namespace invar
