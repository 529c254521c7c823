// A real number with its error bounds, and rounding to element types.
//
// The number that an execution in the element types holds differs from `value` by at most `worst`
// (worst-case analysis), and by a random error of standard deviation `spread` if rounding errors
// are independent of each other. Both are 0 where the number is known exactly.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kvlift::oracle {

struct Number {
  double value = 0, worst = 0, spread = 0;

  bool exact() const { return worst == 0; }
};

// An error stays within this number of standard deviations in practice.
inline constexpr double kDeviations = 10;

// Returns the bound that a difference is compared with.
inline double BoundOf(double worst, double spread) { return std::min(worst, kDeviations * spread); }

// UnitOf returns the unit roundoff of a float type, SumUnitOf that of the type in which its sums
// are accumulated.
double UnitOf(int32_t type);
double SumUnitOf(int32_t type);
// Returns the largest error that underflow can cause in the type.
double TinyOf(int32_t type);
// Returns the nearest number of the type, ties to even; infinity (or the largest number, in a type
// without infinity) beyond its range.
double RoundTo(int32_t type, double value);

// Returns the number of a narrow type that x is stored as, RoundTo(type, x.value). Sets *doubtful
// if an error of x could change it.
double CodeOf(const Number& x, int32_t type, bool* doubtful);

// Returns gamma_n = n u / (1 - n u) for n roundings of unit u.
double Gamma(double n, double u);

// Returns a result of the type after one correct rounding.
Number Rounded(Number exact, int32_t type);
// Does the same for a result of a library function that is off by `ulps` units in the last place of
// the accumulation type.
Number Approximated(Number exact, int32_t type, double ulps);
// Turns a value that overflows the type into infinity; does not add a rounding error.
Number Limited(Number number, int32_t type);

Number Plus(const Number& a, const Number& b);
Number Minus(const Number& a, const Number& b);
Number Times(const Number& a, const Number& b);
Number Over(const Number& a, const Number& b);
// Applies f, which is monotone on [value - worst, value + worst]; `slope` is |f'(value)|.
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
// Returns the larger (or smaller) of two numbers; NaN if one of them is NaN.
template <bool larger>
Number Extreme(const Number& a, const Number& b) {
  if (std::isnan(a.value) || std::isnan(b.value)) return {a.value + b.value, 0, 0};
  const bool first = larger ? a.value >= b.value : a.value <= b.value;
  const Number &best = first ? a : b, &other = first ? b : a;
  // The error of the other one does not matter if it cannot reach the best.
  const double gap = std::fabs(a.value - b.value);
  if (gap > a.worst + b.worst || std::isinf(best.value)) return best;
  return {best.value, std::max(best.worst, other.worst), std::max(best.spread, other.spread)};
}

// Returns `value`, computed from x by a function with |f'| <= `slope` everywhere.
Number Lipschitz(const Number& x, double value, double slope);

}  // namespace kvlift::oracle
