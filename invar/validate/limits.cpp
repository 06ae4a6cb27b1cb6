#include "invar/validate/limits.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/validate/run_log.h"

namespace invar {

namespace {

constexpr std::string_view kPoints = "pp", kAbsolute = "abs:";

// What rounds to nothing has no sign.
std::string without_idle_sign(const std::string& text) {
    return text.find_first_of("123456789nif") == text.npos ? text.substr(1) : text;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
    constexpr std::string_view kNames[] = {"PASS", "MARGINAL", "FAIL", "INVALID"};
    return kNames[static_cast<int>(verdict)];
}

std::string signed_percent(double share, int decimals) {
    return without_idle_sign(fmt::format("{:+.{}f}%", 100 * share, decimals));
}

Limits Limits::parse(const std::string& text) {
    Limits limits;
    std::string_view number = text;
    if (number.starts_with(kAbsolute)) {
        limits.unit = Unit::metric;
        number.remove_prefix(kAbsolute.size());
    } else if (number.ends_with(kPoints)) {
        limits.unit = Unit::points;
        number.remove_suffix(kPoints.size());
    }
    double value = 0.0;
    const bool is_number = parse_number(number, value);
    if (limits.unit == Unit::points) value /= 100;
    const bool fits = value > 0 && std::isfinite(value) && (limits.unit == Unit::metric || value < 1);
    check<UsageError>(is_number && fits,
                      "--margin {}: must lie above 0 and below 1, such as 0.01 for one percent of the baseline; or "
                      "be 0.5pp for half a percentage point, or abs:0.005 in the metric's own unit",
                      text.substr(0, 80));
    limits.harm *= value / limits.margin;
    limits.margin = value;
    return limits;
}

std::string Limits::word() const {
    switch (unit) {
        case Unit::points:
            return fmt::format("{:.12g}{}", 100 * margin, kPoints);
        case Unit::metric:
            return fmt::format("{}{}", kAbsolute, margin);
        default:
            return fmt::format("{}", margin);
    }
}

Limits Limits::relative_to(double mean) const {
    if (unit == Unit::relative) return *this;
    return {margin / std::fabs(mean), harm / std::fabs(mean), level, Unit::relative};
}

std::string Limits::str(double limit) const {
    switch (unit) {
        case Unit::points:
            return fmt::format("{:g} percentage point{}", 100 * limit, 100 * limit == 1 ? "" : "s");
        case Unit::metric:
            return fmt::format("{:g}", limit);
        default:
            return fmt::format("{:g}%", 100 * limit);
    }
}

std::string Limits::difference(double share, double mean) const {
    const double value = share * std::fabs(mean);
    switch (unit) {
        case Unit::points:
            return without_idle_sign(fmt::format("{:+.2f}pp", 100 * value));
        case Unit::metric:
            return without_idle_sign(fmt::format("{:+.4g}", value));
        default:
            return signed_percent(share);
    }
}

void check_limits(const Limits& limits) {
    check<UsageError>(limits.margin > 0 && limits.margin <= limits.harm && std::isfinite(limits.harm),
                      "the limits {} (PASS) and {} (FAIL) must be above 0 and in this order", limits.margin,
                      limits.harm);
    check<UsageError>(limits.level > 0 && limits.level < 0.5, "the level {} must lie above 0 and below 0.5",
                      limits.level);
}

void check_unit(const Limits& limits, const std::string& metric, bool is_share, double value) {
    const bool in_percent = value > 1;
    check<UsageError>(limits.unit != Limits::Unit::points || is_share,
                      "--margin {}: {} is no share from 0 to 1, which alone has percentage points; say abs:{:g} in its "
                      "own unit{}",
                      limits.word(), metric, in_percent ? 100 * limits.margin : limits.margin,
                      in_percent ? ", if that is percent" : "");
}

Verdict judge(double difference, const Limits& limits) {
    const double size = std::fabs(difference);
    return size < limits.margin ? Verdict::pass : size < limits.harm ? Verdict::marginal : Verdict::fail;
}

}  // namespace invar
