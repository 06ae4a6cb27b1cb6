// Metrics as JSON lines: numbers with all the digits it takes to get the same number back, in as few as that needs.
// NaN and the infinities, which JSON lacks, are the texts "nan", "inf" and "-inf".
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "invar/io/file.h"

namespace invar {

std::string format_number(double value);
std::string format_number(float value);

// One JSON object, its keys in the order of the calls.
class JsonLine {
  public:
    JsonLine& add(std::string_view key, double value) { return add_text(key, format_number(value)); }
    JsonLine& add(std::string_view key, float value) { return add_text(key, format_number(value)); }
    template <std::integral T>
    JsonLine& add(std::string_view key, T value) {
        return add_text(key, std::to_string(value));
    }
    JsonLine& add(std::string_view key, bool value) { return add_text(key, value ? "true" : "false"); }
    JsonLine& add(std::string_view key, std::string_view value);
    JsonLine& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }
    JsonLine& add(std::string_view key, const JsonLine& value) { return add_text(key, value.text()); }
    std::string text() const { return "{" + body_ + "}"; }

  private:
    JsonLine& add_text(std::string_view key, std::string_view json);
    std::string body_;
};

// A file of such lines. Opening one whose last line was torn by a crash removes that line.
class JsonlFile {
  public:
    explicit JsonlFile(const std::filesystem::path& path);
    void write(const JsonLine& line) { file_.line(line.text()); }
    // For resuming: remember size() in the checkpoint, go back to it later.
    std::uint64_t size() const { return file_.size(); }
    void truncate(std::uint64_t bytes) { file_.truncate(bytes); }
    void sync() { file_.sync(); }
    const std::string& problem() const { return file_.problem(); }
    AppendFile& file() { return file_; }

  private:
    AppendFile file_;
};

// The object of one line; discarded (is_object() is false) where the line is something else.
nlohmann::json parse_object(std::string_view line);
// Every line of the file; a torn last one is left out, any other that is not a JSON object is an IoError.
std::vector<nlohmann::json> read_jsonl(const std::filesystem::path& path);
// A number of such a line, "nan", "inf" and "-inf" included.
double number_of(const nlohmann::json& value);

}  // namespace invar
