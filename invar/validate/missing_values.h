// What was not logged and is written as NaN, told from what was computed and is NaN: pandas fills its tables so.
#pragma once

#include <vector>

#include "invar/validate/run_log.h"

namespace invar {

// Takes the NaN that stand for "not logged" out of the columns of one table, which all have a value in every row. They
// are those in rows of another kind (a row of validation has no training loss), and those that come as regularly as
// values that are logged now and then. A NaN in a column that is otherwise full, or that lasts longer at the end than
// ever before, is one that was computed.
void drop_missing(const std::vector<Series*>& columns);

}  // namespace invar
