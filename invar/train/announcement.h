// What a run says about its precision before it starts: made from the policy that its operations ask, the store that
// holds its weights and the scaler it has, so that nothing is announced that is not done.
#pragma once

#include <string>
#include <vector>

#include "invar/train/setup.h"

namespace invar {

// "FP16 mixed precision (level O1)", then what is computed in what, how weights are kept, and the loss scale. FP32 has
// nothing to add to its title, unless single modules have precisions of their own.
std::vector<std::string> announce_precision(const Setup& setup);

// That validations measure averaged weights, where an average is kept and there is a validation; "" elsewhere.
std::string announce_average(const Setup& setup);

}  // namespace invar
