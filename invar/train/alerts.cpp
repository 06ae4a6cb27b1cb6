#include "invar/train/alerts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace invar {

namespace {

std::string key_of(const std::string& kind, const std::string& where) {
    return where.empty() ? kind : kind + " " + where;
}

}  // namespace

bool Alerts::raise(const std::string& kind, const std::string& where) {
    Said& said = said_[key_of(kind, where)];
    said.calm = 0;
    if (said.silent) return false;
    said.silent = true;
    ++said.times;
    return true;
}

void Alerts::clear(const std::string& kind, const std::string& where) {
    if (said_.empty()) return;
    const auto found = said_.find(key_of(kind, where));
    if (found == said_.end() || !found->second.silent) return;
    Said& said = found->second;
    if (++said.calm >= std::int64_t(calm_) << std::min(said.times - 1, 20)) said.silent = false;
}

nlohmann::json Alerts::state() const {
    nlohmann::json state = nlohmann::json::object();
    for (const auto& [key, said] : said_) state[key] = {said.times, said.calm, said.silent};
    return state;
}

void Alerts::restore(const nlohmann::json& state) {
    said_.clear();
    for (const auto& [key, said] : state.items()) said_[key] = {said.at(0), said.at(1), said.at(2)};
}

}  // namespace invar
