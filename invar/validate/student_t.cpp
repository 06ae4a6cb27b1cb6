#include "invar/validate/student_t.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "invar/core/error.h"

namespace invar {

namespace {

// More degrees of freedom than this and the distribution is the normal one to all digits that matter.
constexpr double kMostDegrees = 1e7;

// The continued fraction of the incomplete beta function, evaluated from the front (Lentz): it converges in about
// sqrt(max(a, b)) terms where x is below (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
    constexpr double kTiny = 1e-300;
    const auto nonzero = [](double v) { return std::fabs(v) < kTiny ? kTiny : v; };
    double c = 1.0;
    double d = 1.0 / nonzero(1.0 - (a + b) * x / (a + 1.0));
    double value = d;
    for (int m = 1; m <= 100'000; ++m) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1.0 / nonzero(1.0 + even * d);
        c = nonzero(1.0 + even / c);
        value *= d * c;
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1.0 / nonzero(1.0 + odd * d);
        c = nonzero(1.0 + odd / c);
        const double factor = d * c;
        value *= factor;
        if (std::fabs(factor - 1.0) < 1e-16) break;
    }
    return value;
}

}  // namespace

double incomplete_beta(double a, double b, double x) {
    check<UsageError>(a > 0 && b > 0 && x >= 0 && x <= 1, "incomplete_beta({}, {}, {}): outside of its domain", a, b,
                      x);
    if (x == 0 || x == 1) return x;
    const double front =
        std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
    const double value =
        x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1.0 - front * beta_fraction(b, a, 1.0 - x) / b;
    return std::clamp(value, 0.0, 1.0);
}

double student_t_cdf(double t, double degrees) {
    check<UsageError>(degrees > 0, "student_t: {} degrees of freedom; there must be some", degrees);
    if (std::isnan(t)) return t;
    const double n = std::min(degrees, kMostDegrees);
    if (std::isinf(t)) return t > 0 ? 1.0 : 0.0;
    // n / (n + t^2) loses its digits near 1, where t is small; its complement does not.
    const double tail = t * t < n ? 0.5 * (1.0 - incomplete_beta(0.5, n / 2, t * t / (n + t * t)))
                                  : 0.5 * incomplete_beta(n / 2, 0.5, n / (n + t * t));
    return t > 0 ? 1.0 - tail : tail;
}

double student_t_quantile(double p, double degrees) {
    check<UsageError>(p > 0 && p < 1, "student_t_quantile({}): a share lies above 0 and below 1", p);
    if (p == 0.5) return 0.0;
    // By symmetry in the lower tail, where the distribution keeps its digits.
    const double share = std::min(p, 1.0 - p);
    double low = -1.0, high = 0.0;
    while (student_t_cdf(low, degrees) > share && low > -std::numeric_limits<double>::max() / 4) high = low, low *= 2;
    for (int i = 0; i < 200 && low < high; ++i) {
        const double middle = low + (high - low) / 2;
        if (middle == low || middle == high) break;
        (student_t_cdf(middle, degrees) > share ? high : low) = middle;
    }
    const double t = low + (high - low) / 2;
    return p < 0.5 ? t : -t;
}

double normal_quantile(double p) {
    check<UsageError>(p > 0 && p < 1, "normal_quantile({}): a share lies above 0 and below 1", p);
    const double share = std::min(p, 1.0 - p);
    double low = -40.0, high = 0.0;  // nothing that a double holds lies beyond
    while (true) {
        const double middle = low + (high - low) / 2;
        if (middle == low || middle == high) return p < 0.5 ? middle : -middle;
        (0.5 * std::erfc(-middle * std::numbers::sqrt2 / 2) > share ? high : low) = middle;
    }
}

}  // namespace invar
