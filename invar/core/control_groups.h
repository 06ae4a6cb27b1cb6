// The control groups of this process (of a container, a job, a service): where the system says what it may take.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace invar {

// The folders of its group and of those that it is in, the innermost first, of each hierarchy that has the controller
// ("cpu", "memory"). `root`: where /proc and /sys are found.
std::vector<std::filesystem::path> control_groups(std::string_view controller,
                                                  const std::filesystem::path& root = "/");

}  // namespace invar
