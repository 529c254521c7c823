// Elementwise arithmetic and functions.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "oracle/op.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// A function of one real: f(x, type) with its errors.
template <typename F>
absl::Status MapReals(OpContext& c, F f) {
  const Value& x = c.in[0];
  if (!x.real()) return NoMeaning(c, "integers");
  const Reals& in = x.reals();
  Reals out(x.size());
  for (int64_t i = 0; i < x.size(); ++i) out.Set(i, f(in.At(i), x.type()));
  (*c.out)[0] = Value::FromReals(x.type(), x.dims(), std::move(out));
  return absl::OkStatus();
}

template <typename F>
absl::Status MapIntegers(OpContext& c, F f) {
  const Value& x = c.in[0];
  std::vector<int64_t> out = x.integers();
  for (int64_t& v : out) v = Wrap(x.type(), f(v));
  (*c.out)[0] = Value::FromIntegers(x.type(), x.dims(), std::move(out));
  return absl::OkStatus();
}

// f increases or decreases throughout; slope is |f'|.
template <double (*f)(double), double (*slope)(double), int ulps>
absl::Status MonotoneOp(OpContext& c) {
  return MapReals(c, [](const Number& x, int32_t type) {
    return Approximated(Monotone(x, slope(x.value), f), type, ulps);
  });
}

// |f'| is at most 1.
template <double (*f)(double), int ulps>
absl::Status GentleOp(OpContext& c) {
  return MapReals(c, [](const Number& x, int32_t type) {
    return Approximated(Lipschitz(x, f(x.value), 1), type, ulps);
  });
}

// x times something between 0 and 1 that is a sum or product of rounded numbers: errors are
// relative to x. |f'| is at most 3/2.
template <double (*f)(double)>
absl::Status GateOp(OpContext& c) {
  return MapReals(c, [](const Number& x, int32_t type) {
    Number y = Lipschitz(x, f(x.value), 1.5);
    const double noise = 8 * SumUnitOf(type) * std::fabs(x.value);
    y.worst += noise;
    y.spread = std::hypot(y.spread, noise);
    return Approximated(y, type, 2);
  });
}

double Exp(double x) { return std::exp(x); }
double Log(double x) { return std::log(x); }
double LogSlope(double x) { return 1 / std::fabs(x); }
double Tanh(double x) { return std::tanh(x); }
double TanhSlope(double x) { return 1 - std::tanh(x) * std::tanh(x); }
double Sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
double SigmoidSlope(double x) { return Sigmoid(x) * Sigmoid(-x); }
double Erf(double x) { return std::erf(x); }
double ErfSlope(double x) { return 2 / std::sqrt(std::numbers::pi) * std::exp(-x * x); }
double Sinh(double x) { return std::sinh(x); }
double Cosh(double x) { return std::cosh(x); }
double Asin(double x) { return std::asin(x); }
double AsinSlope(double x) { return 1 / std::sqrt(1 - x * x); }
double Acos(double x) { return std::acos(x); }
double Acosh(double x) { return std::acosh(x); }
double AcoshSlope(double x) { return 1 / std::sqrt(x * x - 1); }
double Atanh(double x) { return std::atanh(x); }
double AtanhSlope(double x) { return 1 / (1 - x * x); }
double Sin(double x) { return std::sin(x); }
double Cos(double x) { return std::cos(x); }
double Atan(double x) { return std::atan(x); }
double Asinh(double x) { return std::asinh(x); }
double Softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double Softsign(double x) { return x / (1 + std::fabs(x)); }
double Gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }
double GeluTanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double HardSwish(double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); }
double Mish(double x) { return x * std::tanh(Softplus(x)); }

absl::Status GeluOp(OpContext& c) {
  return c.Text("approximate", "none") == "tanh" ? GateOp<GeluTanh>(c) : GateOp<Gelu>(c);
}

absl::Status CoshOp(OpContext& c) {
  return MapReals(c, [](const Number& x, int32_t type) {
    const double size = std::fabs(x.value);
    Number y{std::cosh(x.value), std::cosh(size + x.worst) - std::cosh(size),
             std::sinh(size) * x.spread};
    return Approximated(y, type, 2);
  });
}

absl::Status Tan(OpContext& c) {
  return MapReals(c, [](const Number& x, int32_t type) {
    const double cosine = std::cos(x.value);
    Number y{std::tan(x.value), x.worst == 0 ? 0 : HUGE_VAL, x.spread / (cosine * cosine)};
    return Approximated(y, type, 2);
  });
}

absl::Status Sqrt(OpContext& c) {
  return MapReals(c, [](const Number& x, int32_t type) {
    return Rounded(Monotone(x, 0.5 / std::sqrt(x.value), [](double v) { return std::sqrt(v); }),
                   type);
  });
}

absl::Status Reciprocal(OpContext& c) {
  return MapReals(c, [](const Number& x, int32_t type) {
    return Rounded(Over({1, 0, 0}, x), type);
  });
}

absl::Status Neg(OpContext& c) {
  if (!c.in[0].real()) return MapIntegers(c, [](int64_t v) { return -v; });
  return MapReals(c, [](const Number& x, int32_t) { return Number{-x.value, x.worst, x.spread}; });
}

absl::Status Abs(OpContext& c) {
  if (!c.in[0].real()) return MapIntegers(c, [](int64_t v) { return v < 0 ? -v : v; });
  return MapReals(c, [](const Number& x, int32_t) {
    return Number{std::fabs(x.value), x.worst, x.spread};
  });
}

// To whole numbers: a step where the operand is near one.
template <double (*f)(double)>
absl::Status StepOp(OpContext& c) {
  if (!c.in[0].real()) return MapIntegers(c, [](int64_t v) { return v; });
  return MapReals(c, [](const Number& x, int32_t) {
    const double y = f(x.value);
    if (f(x.value - x.worst) == f(x.value + x.worst)) return Number{y, 0, 0};
    return Number{y, x.worst + 1, x.spread + 1};
  });
}
double Floor(double x) { return std::floor(x); }
double Ceil(double x) { return std::ceil(x); }
double Round(double x) { return std::nearbyint(x); }
double SignOf(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }

absl::Status Sign(OpContext& c) {
  if (!c.in[0].real()) return MapIntegers(c, [](int64_t v) { return v > 0 ? 1 : v < 0 ? -1 : 0; });
  return StepOp<SignOf>(c);
}

absl::Status Relu(OpContext& c) {
  if (!c.in[0].real()) return MapIntegers(c, [](int64_t v) { return std::max<int64_t>(v, 0); });
  return MapReals(c, [](const Number& x, int32_t) {
    if (x.value + x.worst <= 0) return Number{0, 0, 0};
    return Number{x.value < 0 ? 0 : x.value, x.worst, x.spread};
  });
}

absl::Status LeakyRelu(OpContext& c) {
  const auto alpha = static_cast<double>(c.Float("alpha", 0.01F));
  return MapReals(c, [alpha](const Number& x, int32_t type) {
    if (x.value - x.worst >= 0) return x;
    const double slope = std::max(1.0, std::fabs(alpha));
    return Rounded(Lipschitz(x, x.value >= 0 ? x.value : alpha * x.value, slope), type);
  });
}

absl::Status Elu(OpContext& c) {
  const auto alpha = static_cast<double>(c.Float("alpha", 1.0F));
  return MapReals(c, [alpha](const Number& x, int32_t type) {
    const double y = x.value >= 0 ? x.value : alpha * std::expm1(x.value);
    Number r = Lipschitz(x, y, std::max(1.0, std::fabs(alpha)));
    if (x.value < 0)
      r = Approximated(
          {r.value, r.worst + 4 * SumUnitOf(type), std::hypot(r.spread, 4 * SumUnitOf(type))}, type,
          2);
    return r;
  });
}

absl::Status HardSigmoid(OpContext& c) {
  const auto alpha = static_cast<double>(c.Float("alpha", 0.2F));
  const auto beta = static_cast<double>(c.Float("beta", 0.5F));
  return MapReals(c, [=](const Number& x, int32_t type) {
    const Number y = Lipschitz(x, std::clamp(alpha * x.value + beta, 0.0, 1.0), std::fabs(alpha));
    return Approximated(
        {y.value, y.worst + 2 * SumUnitOf(type), std::hypot(y.spread, 2 * SumUnitOf(type))}, type,
        1);
  });
}

// Sigmoid(alpha x) x.
absl::Status Swish(OpContext& c) {
  const auto alpha = static_cast<double>(c.Float("alpha", 1.0F));
  return MapReals(c, [alpha](const Number& x, int32_t type) {
    Number y = Lipschitz(x, x.value * Sigmoid(alpha * x.value), 1.2);
    const double noise = 8 * SumUnitOf(type) * std::fabs(x.value);
    return Approximated({y.value, y.worst + noise, std::hypot(y.spread, noise)}, type, 2);
  });
}

// Two operands, or the running result and one more.
template <typename R, typename I>
absl::Status Binary(OpContext& c, const Value& a, const Value& b, Value* out, R reals, I integers) {
  Dims dims;
  if (!Broadcast(a.dims(), b.dims(), &dims)) return Wrong(c, "shapes that do not fit");
  const auto ia = BroadcastIndex(a.dims(), dims), ib = BroadcastIndex(b.dims(), dims);
  if (a.real() != b.real()) return NoMeaning(c, "operands of different types");
  if (a.real()) {
    const Reals &x = a.reals(), &y = b.reals();
    Reals result(static_cast<int64_t>(ia.size()));
    for (size_t i = 0; i < ia.size(); ++i) {
      result.Set(static_cast<int64_t>(i), reals(x.At(ia[i]), y.At(ib[i])));
    }
    *out = Value::FromReals(a.type(), dims, std::move(result));
    return absl::OkStatus();
  }
  const auto &x = a.integers(), &y = b.integers();
  std::vector<int64_t> result(ia.size());
  for (size_t i = 0; i < ia.size(); ++i) {
    result[i] = Wrap(a.type(), integers(x[ia[i]], y[ib[i]]));
  }
  *out = Value::FromIntegers(a.type(), dims, std::move(result));
  return absl::OkStatus();
}

// Both operands are one value: their errors are the same.
bool Twice(const OpContext& c) {
  return c.node.input_size() == 2 && c.node.input(0) == c.node.input(1);
}

int64_t Unsigned(int64_t v) { return static_cast<int64_t>(static_cast<uint64_t>(v)); }

absl::Status Add(OpContext& c) {
  const int32_t type = c.in[0].type();
  const bool twice = Twice(c);
  return Binary(
      c, c.in[0], c.in[1], &(*c.out)[0],
      [=](const Number& a, const Number& b) {
        return Rounded(twice ? Lipschitz(a, 2 * a.value, 2) : Plus(a, b), type);
      },
      [](int64_t a, int64_t b) {
        return Unsigned(static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)));
      });
}

absl::Status Sub(OpContext& c) {
  const int32_t type = c.in[0].type();
  return Binary(
      c, c.in[0], c.in[1], &(*c.out)[0],
      [=](const Number& a, const Number& b) { return Rounded(Minus(a, b), type); },
      [](int64_t a, int64_t b) {
        return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
      });
}

absl::Status Mul(OpContext& c) {
  const int32_t type = c.in[0].type();
  const bool twice = Twice(c);
  return Binary(
      c, c.in[0], c.in[1], &(*c.out)[0],
      [=](const Number& a, const Number& b) {
        Number r = Times(a, b);
        if (twice && !a.exact()) r.spread = 2 * std::fabs(a.value) * a.spread + a.spread * a.spread;
        return Rounded(r, type);
      },
      [](int64_t a, int64_t b) {
        return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      });
}

bool HasZero(const Value& v) {
  if (v.real()) return false;
  const auto& x = v.integers();
  return std::find(x.begin(), x.end(), 0) != x.end();
}

absl::Status Div(OpContext& c) {
  const int32_t type = c.in[0].type();
  if (HasZero(c.in[1])) return Wrong(c, "a division by 0");
  const bool is_unsigned = type == TensorProto::UINT64;
  return Binary(
      c, c.in[0], c.in[1], &(*c.out)[0],
      [=](const Number& a, const Number& b) { return Rounded(Over(a, b), type); },
      [=](int64_t a, int64_t b) {
        if (is_unsigned) {
          return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
        }
        return b == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(a)) : a / b;
      });
}

absl::Status Mod(OpContext& c) {
  if (HasZero(c.in[1])) return Wrong(c, "a division by 0");
  const bool c_style = c.Int("fmod", 0) != 0;
  bool doubtful = false;
  const absl::Status status = Binary(
      c, c.in[0], c.in[1], &(*c.out)[0],
      [&](const Number& a, const Number& b) {
        doubtful = doubtful || !a.exact() || !b.exact();
        const double r = std::fmod(a.value, b.value);
        const bool shift = !c_style && r != 0 && (r < 0) != (b.value < 0);
        return Number{shift ? r + b.value : r, 0, 0};
      },
      [&](int64_t a, int64_t b) {
        if (b == -1) return int64_t{0};
        const int64_t r = a % b;
        return !c_style && r != 0 && (r < 0) != (b < 0) ? r + b : r;
      });
  (*c.out)[0].doubtful = doubtful;
  return status;
}

Number PowerOf(const Number& x, const Number& p, int32_t type) {
  if (p.exact() && p.value == 1) return x;
  if (p.exact() && p.value == 0.5) {
    return Approximated(
        Monotone(x, 0.5 / std::sqrt(x.value), [](double v) { return std::sqrt(v); }), type, 2);
  }
  Number y{std::pow(x.value, p.value), 0, 0};
  if (x.exact() && p.exact()) return Approximated(y, type, 2);
  const bool whole = p.exact() && p.value == std::floor(p.value) && p.value >= 1;
  const double size = std::fabs(x.value), far = size + x.worst, near = size - x.worst;
  if (!p.exact() || (!whole && near <= 0)) return {y.value, HUGE_VAL, HUGE_VAL};
  const double slope = std::fabs(p.value);
  const double at = p.value >= 1 ? far : near;
  y.worst = slope * std::pow(at, p.value - 1) * x.worst;
  y.spread = slope * std::pow(size, p.value - 1) * x.spread;
  if (size == 0) y.spread = std::pow(x.spread, p.value);
  return Approximated(y, type, 2);
}

int64_t WholePower(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1;
  for (auto b = static_cast<uint64_t>(base); exponent > 0; exponent >>= 1, b *= b) {
    if ((exponent & 1) != 0) result *= b;
  }
  return static_cast<int64_t>(result);
}

absl::Status Pow(OpContext& c) {
  const Value &x = c.in[0], &p = c.in[1];
  const int32_t type = x.type();
  if (x.real() == p.real()) {
    return Binary(
        c, x, p, &(*c.out)[0],
        [=](const Number& a, const Number& b) { return PowerOf(a, b, type); }, WholePower);
  }
  // One operand is of integers; the result has the type of the base.
  Dims dims;
  if (!Broadcast(x.dims(), p.dims(), &dims)) return Wrong(c, "shapes that do not fit");
  const auto ix = BroadcastIndex(x.dims(), dims), ip = BroadcastIndex(p.dims(), dims);
  Reals out(static_cast<int64_t>(ix.size()));
  std::vector<int64_t> whole(ix.size());
  for (size_t i = 0; i < ix.size(); ++i) {
    if (x.real()) {
      const Number exponent{static_cast<double>(p.integers()[ip[i]]), 0, 0};
      out.Set(static_cast<int64_t>(i), PowerOf(x.reals().At(ix[i]), exponent, type));
    } else {
      whole[i] = Wrap(type, static_cast<int64_t>(std::pow(static_cast<double>(x.integers()[ix[i]]),
                                                          p.reals().value[ip[i]])));
    }
  }
  (*c.out)[0] = x.real() ? Value::FromReals(type, dims, std::move(out))
                         : Value::FromIntegers(type, dims, std::move(whole));
  return absl::OkStatus();
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

template <bool larger>
absl::Status ExtremeOp(OpContext& c) {
  Value result = c.in[0];
  const bool is_unsigned = result.type() == TensorProto::UINT64;
  for (size_t k = 1; k < c.in.size(); ++k) {
    Value next;
    const absl::Status status =
        Binary(c, result, c.in[k], &next, Extreme<larger>, [=](int64_t a, int64_t b) {
          const bool less =
              is_unsigned ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
          return less == larger ? b : a;
        });
    if (!status.ok()) return status;
    result = std::move(next);
  }
  (*c.out)[0] = std::move(result);
  return absl::OkStatus();
}

absl::Status SumOf(OpContext& c, double divisor) {
  Value result = c.in[0];
  const int32_t type = result.type();
  for (size_t k = 1; k < c.in.size(); ++k) {
    Value next;
    const absl::Status status = Binary(
        c, result, c.in[k], &next,
        [=](const Number& a, const Number& b) {
          const Number sum = Plus(a, b);
          return sum.exact() && RoundTo(type, sum.value) == sum.value ? sum
                                                                      : Approximated(sum, type, 1);
        },
        [](int64_t a, int64_t b) { return a + b; });
    if (!status.ok()) return status;
    result = std::move(next);
  }
  if (divisor != 1) {
    Reals out = result.reals();
    for (int64_t i = 0; i < result.size(); ++i) {
      out.Set(i, Rounded(Over(out.At(i), {divisor, 0, 0}), type));
    }
    result = Value::FromReals(type, result.dims(), std::move(out));
  }
  (*c.out)[0] = std::move(result);
  return absl::OkStatus();
}

absl::Status Sum(OpContext& c) { return SumOf(c, 1); }
absl::Status Mean(OpContext& c) { return SumOf(c, static_cast<double>(c.in.size())); }

absl::Status Clip(OpContext& c) {
  const Value& x = c.in[0];
  if (!x.real()) {
    const int64_t low = c.has(1) ? c.in[1].integers()[0] : INT64_MIN;
    const int64_t high = c.has(2) ? c.in[2].integers()[0] : INT64_MAX;
    return MapIntegers(c, [=](int64_t v) { return std::min(std::max(v, low), high); });
  }
  const Number low = c.has(1)                ? c.in[1].reals().At(0)
                     : c.HasAttribute("min") ? Number{static_cast<double>(c.Float("min", 0)), 0, 0}
                                             : Number{-HUGE_VAL, 0, 0};
  const Number high = c.has(2)                ? c.in[2].reals().At(0)
                      : c.HasAttribute("max") ? Number{static_cast<double>(c.Float("max", 0)), 0, 0}
                                              : Number{HUGE_VAL, 0, 0};
  return MapReals(c, [=](const Number& v, int32_t) {
    Number y = v;
    if (low.value != -HUGE_VAL) y = Extreme<true>(y, low);
    if (high.value != HUGE_VAL) y = Extreme<false>(y, high);
    return y;
  });
}

absl::Status PRelu(OpContext& c) {
  const int32_t type = c.in[0].type();
  return Binary(
      c, c.in[0], c.in[1], &(*c.out)[0],
      [=](const Number& x, const Number& slope) {
        if (x.value - x.worst >= 0) return x;
        Number y = Times(x, slope);
        if (x.value >= 0) y.value = x.value;
        y.worst = std::max(y.worst, x.worst);
        y.spread = std::max(y.spread, x.spread);
        return Rounded(y, type);
      },
      [](int64_t x, int64_t slope) { return x >= 0 ? x : x * slope; });
}

constexpr OpEntry kOps[] = {
    {"", "Exp", MonotoneOp<Exp, Exp, 2>},
    {"", "Log", MonotoneOp<Log, LogSlope, 2>},
    {"", "Tanh", MonotoneOp<Tanh, TanhSlope, 4>},
    {"", "Sigmoid", MonotoneOp<Sigmoid, SigmoidSlope, 4>},
    {"", "Erf", MonotoneOp<Erf, ErfSlope, 4>},
    {"", "Sinh", MonotoneOp<Sinh, Cosh, 4>},
    {"", "Cosh", CoshOp},
    {"", "Tan", Tan},
    {"", "Asin", MonotoneOp<Asin, AsinSlope, 4>},
    {"", "Acos", MonotoneOp<Acos, AsinSlope, 4>},
    {"", "Acosh", MonotoneOp<Acosh, AcoshSlope, 4>},
    {"", "Atanh", MonotoneOp<Atanh, AtanhSlope, 4>},
    {"", "Sin", GentleOp<Sin, 2>},
    {"", "Cos", GentleOp<Cos, 2>},
    {"", "Atan", GentleOp<Atan, 2>},
    {"", "Asinh", GentleOp<Asinh, 4>},
    {"", "Softplus", GentleOp<Softplus, 4>},
    {"", "Softsign", GentleOp<Softsign, 2>},
    {"", "Gelu", GeluOp},
    {"", "HardSwish", GateOp<HardSwish>},
    {"", "Mish", GateOp<Mish>},
    {"", "Swish", Swish},
    {"", "HardSigmoid", HardSigmoid},
    {"", "Elu", Elu},
    {"", "Relu", Relu},
    {"", "LeakyRelu", LeakyRelu},
    {"", "PRelu", PRelu},
    {"", "Sqrt", Sqrt},
    {"", "Reciprocal", Reciprocal},
    {"", "Neg", Neg},
    {"", "Abs", Abs},
    {"", "Floor", StepOp<Floor>},
    {"", "Ceil", StepOp<Ceil>},
    {"", "Round", StepOp<Round>},
    {"", "Sign", Sign},
    {"", "Add", Add},
    {"", "Sub", Sub},
    {"", "Mul", Mul},
    {"", "Div", Div},
    {"", "Mod", Mod},
    {"", "Pow", Pow},
    {"", "Max", ExtremeOp<true>},
    {"", "Min", ExtremeOp<false>},
    {"", "Sum", Sum},
    {"", "Mean", Mean},
    {"", "Clip", Clip},
    {"com.microsoft", "Gelu", GateOp<Gelu>},
};

}  // namespace

absl::Span<const OpEntry> ElementwiseOps() { return kOps; }

}  // namespace kvlift::oracle
