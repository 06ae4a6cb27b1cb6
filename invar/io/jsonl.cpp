#include "invar/io/jsonl.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"

namespace invar {

namespace {

using Json = nlohmann::json;

template <class T>
std::string shortest(T value) {
    if (std::isnan(value)) return "\"nan\"";
    if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
    char buffer[32];
    std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
    // Readers would take it for an integer, and lose the sign of -0.
    if (text.find_first_of(".e") == text.npos) text += ".0";
    return text;
}

std::string quoted_json(std::string_view text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Json parse_object(std::string_view line) {
    Json value = line.find('\0') == line.npos ? Json::parse(line, nullptr, false) : Json(Json::value_t::discarded);
    return value.is_object() ? value : Json(Json::value_t::discarded);
}

std::string format_number(double value) {
    return shortest(value);
}
std::string format_number(float value) {
    return shortest(value);
}

JsonLine& JsonLine::add_text(std::string_view key, std::string_view json) {
    if (!body_.empty()) body_ += ',';
    body_.append(quoted_json(key)).append(":").append(json);
    return *this;
}

JsonLine& JsonLine::add(std::string_view key, std::string_view value) {
    return add_text(key, quoted_json(value));
}

JsonlFile::JsonlFile(const std::filesystem::path& path) : file_(path) {
    if (file_.size() == 0) return;
    const std::string content = read_file(path);
    const std::size_t whole = content.rfind('\n') + 1;  // npos + 1 is 0
    if (whole == content.size()) return;
    if (parse_object(std::string_view(content).substr(whole)).is_object())
        file_.append("\n");  // a line somebody wrote without its newline
    else
        file_.truncate(whole);
}

std::vector<Json> read_jsonl(const std::filesystem::path& path) {
    const std::string content = read_file(path);
    std::vector<Json> lines;
    std::size_t begin = 0;
    for (std::size_t number = 1; begin < content.size(); ++number) {
        const std::size_t end = content.find('\n', begin);
        Json line = parse_object(std::string_view(content).substr(begin, end - begin));
        const bool torn = end == content.npos;
        check<IoError>(line.is_object() || torn, "{} line {}: not a JSON object; the file is damaged", path.string(),
                       number);
        if (line.is_object()) lines.push_back(std::move(line));
        if (torn) break;
        begin = end + 1;
    }
    return lines;
}

double number_of(const Json& value) {
    if (value.is_number()) return value.get<double>();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    fail<IoError>("expected a number, \"nan\", \"inf\" or \"-inf\", found {}",
                  value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

}  // namespace invar
