// Work that may end the process, tried in a child first: a CPU that promises instructions it does not have, or a
// library that trips over one, is then something to be told.
#pragma once

#include <functional>
#include <string>

namespace invar::cli {

// How `work` ended a child process that has one thread; "" where it did not, and where there can be no child. What it
// throws is no end. Not for work on a GPU, which no child has.
std::string try_aside(const std::function<void()>& work);

}  // namespace invar::cli
