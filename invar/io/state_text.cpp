#include "invar/io/state_text.h"

#include <cmath>
#include <limits>

#include "invar/core/error.h"

namespace invar {

namespace {

using Json = nlohmann::json;

constexpr const char* kFloatKey = "$float";
// Deep enough for any state; shallow enough that a hostile one cannot exhaust the stack.
constexpr int kDeepest = 64;

Json with_names(const Json& value, int depth) {
    check<UsageError>(depth <= kDeepest, "a checkpoint's state is nested deeper than {} levels", kDeepest);
    if (value.is_number_float()) {
        const double number = value.get<double>();
        if (std::isfinite(number)) return value;
        return Json{{kFloatKey, std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
    }
    if (!value.is_structured()) return value;
    check<UsageError>(!value.is_object() || !value.contains(kFloatKey), "a checkpoint's state must not use the key {}",
                      kFloatKey);
    Json result = value;
    for (Json& child : result) child = with_names(child, depth + 1);
    return result;
}

void restore_numbers(Json& value, std::string_view source) {
    if (!value.is_structured()) return;
    if (value.is_object() && value.contains(kFloatKey)) {
        const Json& name = value[kFloatKey];
        check<IoError>(value.size() == 1 && (name == "nan" || name == "inf" || name == "-inf"),
                       "{}: the state has a {} that is not nan, inf or -inf", source, kFloatKey);
        const double infinity = std::numeric_limits<double>::infinity();
        const double number = name == "nan"   ? std::numeric_limits<double>::quiet_NaN()
                              : name == "inf" ? infinity
                                              : -infinity;
        value = number;
        return;
    }
    for (Json& child : value) restore_numbers(child, source);
}

}  // namespace

std::string format_state(const Json& state) {
    const Json named = with_names(state, 0);
    try {
        return named.dump();
    } catch (const Json::exception&) {
        fail<UsageError>("a checkpoint's state holds a text that is not UTF-8");
    }
}

Json parse_state(std::string_view text, std::string_view source) {
    const auto bounded = [&](int depth, Json::parse_event_t, Json&) {
        check<IoError>(depth <= kDeepest, "{}: the state is nested deeper than {} levels", source, kDeepest);
        return true;
    };
    // The JSON parser takes a zero byte for the end and would not look at what follows.
    check<IoError>(text.find('\0') == text.npos, "{}: the state holds a zero byte", source);
    try {
        Json state = Json::parse(text, bounded);
        restore_numbers(state, source);
        return state;
    } catch (const Json::exception&) {
        fail<IoError>("{}: the state is not valid JSON; the file is damaged, use an earlier checkpoint", source);
    }
}

}  // namespace invar
