#include "invar/config/interpolate.h"

#include <algorithm>

#include "invar/config/table.h"
#include "invar/core/error.h"

namespace invar {

namespace {

constexpr std::string_view kOpens = "${";

std::string value_of(const Config& config, const std::string& key, const std::string& wanted_by) {
    for (const Field& field : config_fields()) {
        if (field.key != key || !field.applies(config)) continue;
        std::string text = field.print(config);
        if (text.size() > 1 && text.starts_with('"') && text.ends_with('"')) text = text.substr(1, text.size() - 2);
        check<UsageError>(text.find(kOpens) == text.npos, "{}: ${{{}}} stands for '{}', which is not a value itself",
                          wanted_by, key, text);
        return text;
    }
    fail<UsageError>("{}: there is no key '{}' for ${{{}}} to stand for", wanted_by, key, key);
}

void interpolate(const Config& config, const std::string& name, std::string& text) {
    std::string result;
    std::size_t at = 0;
    for (std::size_t begin; (begin = text.find(kOpens, at)) != text.npos;) {
        const std::size_t end = text.find('}', begin);
        check<UsageError>(end != text.npos, "{}: '{}' lacks a }} behind ${{", name, text);
        result += text.substr(at, begin - at) + value_of(config, text.substr(begin + 2, end - begin - 2), name);
        at = end + 1;
    }
    text = result + text.substr(at);
    if (name == "exp_name") std::ranges::replace(text, '/', '_');  // it stays the name of one folder
}

}  // namespace

void interpolate_names(Config& config) {
    const Config as_written = config;
    interpolate(as_written, "exp_name", config.exp_name);
    interpolate(as_written, "output_dir", config.output_dir);
}

}  // namespace invar
