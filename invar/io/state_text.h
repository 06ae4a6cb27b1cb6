// The state of a run as JSON text that loses nothing: JSON has no infinities or NaN, and a run's best loss starts as
// one. Such a number is written as {"$float": "inf"} and comes back as the number.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace invar {

std::string format_state(const nlohmann::json& state);
// Throws IoError; `source` names the file.
nlohmann::json parse_state(std::string_view text, std::string_view source);

}  // namespace invar
