// Functions of one number.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "oracle/core/op.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// Applies f(x, type) to every real; f computes the errors too.
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

// f is monotone everywhere; `slope` is |f'|.
template <double (*f)(double), double (*slope)(double), int ulps>
absl::Status MonotoneOp(OpContext& c) {
  return MapReals(c, [](const Number& x, int32_t type) {
    return Approximated(Monotone(x, slope(x.value), f), type, ulps);
  });
}

// |f'| is at most 1 everywhere.
template <double (*f)(double), int ulps>
absl::Status GentleOp(OpContext& c) {
  return MapReals(c, [](const Number& x, int32_t type) {
    return Approximated(Lipschitz(x, f(x.value), 1), type, ulps);
  });
}

// f is x times a factor between 0 and 1 that is a sum or product of rounded numbers, so errors are
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

// Numbers of uint64 from 2^63 on are held as negative ones.
bool IsUnsigned64(const OpContext& c) { return c.in[0].type() == onnx::TensorProto::UINT64; }

absl::Status Abs(OpContext& c) {
  if (!c.in[0].real()) {
    const bool is_unsigned = IsUnsigned64(c);
    return MapIntegers(c, [=](int64_t v) {
      return v < 0 && !is_unsigned ? static_cast<int64_t>(-static_cast<uint64_t>(v)) : v;
    });
  }
  return MapReals(c, [](const Number& x, int32_t) {
    return Number{std::fabs(x.value), x.worst, x.spread};
  });
}

// Rounds to whole numbers. If the error of the operand reaches a step, the result may be off by it.
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
  if (!c.in[0].real()) {
    const bool is_unsigned = IsUnsigned64(c);
    return MapIntegers(c, [=](int64_t v) {
      return v > 0 || (v != 0 && is_unsigned) ? 1 : v < 0 ? -1 : 0;
    });
  }
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

// x * sigmoid(alpha x).
absl::Status SwishWith(OpContext& c, float usual_alpha) {
  const auto alpha = static_cast<double>(c.Float("alpha", usual_alpha));
  return MapReals(c, [alpha](const Number& x, int32_t type) {
    Number y = Lipschitz(x, x.value * Sigmoid(alpha * x.value), 1.2);
    const double noise = 8 * SumUnitOf(type) * std::fabs(x.value);
    return Approximated({y.value, y.worst + noise, std::hypot(y.spread, noise)}, type, 2);
  });
}

absl::Status Swish(OpContext& c) { return SwishWith(c, 1.0F); }
// Source: ONNX Runtime, com.microsoft.QuickGelu.
absl::Status QuickGelu(OpContext& c) { return SwishWith(c, 1.702F); }

absl::Status Clip(OpContext& c) {
  if (!AreScalars(c, 1, 2)) return Wrong(c, "a bound that is no number");
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

constexpr OpEntry kFunctionOps[] = {
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
    {"", "Sqrt", Sqrt},
    {"", "Reciprocal", Reciprocal},
    {"", "Neg", Neg},
    {"", "Abs", Abs},
    {"", "Floor", StepOp<Floor>},
    {"", "Ceil", StepOp<Ceil>},
    {"", "Round", StepOp<Round>},
    {"", "Sign", Sign},
    {"", "Clip", Clip},
    {"com.microsoft", "Gelu", GateOp<Gelu>},
    {"com.microsoft", "QuickGelu", QuickGelu},
};

}  // namespace

absl::Span<const OpEntry> FunctionOps() { return kFunctionOps; }

}  // namespace kvlift::oracle
