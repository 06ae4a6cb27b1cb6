// The page of `invar plan --html`: its tables, and plots of speed, memory and traffic from 1 to 1024 ranks. One file
// that needs nothing else.
#pragma once

#include <string>
#include <string_view>

#include "invar/plan/plan.h"

namespace invar {

std::string plan_page(const Plan& plan, std::string_view model);

}  // namespace invar
