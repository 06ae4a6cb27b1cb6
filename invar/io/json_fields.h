// Fields of JSON that somebody else has written: the value, or an IoError of one line that names the file and the key.
// null counts as missing, as it does to those who write such files.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace invar {

// nullptr where it is missing, and where `object` is none.
const nlohmann::json* find_field(const nlohmann::json& object, const std::string& key);

// The following throw where it is missing and nothing is said to stand for it.
const nlohmann::json& field(const nlohmann::json& object, const std::string& key, std::string_view source);
std::string text_field(const nlohmann::json& object, const std::string& key, std::string_view source,
                       const std::optional<std::string>& otherwise = {});
bool flag_field(const nlohmann::json& object, const std::string& key, bool otherwise, std::string_view source);
const nlohmann::json& list_field(const nlohmann::json& object, const std::string& key, std::string_view source);

// "config.json: hidden_act = gelu: WHY", where it is not `good`.
void require_field(bool good, const nlohmann::json& object, const std::string& key, std::string_view source,
                   std::string_view why);

}  // namespace invar
