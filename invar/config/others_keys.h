// Keys of other tools that have no counterpart of the same name here, and what to use instead.
#pragma once

#include <string_view>

namespace invar {

// Whether a key is this one, or stands somewhere below it: "logger.wandb.offline" is below "logger.wandb".
bool is_below(std::string_view key, std::string_view top);

// What to use instead of such a key, in whatever section it stands; "" for a key that nobody has thought of.
std::string_view advice_on(std::string_view key);

}  // namespace invar
