// A JSON object that somebody else has written, with the file it is from: its fields (io/json_fields.h), each with one
// line that names the file and the key where it is not what it should be.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace invar {

class JsonObject {
  public:
    // An object, without keys twice, nested no deeper than anyone's configuration is. Throws IoError.
    static JsonObject parse(std::string_view text, std::string source);
    static JsonObject read(const std::filesystem::path& file, std::uint64_t most_bytes);

    const nlohmann::json& json() const { return json_; }
    const std::string& source() const { return source_; }
    bool has(const std::string& key) const;  // and it is not null
    JsonObject object(const std::string& key) const;

    // Each throws IoError where the key has a value of another kind; null counts as missing.
    std::int64_t count(const std::string& key) const;  // a whole number from 1 on, which must be there
    std::int64_t count(const std::string& key, std::int64_t otherwise) const;
    double number(const std::string& key, std::optional<double> otherwise = {}) const;  // a finite one
    bool flag(const std::string& key, bool otherwise) const;
    std::string text(const std::string& key, const std::optional<std::string>& otherwise = {}) const;

    // "FILE: WHAT" as an IoError.
    [[noreturn]] void refuse(const std::string& what) const;
    // Refuses what the model lacks, by the key and its value: "config.json: hidden_act = gelu: WHY".
    void require(bool good, const std::string& key, std::string_view why) const;

  private:
    JsonObject(nlohmann::json json, std::string source) : json_(std::move(json)), source_(std::move(source)) {}
    nlohmann::json json_;
    std::string source_;
};

}  // namespace invar
