// A profiled step in the trace event format, which chrome://tracing and Perfetto open: a row for each part of the step,
// and on it its operations, those that ran inside others below them.
#pragma once

#include <string>

#include "invar/diagnose/profile.h"

namespace invar {

std::string chrome_trace(const Profile& profile, std::string_view title);

}  // namespace invar
