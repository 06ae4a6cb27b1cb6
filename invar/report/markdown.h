// The Markdown report of a comparison: results, a checklist decided by measurements, statistics, the verdict, the way
// back.
#pragma once

#include <string>

#include "invar/report/context.h"

namespace invar {

std::string markdown_report(const Comparison& comparison, const ReportContext& context);

}  // namespace invar
