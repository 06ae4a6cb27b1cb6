#include "invar/hub/json_object.h"

#include <cmath>
#include <set>
#include <vector>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/io/json_fields.h"
#include "invar/io/safetensors_header.h"  // Quoted

namespace invar {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kDeepest = 32;

// Watches a text while it is parsed, for what a tree of it would no longer tell.
class Watch {
  public:
    explicit Watch(const std::string& source) : source_(source) {}
    bool operator()(int, Json::parse_event_t event, const Json& parsed) {
        using Event = Json::parse_event_t;
        if (event == Event::object_start || event == Event::array_start) {
            keys_.emplace_back();
            check<IoError>(keys_.size() <= kDeepest, "{}: is nested deeper than {} levels", source_, kDeepest);
        }
        if (event == Event::object_end || event == Event::array_end) keys_.pop_back();
        if (event == Event::key) {
            const auto& key = parsed.get_ref<const std::string&>();
            check<IoError>(keys_.back().insert(key).second, "{}: the key {} is there twice", source_, Quoted{key});
        }
        return true;
    }

  private:
    const std::string& source_;
    std::vector<std::set<std::string>> keys_;  // of each level that is open
};

}  // namespace

JsonObject JsonObject::parse(std::string_view text, std::string source) {
    Json json;
    try {
        json = Json::parse(text.begin(), text.end(), Watch(source));
    } catch (const Json::parse_error& error) {
        fail<IoError>("{}: is not JSON; it stops making sense at byte {} of {}", source, error.byte, text.size());
    } catch (const Json::exception&) {
        fail<IoError>("{}: is not JSON that can be read: it holds a number that is too large", source);
    }
    check<IoError>(json.is_object(), "{}: is not a JSON object", source);
    return {std::move(json), std::move(source)};
}

JsonObject JsonObject::read(const std::filesystem::path& file, std::uint64_t most_bytes) {
    return parse(read_file(file, most_bytes), file.string());
}

bool JsonObject::has(const std::string& key) const {
    return find_field(json_, key) != nullptr;
}

void JsonObject::refuse(const std::string& what) const {
    fail<IoError>("{}: {}", source_, what);
}

void JsonObject::require(bool good, const std::string& key, std::string_view why) const {
    require_field(good, json_, key, source_, why);
}

JsonObject JsonObject::object(const std::string& key) const {
    const Json* const value = find_field(json_, key);
    require(value != nullptr && value->is_object(), key, "is not an object");
    return {*value, source_};
}

std::int64_t JsonObject::count(const std::string& key) const {
    const Json& value = field(json_, key, source_);
    const bool whole = value.is_number_integer() &&
                       (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t(INT64_MAX));
    require(whole && value.get<std::int64_t>() >= 1, key, "is not a whole number of at least 1");
    return value.get<std::int64_t>();
}

std::int64_t JsonObject::count(const std::string& key, std::int64_t otherwise) const {
    return has(key) ? count(key) : otherwise;
}

double JsonObject::number(const std::string& key, std::optional<double> otherwise) const {
    if (otherwise && !has(key)) return *otherwise;
    const Json& value = field(json_, key, source_);
    require(value.is_number() && std::isfinite(value.get<double>()), key, "is not a number");
    return value.get<double>();
}

bool JsonObject::flag(const std::string& key, bool otherwise) const {
    return flag_field(json_, key, otherwise, source_);
}

std::string JsonObject::text(const std::string& key, const std::optional<std::string>& otherwise) const {
    return text_field(json_, key, source_, otherwise);
}

}  // namespace invar
