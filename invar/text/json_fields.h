// Fields of a JSON object that somebody else has written: the value, or one line that names the file and the key.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "invar/core/error.h"
#include "invar/io/safetensors_header.h"  // Quoted

namespace invar {

inline constexpr std::size_t kMostSteps = 64;  // normalizers or pre-tokenizers in a row

inline const nlohmann::json& field(const nlohmann::json& object, const char* key, std::string_view source) {
    check<IoError>(object.is_object() && object.contains(key), "{}: \"{}\" is missing", source, key);
    return object.at(key);
}

inline std::string text_field(const nlohmann::json& object, const char* key, std::string_view source) {
    const nlohmann::json& value = field(object, key, source);
    check<IoError>(value.is_string(), "{}: \"{}\" is not a text", source, key);
    return value.get<std::string>();
}

inline bool flag_field(const nlohmann::json& object, const char* key, bool otherwise, std::string_view source) {
    if (!object.contains(key) || object.at(key).is_null()) return otherwise;
    check<IoError>(object.at(key).is_boolean(), "{}: \"{}\" is neither true nor false", source, key);
    return object.at(key).get<bool>();
}

inline const nlohmann::json& list_field(const nlohmann::json& object, const char* key, std::string_view source) {
    const nlohmann::json& value = field(object, key, source);
    check<IoError>(value.is_array(), "{}: \"{}\" is not a list", source, key);
    return value;
}

// The "type" of a component, `what` being "normalizer" or the like.
inline std::string type_of(const nlohmann::json& json, std::string_view what, std::string_view source) {
    check<IoError>(json.is_object() && json.contains("type") && json.at("type").is_string(),
                   "{}: a {} without a \"type\"", source, what);
    return json.at("type").get<std::string>();
}

}  // namespace invar
