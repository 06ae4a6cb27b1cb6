#include "invar/nn/mismatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace invar {

namespace {

constexpr std::size_t kShown = 10;  // of each kind

std::string listed(const std::vector<std::string>& names) {
    const auto end = names.begin() + std::ptrdiff_t(std::min(names.size(), kShown));
    const std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
    return names.size() > kShown ? fmt::format("{} and {} more", text, names.size() - kShown) : text;
}

}  // namespace

void WeightMismatch::add_misshapen(const std::string& name, const Shape& is, const Shape& should_be) {
    misshapen.push_back(fmt::format("{} is {} and should be {}", name, is.str(), should_be.str()));
}

std::string WeightMismatch::str() const {
    std::vector<std::string> parts;
    if (!missing.empty()) parts.push_back("missing " + listed(missing));
    if (!unexpected.empty()) parts.push_back("unexpected " + listed(unexpected));
    if (!misshapen.empty()) parts.push_back(listed(misshapen));
    if (!unusable.empty()) parts.push_back(listed(unusable));
    return fmt::format("these weights are of another model: {}", fmt::join(parts, "; "));
}

}  // namespace invar
