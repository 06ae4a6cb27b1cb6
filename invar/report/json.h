// The same report for programs: one JSON object. What is not known, and what is not a number, is null.
#pragma once

#include <string>

#include "invar/report/context.h"

namespace invar {

std::string json_report(const Comparison& comparison, const ReportContext& context);

}  // namespace invar
