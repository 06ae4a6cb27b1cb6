#include "invar/io/json_fields.h"

#include "invar/core/error.h"
#include "invar/io/safetensors_header.h"  // Quoted

namespace invar {

namespace {

using Json = nlohmann::json;

// As it stands in the file, but for characters that a terminal would act on.
std::string shown(const Json& value) {
    if (value.is_string()) return Quoted{value.get_ref<const std::string&>()}.str();
    return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80);
}

}  // namespace

const Json* find_field(const Json& object, const std::string& key) {
    const auto found = object.find(key);  // end() of what is no object
    return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json& field(const Json& object, const std::string& key, std::string_view source) {
    const Json* const value = find_field(object, key);
    check<IoError>(value != nullptr, "{}: \"{}\" is missing", source, key);
    return *value;
}

void require_field(bool good, const Json& object, const std::string& key, std::string_view source,
                   std::string_view why) {
    if (good) return;
    const Json* const value = find_field(object, key);
    fail<IoError>("{}: {} = {}: {}", source, key, value != nullptr ? shown(*value) : "null", why);
}

std::string text_field(const Json& object, const std::string& key, std::string_view source,
                       const std::optional<std::string>& otherwise) {
    if (otherwise && find_field(object, key) == nullptr) return *otherwise;
    const Json& value = field(object, key, source);
    require_field(value.is_string(), object, key, source, "is not a text");
    return value.get<std::string>();
}

bool flag_field(const Json& object, const std::string& key, bool otherwise, std::string_view source) {
    const Json* const value = find_field(object, key);
    if (value == nullptr) return otherwise;
    require_field(value->is_boolean(), object, key, source, "is neither true nor false");
    return value->get<bool>();
}

const Json& list_field(const Json& object, const std::string& key, std::string_view source) {
    const Json& value = field(object, key, source);
    require_field(value.is_array(), object, key, source, "is not a list");
    return value;
}

}  // namespace invar
