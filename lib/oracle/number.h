// A real number as the oracle knows it, and the rounding of element types.
//
// The number an execution in the element types holds differs from `value` by at most `worst`, as
// far as the error analysis is first-principles, and by a random error of standard deviation
// `spread` if rounding errors are independent of each other. Both are 0 where the number is known
// bit for bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kvlift::oracle {

struct Number {
  double value = 0, worst = 0, spread = 0;

  bool exact() const { return worst == 0; }
};

// Standard deviations that an error never exceeds in practice.
inline constexpr double kDeviations = 10;

// What an error is held against.
inline double BoundOf(double worst, double spread) { return std::min(worst, kDeviations * spread); }

// Unit roundoff of a float type, and of the type that its sums are carried in.
double UnitOf(int32_t type);
double SumUnitOf(int32_t type);
// What underflow may take away.
double TinyOf(int32_t type);
// To the nearest number of the type, ties to even; beyond the largest: infinity.
double RoundTo(int32_t type, double value);

// gamma_n of n roundings of unit u.
double Gamma(double n, double u);

// A result of the type after one correct rounding.
Number Rounded(Number exact, int32_t type);
// The same where what is rounded comes from a library function that is off by `ulps` units in the
// last place of the type that half types are computed in.
Number Approximated(Number exact, int32_t type, double ulps);
// Turns values that overflow into infinities; does not add an error.
Number Limited(Number number, int32_t type);

Number Plus(const Number& a, const Number& b);
Number Minus(const Number& a, const Number& b);
Number Times(const Number& a, const Number& b);
Number Over(const Number& a, const Number& b);
// f is monotone on [value - worst, value + worst]; `slope` is |f'(value)|.
template <typename F>
Number Monotone(const Number& x, double slope, F f) {
  Number y;
  y.value = f(x.value);
  if (x.exact() || !std::isfinite(y.value)) return y;
  y.worst = std::max(std::fabs(f(x.value + x.worst) - y.value),
                     std::fabs(y.value - f(x.value - x.worst)));
  if (std::isnan(y.worst)) y.worst = HUGE_VAL;
  y.spread = slope * x.spread;
  if (std::isnan(y.spread)) y.spread = HUGE_VAL;
  return y;
}
// The larger (smaller) of two; NaN if one of them is.
template <bool larger>
Number Extreme(const Number& a, const Number& b) {
  if (std::isnan(a.value) || std::isnan(b.value)) return {a.value + b.value, 0, 0};
  const bool first = larger ? a.value >= b.value : a.value <= b.value;
  const Number &best = first ? a : b, &other = first ? b : a;
  // The other cannot come near.
  const double gap = std::fabs(a.value - b.value);
  if (gap > a.worst + b.worst || std::isinf(best.value)) return best;
  return {best.value, std::max(best.worst, other.worst), std::max(best.spread, other.spread)};
}

// |f'| <= `slope` everywhere.
Number Lipschitz(const Number& x, double value, double slope);

}  // namespace kvlift::oracle
