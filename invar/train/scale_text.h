// Loss scales as people read them: powers of two as such where their digits would be too many.
#pragma once

#include <string>

namespace invar {

std::string scale_text(double scale);  // "65536", "2^24", "2^-10", "1.2e+07"

}  // namespace invar
