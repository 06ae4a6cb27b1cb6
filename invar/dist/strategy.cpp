#include "invar/dist/strategy.h"

#include <array>

#include "invar/core/error.h"

namespace invar {

namespace {

struct Spelling {
    std::string_view name;
    Strategy strategy;
};
constexpr std::array kSpellings{
    Spelling{"ddp", Strategy::ddp},           Spelling{"zero1", Strategy::zero1},
    Spelling{"zero2", Strategy::zero2},       Spelling{"auto", Strategy::ddp},
    Spelling{"ddp_spawn", Strategy::ddp},     Spelling{"deepspeed_stage_1", Strategy::zero1},
    Spelling{"deepspeed", Strategy::zero2},   Spelling{"deepspeed_stage_2", Strategy::zero2},
    Spelling{"zero_1", Strategy::zero1},      Spelling{"zero_2", Strategy::zero2},
    Spelling{"zero_stage_1", Strategy::zero1}, Spelling{"zero_stage_2", Strategy::zero2},
};

}  // namespace

std::string name_of(Strategy strategy) {
    for (const Spelling& each : kSpellings)
        if (each.strategy == strategy) return std::string(each.name);
    return "";
}

Strategy parse_strategy(std::string_view name) {
    for (const Spelling& each : kSpellings)
        if (each.name == name) return each.strategy;
    fail<UsageError>(
        "strategy '{}' is not known; there are ddp (everything on every rank), zero1 (moments shared out) and zero2 "
        "(gradients too); auto is ddp",
        name);
}

}  // namespace invar
