// Student's t distribution for any number of degrees of freedom, whole or not: what the tests of equivalence ask for.
#pragma once

namespace invar {

// The regularised incomplete beta function I_x(a, b), for a, b > 0 and x from 0 to 1.
double incomplete_beta(double a, double b, double x);

// The probability of a value up to t.
double student_t_cdf(double t, double degrees);
// The t that a share p of all values does not exceed; p above 0 and below 1.
double student_t_quantile(double p, double degrees);
// The same for more degrees than count: the normal distribution.
double normal_quantile(double p);

}  // namespace invar
