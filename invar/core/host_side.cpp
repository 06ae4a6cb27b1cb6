#include "invar/core/host_side.h"

#include <algorithm>

namespace invar {

namespace {

thread_local HostSide* recorded = nullptr;

}  // namespace

HostSide::Scope::Scope(HostSide& side) : previous_(std::exchange(recorded, &side)) {}
HostSide::Scope::~Scope() {
    recorded = previous_;
}

HostSide* HostSide::current() {
    return recorded;
}

bool HostSide::unchanged() const {
    return std::ranges::all_of(checks_, [](const auto& check) { return check(); });
}

void HostSide::replay() const {
    for (const auto& action : actions_) action();
}

void HostSide::roll_back() const {
    for (const auto& action : undos_) action();
}

}  // namespace invar
