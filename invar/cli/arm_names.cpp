#include "invar/cli/arm_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

using Parts = std::vector<std::string>;

Parts parts_of(const std::string& path) {
    Parts parts;
    for (const fs::path& part : fs::path(path).lexically_normal())
        if (!part.empty() && part != "/") parts.push_back(part.string());
    return parts;
}

// What two names begin with, without the number of the run that follows: "a" for a_seed0.csv and a_seed1.csv.
std::string common_start(const std::string& a, const std::string& b) {
    std::string text(a.begin(), std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first);
    const auto trim = [&](std::string_view any) { text.erase(text.find_last_not_of(any) + 1); };
    trim("0123456789");
    trim("_-.= ");
    if (text.ends_with("seed")) text.resize(text.size() - 4), trim("_-.= ");
    return text;
}

Parts common_parts(const std::vector<std::string>& paths) {
    Parts common = parts_of(paths.front());
    for (const std::string& path : paths) {
        const Parts other = parts_of(path);
        const auto [mine, theirs] = std::mismatch(common.begin(), common.end(), other.begin(), other.end());
        if (mine == common.end()) continue;
        *mine = theirs == other.end() ? "" : common_start(*mine, *theirs);
        common.erase(mine->empty() ? mine : mine + 1, common.end());
    }
    return common;
}

// While it is the same in all arms, and something is left in each.
template <class Get, class Drop>
void drop_shared(std::vector<Parts>& arms, Get part_of, Drop drop) {
    const auto shared = [&](const Parts& parts) { return parts.size() > 1 && part_of(parts) == part_of(arms[0]); };
    while (std::all_of(arms.begin(), arms.end(), shared))
        for (Parts& parts : arms) drop(parts);
}

}  // namespace

std::vector<std::string> names_by_paths(const std::vector<std::vector<std::string>>& arms) {
    std::vector<Parts> parts;
    for (const std::vector<std::string>& paths : arms) parts.push_back(common_parts(paths));
    drop_shared(
        parts, [](const Parts& p) { return p.front(); }, [](Parts& p) { p.erase(p.begin()); });
    drop_shared(
        parts, [](const Parts& p) { return p.back(); }, [](Parts& p) { p.pop_back(); });
    std::vector<std::string> plain, names;
    for (std::size_t i = 0; i < arms.size(); ++i) {
        plain.push_back(!parts[i].empty() ? fmt::format("{}", fmt::join(parts[i], "/"))
                                          : fmt::format("{} and {} more", arms[i].front(), arms[i].size() - 1));
        const auto same = std::count(plain.begin(), plain.end(), plain.back());
        names.push_back(same > 1 ? fmt::format("{} ({})", plain.back(), same) : plain.back());
    }
    return names;
}

}  // namespace invar::cli
