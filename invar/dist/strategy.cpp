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
    Spelling{"ddp", Strategy::ddp},
    Spelling{"zero1", Strategy::zero1},
    Spelling{"zero2", Strategy::zero2},
    Spelling{"auto", Strategy::ddp},
    Spelling{"ddp_spawn", Strategy::ddp},
    Spelling{"ddp_find_unused_parameters_true", Strategy::ddp},
    Spelling{"deepspeed_stage_1", Strategy::zero1},
    Spelling{"deepspeed", Strategy::zero2},
    Spelling{"deepspeed_stage_2", Strategy::zero2},
    Spelling{"zero_1", Strategy::zero1},
    Spelling{"zero_2", Strategy::zero2},
    Spelling{"zero_stage_1", Strategy::zero1},
    Spelling{"zero_stage_2", Strategy::zero2},
};

}  // namespace

std::string name_of(Strategy strategy) {
    for (const Spelling& each : kSpellings)
        if (each.strategy == strategy) return std::string(each.name);
    return "";
}

// "DDP" and "ZeRO-2" are as good as ours.
Strategy parse_strategy(std::string_view name) {
    std::string plain(name);
    for (char& c : plain) c = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    for (const Spelling& each : kSpellings)
        if (each.name == plain) return each.strategy;
    const bool shares_weights = plain.starts_with("fsdp") || plain.starts_with("deepspeed_stage_3") || plain == "zero3";
    const bool offloads = plain.ends_with("_offload");
    fail<UsageError>(
        "strategy '{}' is not {}; there are ddp (everything on every rank), zero1 (masters and moments shared "
        "out) and zero2 (gradients too); auto is ddp",
        name,
        offloads         ? "there: nothing is moved to the host's memory"
        : shares_weights ? "there: the weights that operations read are on every rank, and not shared out"
                         : "known");
}

}  // namespace invar
