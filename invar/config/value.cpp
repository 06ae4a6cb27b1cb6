#include "invar/config/value.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "invar/core/error.h"
#include "invar/core/suggest.h"

namespace invar {
namespace {

constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxItems = 256;

std::string shown(const YamlNode& value) {
    switch (value.kind) {
        case YamlNode::Kind::null:
            return "null";
        case YamlNode::Kind::scalar:
            return find_non_text(value.text) == std::string::npos ? value.text.substr(0, 80) : "?";
        case YamlNode::Kind::list:
            return "a list";
        case YamlNode::Kind::map:
            return "a map";
    }
    return "";
}

[[noreturn]] void refuse(const Setting& setting, const std::string& type, const Rule& rule) {
    fail<UsageError>("{}: must be {}{}{}", setting.str(), type, rule.allowed.empty() ? "" : ", ", rule.allowed);
}

// An entry without a value takes one back that a file or a word before it has set. YAML reads {0:bf16} as one too.
void check_entry_exists(const Setting& setting, bool exists) {
    check<UsageError>(exists,
                      "{}: has no value, and there is no such entry to take back; to set one, write a space after the "
                      "colon, as in {{fc1: bf16-mixed}}",
                      setting.str());
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
    if (text.starts_with('+')) text.remove_prefix(1);
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
    if constexpr (std::is_floating_point_v<T>)
        if (!(std::abs(value) <= std::numeric_limits<float>::max())) return std::nullopt;  // kernels take FP32
    return value;
}

template <class T>
T number_from(const Setting& setting, const Rule& rule, const YamlNode& value, const std::string& type) {
    if (value.kind != YamlNode::Kind::scalar) refuse(setting, type, rule);
    const std::optional<T> parsed = parse_number<T>(value.text);
    if (!parsed || (rule.number && !rule.number(static_cast<double>(*parsed)))) refuse(setting, type, rule);
    return *parsed;
}

std::string lowered(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
}

std::string text_from(const Setting& setting, const Rule& rule, const YamlNode& value) {
    if (value.kind != YamlNode::Kind::scalar) refuse(setting, "text", rule);
    const bool one_line = value.text.find_first_of("\t\r\n") == std::string::npos;
    check<UsageError>(one_line && value.text.size() <= kMaxText && find_non_text(value.text) == std::string::npos,
                      "{}: must be one line of UTF-8 text, at most {} bytes", setting.str(), kMaxText);
    if (!rule.canonical) return value.text;
    try {
        return rule.canonical(value.text);
    } catch (const UsageError& error) {
        fail<UsageError>("{}: {}", setting.str(), error.what());
    }
}

}  // namespace

std::string Setting::str() const {
    const std::string name = entry.empty() ? key : fmt::format("{}.{}", key, entry.substr(0, 80));
    return fmt::format("{} = {} ({})", name, shown(value), origin);
}

Rule any() {
    return {};
}
Rule custom(std::string allowed, std::function<bool(double)> number) {
    return {std::move(allowed), std::move(number), nullptr};
}
Rule canonical_text(std::string allowed, std::function<std::string(const std::string&)> canonical) {
    return {std::move(allowed), nullptr, std::move(canonical)};
}
Rule at_least(double least) {
    return custom(fmt::format("at least {}", least), [=](double v) { return v >= least; });
}
Rule above(double bound) {
    // The step computes in FP32, where what is just above here must still be above.
    return custom(fmt::format("above {}", bound), [=](double v) { return float(v) > float(bound); });
}
Rule within(double least, double most) {
    return custom(fmt::format("from {} to {}", least, most), [=](double v) { return v >= least && v <= most; });
}
Rule below(double least, double bound) {
    return custom(fmt::format("at least {} and below {}", least, bound),
                  [=](double v) { return v >= least && v < bound; });
}
Rule one_of(const std::vector<std::string>& names) {
    const std::string allowed = fmt::format("one of {}", fmt::join(names, ", "));
    return canonical_text(allowed, [=](const std::string& value) {
        const std::string wanted = lowered(value);
        check<UsageError>(std::find(names.begin(), names.end(), wanted) != names.end(), "must be {}{}", allowed,
                          did_you_mean(wanted, names));
        return wanted;
    });
}

Rule path() {
    return canonical_text("a path", [](const std::string& value) {
        check<UsageError>(!value.empty(), "must be a path");
        return value;
    });
}

void read_value(const Setting& setting, const Rule& rule, bool& out) {
    static const std::vector<std::string> kYes = {"true", "yes", "on", "1"}, kNo = {"false", "no", "off", "0"};
    const std::string word = setting.value.kind == YamlNode::Kind::scalar ? lowered(setting.value.text) : "";
    const bool yes = std::find(kYes.begin(), kYes.end(), word) != kYes.end();
    if (!yes && std::find(kNo.begin(), kNo.end(), word) == kNo.end()) refuse(setting, "true or false", rule);
    out = yes;
}

void read_value(const Setting& setting, const Rule& rule, std::int64_t& out) {
    out = number_from<std::int64_t>(setting, rule, setting.value, "an integer");
}

int read_int(const Setting& setting, const Rule& rule) {
    const std::int64_t value = number_from<std::int64_t>(setting, rule, setting.value, "an integer");
    if (value != int(value)) refuse(setting, "an integer of 32 bits", rule);
    return int(value);
}

void read_value(const Setting& setting, const Rule& rule, double& out) {
    out = number_from<double>(setting, rule, setting.value, "a number that FP32 can hold");
}

void read_value(const Setting& setting, const Rule& rule, std::string& out) {
    out = text_from(setting, rule, setting.value);
}

void read_value(const Setting& setting, const Rule& rule, std::vector<std::int64_t>& out) {
    const std::string type = "a list of integers such as [512, 256]";
    std::vector<std::int64_t> values;
    if (setting.value.kind == YamlNode::Kind::list) {
        if (setting.value.items.size() > kMaxItems)
            refuse(setting, fmt::format("at most {} integers", kMaxItems), rule);
        for (const YamlNode& item : setting.value.items)
            values.push_back(number_from<std::int64_t>(setting, rule, item, type));
    } else {
        values.push_back(number_from<std::int64_t>(setting, rule, setting.value, type));
    }
    out = std::move(values);
}

void read_value(const Setting& setting, const Rule& rule, std::vector<std::string>& out) {
    std::vector<std::string> values;
    if (setting.value.kind == YamlNode::Kind::list) {
        if (setting.value.items.size() > kMaxItems) refuse(setting, fmt::format("at most {} texts", kMaxItems), rule);
        for (const YamlNode& item : setting.value.items) values.push_back(text_from(setting, rule, item));
    } else {
        values.push_back(text_from(setting, rule, setting.value));
    }
    out = std::move(values);
}

void read_value(const Setting& setting, const Rule& rule, std::array<double, 2>& out) {
    const std::string type = "two numbers such as [0.9, 0.999]";
    if (setting.value.kind != YamlNode::Kind::list || setting.value.items.size() != 2) refuse(setting, type, rule);
    const double first = number_from<double>(setting, rule, setting.value.items[0], type);
    out = {first, number_from<double>(setting, rule, setting.value.items[1], type)};
}

void read_value(const Setting& setting, const Rule& rule, std::array<double, 3>& out) {
    const std::string type = "three numbers such as [0.5, 0.5, 0.5]";
    if (setting.value.kind != YamlNode::Kind::list || setting.value.items.size() != 3) refuse(setting, type, rule);
    std::array<double, 3> read{};
    for (std::size_t i = 0; i < 3; ++i) read[i] = number_from<double>(setting, rule, setting.value.items[i], type);
    out = read;
}

void read_value(const Setting& setting, const Rule& rule, BatchCount& out) {
    const std::string type = "a number of batches such as 50, or a share from 0.0 to 1.0 such as 0.5";
    if (setting.value.kind != YamlNode::Kind::scalar) refuse(setting, type, rule);
    const bool is_share = setting.value.text.find_first_of(".eE") != std::string::npos;
    BatchCount result;
    if (is_share) {
        result.share = number_from<double>(setting, rule, setting.value, type);
        if (result.share < 0.0 || result.share > 1.0) refuse(setting, type, rule);
    } else {
        result = BatchCount::of(number_from<std::int64_t>(setting, rule, setting.value, type));
        if (result.count < 0) refuse(setting, type, rule);
    }
    const bool zero = is_share ? result.share == 0.0 : result.count == 0;
    // -0.0 and 0.0 are one value and must print as one.
    if (zero && is_share) result.share = 0.0;
    out = zero && rule.zero_is_all ? BatchCount::all() : result;
}

void read_value(const Setting& setting, const Rule& rule, PrecisionOverrides& out) {
    check<UsageError>(!setting.entry.empty(),
                      "{}: must be a map from module-name pattern to precision, such as {{fc2: 32-true}}",
                      setting.str());
    check<UsageError>(setting.entry.size() <= kMaxText && find_non_text(setting.entry) == std::string::npos &&
                          setting.entry.find_first_of("\t\r\n") == std::string::npos,
                      "{}: the module-name pattern must be one line of UTF-8 text", setting.str());
    const auto same = [&](const auto& pair) { return pair.first == setting.entry; };
    const auto found = std::find_if(out.begin(), out.end(), same);
    if (setting.value.kind == YamlNode::Kind::null) {
        check_entry_exists(setting, found != out.end());
        out.erase(found);
        return;
    }
    const std::string precision = text_from(setting, rule, setting.value);
    if (found != out.end()) {
        found->second = precision;
    } else {
        out.emplace_back(setting.entry, precision);
    }
}

void read_value(const Setting& setting, const Rule& rule, PrecisionSchedule& out) {
    const bool is_epoch = setting.entry.ends_with('e');
    const std::optional<std::int64_t> at =
        parse_number<std::int64_t>(std::string_view(setting.entry).substr(0, setting.entry.size() - is_epoch));
    check<UsageError>(at && *at >= 0 && *at <= 1'000'000'000'000,
                      "{}: must be a map from a step, such as 500, or an epoch, such as 1e, to a precision",
                      setting.str());
    const auto same = [&](const PrecisionChange& change) { return change.at == *at && change.is_epoch == is_epoch; };
    const bool existed = std::erase_if(out, same) > 0;
    if (setting.value.kind == YamlNode::Kind::null) return check_entry_exists(setting, existed);
    out.push_back({is_epoch, *at, text_from(setting, rule, setting.value)});
}

std::string print_value(bool value) {
    return value ? "true" : "false";
}
std::string print_value(std::int64_t value) {
    return fmt::format("{}", value);
}
std::string print_value(double value) {
    return fmt::format("{}", value);
}
std::string print_value(const std::string& value) {
    return quote_yaml(value);
}
std::string print_value(const std::vector<std::int64_t>& value) {
    return fmt::format("[{}]", fmt::join(value, ", "));
}
std::string print_value(const std::vector<std::string>& value) {
    std::vector<std::string> quoted;
    for (const std::string& text : value) quoted.push_back(quote_yaml(text));
    return fmt::format("[{}]", fmt::join(quoted, ", "));
}
std::string print_value(const std::array<double, 2>& value) {
    return fmt::format("[{}, {}]", value[0], value[1]);
}
std::string print_value(const std::array<double, 3>& value) {
    return fmt::format("[{}, {}, {}]", value[0], value[1], value[2]);
}

std::string print_value(const BatchCount& value) {
    if (!value.is_share) return fmt::format("{}", value.count);
    const std::string text = fmt::format("{}", value.share);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;  // 1.0 is all, 1 is one batch
}

std::string print_value(const PrecisionOverrides& value) {
    std::vector<std::string> pairs;
    for (const auto& [pattern, precision] : value)
        pairs.push_back(fmt::format("{}: {}", quote_yaml(pattern), quote_yaml(precision)));
    return fmt::format("{{{}}}", fmt::join(pairs, ", "));
}

std::string print_value(const PrecisionSchedule& value) {
    std::vector<std::string> pairs;
    for (const PrecisionChange& change : value)
        pairs.push_back(fmt::format("{}: {}", change.key(), quote_yaml(change.precision)));
    return fmt::format("{{{}}}", fmt::join(pairs, ", "));
}

}  // namespace invar
