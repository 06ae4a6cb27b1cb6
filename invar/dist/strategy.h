// What ranks that train together hold, each for itself or for all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace invar {

enum class Strategy : std::uint8_t {
    ddp,    // every rank holds and updates everything
    zero1,  // a rank holds the moments of its share, and updates that
    zero2,  // and of the gradients its share alone
};
std::string name_of(Strategy strategy);
// Also as Lightning and DeepSpeed spell them; "auto" is ddp. Throws a UsageError that lists them.
Strategy parse_strategy(std::string_view name);

}  // namespace invar
