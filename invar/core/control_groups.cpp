#include "invar/core/control_groups.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace invar {

namespace fs = std::filesystem;

std::vector<fs::path> control_groups(std::string_view controller, const fs::path& root) {
    std::vector<fs::path> folders;
    std::ifstream groups(root / "proc/self/cgroup");  // one line for each hierarchy: id:controllers:/path
    for (std::string line; std::getline(groups, line);) {
        const std::size_t first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string wanted = fmt::format(",{},", controller);
        if (!controllers.empty() && fmt::format(",{},", controllers).find(wanted) == std::string::npos) continue;
        const fs::path mount = root / "sys/fs/cgroup" / controllers;
        for (fs::path group = line.substr(second + 1);; group = group.parent_path()) {
            folders.push_back(mount / group.relative_path());
            if (!group.has_relative_path()) break;
        }
    }
    return folders;
}

}  // namespace invar
