#include "oracle/core/number.h"

#include <limits>

#include "onnx/onnx_pb.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// The parameters of a floating-point type.
struct Format {
  int32_t type;
  int digits;  // of the significand, with the hidden digit
  int lowest;  // exponent of the smallest normal number
  double largest;
  bool has_infinity;
};

constexpr Format kFormats[] = {
    {TensorProto::FLOAT, 24, -126, 3.4028234663852886e38, true},
    {TensorProto::FLOAT16, 11, -14, 65504.0, true},
    {TensorProto::BFLOAT16, 8, -126, 3.3895313892515355e38, true},
    {TensorProto::FLOAT8E4M3FN, 4, -6, 448.0, false},
    {TensorProto::FLOAT8E5M2, 3, -14, 57344.0, false},
};

const Format* FormatOf(int32_t type) {
  for (const Format& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

double Hypot(double a, double b) { return std::sqrt(a * a + b * b); }

// The errors of a result that is not finite are undefined; it gets no bounds.
Number Checked(Number n) {
  if (!std::isfinite(n.value)) return {n.value, 0, 0};
  if (std::isnan(n.worst)) n.worst = HUGE_VAL;
  if (std::isnan(n.spread)) n.spread = HUGE_VAL;
  return n;
}

}  // namespace

double UnitOf(int32_t type) {
  const Format* format = FormatOf(type);
  return std::ldexp(1.0, format == nullptr ? -53 : -format->digits);
}

double SumUnitOf(int32_t type) { return type == TensorProto::DOUBLE ? 0x1p-52 : 0x1p-24; }

double TinyOf(int32_t type) {
  const Format* format = FormatOf(type);
  if (format == nullptr) return std::numeric_limits<double>::min();
  return std::ldexp(1.0, format->lowest);
}

double RoundTo(int32_t type, double value) {
  if (type == TensorProto::FLOAT) return static_cast<double>(static_cast<float>(value));
  const Format* format = FormatOf(type);
  if (format == nullptr || value == 0 || !std::isfinite(value)) return value;
  const int exponent = std::max(std::ilogb(value), format->lowest);
  const double step = std::ldexp(1.0, exponent - format->digits + 1);
  const double rounded = std::nearbyint(value / step) * step;
  if (std::fabs(rounded) <= format->largest) return rounded;
  return std::copysign(format->has_infinity ? HUGE_VAL : format->largest, value);
}

double CodeOf(const Number& x, int32_t type, bool* doubtful) {
  const double bound = BoundOf(x.worst, x.spread);
  *doubtful = *doubtful || RoundTo(type, x.value - bound) != RoundTo(type, x.value + bound);
  return RoundTo(type, x.value);
}

double Gamma(double n, double u) { return n * u / std::max(0.5, 1 - n * u); }

Number Limited(Number number, int32_t type) {
  if (std::isfinite(number.value) && !std::isfinite(RoundTo(type, number.value))) {
    const double low = std::fabs(number.value) - number.worst;
    const bool sure = !std::isfinite(RoundTo(type, low));
    return {sure ? std::copysign(HUGE_VAL, number.value) : number.value, sure ? 0 : HUGE_VAL,
            sure ? 0 : HUGE_VAL};
  }
  return Checked(number);
}

Number Rounded(Number n, int32_t type) {
  n = Checked(n);
  if (!std::isfinite(n.value)) return n;
  if (n.exact()) return {RoundTo(type, n.value), 0, 0};
  const double u = UnitOf(type), size = std::fabs(n.value);
  // If all possible values round to one number, the result is exact. Not so for 16-bit types: a
  // graph that rounds at other places may have another number there.
  const double low = RoundTo(type, n.value - n.worst);
  const bool one = low == RoundTo(type, n.value + n.worst);
  if (one && u < 2 * SumUnitOf(type)) return {low, 0, 0};
  // Half of the smallest step, for numbers that are too small to have all digits.
  const double least = TinyOf(type) * u;
  n.spread = Hypot(n.spread, u * size + least);
  n.worst += u * (size + n.worst) + least;
  return Limited(n, type);
}

Number Approximated(Number n, int32_t type, double ulps) {
  n = Checked(n);
  if (!std::isfinite(n.value)) return n;
  const double u = UnitOf(type) + 2 * ulps * SumUnitOf(type), size = std::fabs(n.value);
  n.spread = Hypot(n.spread, u * size + TinyOf(type));
  n.worst += u * (size + n.worst) + TinyOf(type);
  return Limited(n, type);
}

Number Plus(const Number& a, const Number& b) {
  return Checked({a.value + b.value, a.worst + b.worst, Hypot(a.spread, b.spread)});
}

Number Minus(const Number& a, const Number& b) {
  return Checked({a.value - b.value, a.worst + b.worst, Hypot(a.spread, b.spread)});
}

Number Times(const Number& a, const Number& b) {
  const double x = std::fabs(a.value), y = std::fabs(b.value);
  Number r{a.value * b.value, 0, 0};
  if (a.exact() && b.exact()) return Checked(r);
  // 0 times an unlimited error is 0 if the 0 is exact.
  const auto term = [](double factor, double error) {
    return error == 0 || factor == 0 ? 0 : factor * error;
  };
  r.worst = term(x, b.worst) + term(y, a.worst) + term(a.worst, b.worst);
  r.spread = Hypot(Hypot(term(x, b.spread), term(y, a.spread)), term(a.spread, b.spread));
  return Checked(r);
}

Number Over(const Number& a, const Number& b) {
  Number r{a.value / b.value, 0, 0};
  if (a.exact() && b.exact()) return Checked(r);
  if (a.exact() && a.value == 0 && std::fabs(b.value) > b.worst) return r;
  const double size = std::fabs(b.value), quotient = std::fabs(r.value);
  r.worst = size > b.worst ? (a.worst + quotient * b.worst) / (size - b.worst) : HUGE_VAL;
  r.spread = size > 0 ? Hypot(a.spread, quotient * b.spread) / size : HUGE_VAL;
  return Checked(r);
}

Number Lipschitz(const Number& x, double value, double slope) {
  return Checked({value, slope * x.worst, slope * x.spread});
}

}  // namespace kvlift::oracle
