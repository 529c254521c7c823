// Elementwise arithmetic on two or more operands.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "oracle/core/op.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

// Applies a function to two operands, or to the running result and one more operand.
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

// Returns true if both operands are the same value, whose errors are then equal.
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

absl::Status SumOp(OpContext& c) { return SumOf(c, 1); }
absl::Status Mean(OpContext& c) { return SumOf(c, static_cast<double>(c.in.size())); }

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

constexpr OpEntry kElementwiseOps[] = {
    {"", "PRelu", PRelu},
    {"", "Add", Add},
    {"", "Sub", Sub},
    {"", "Mul", Mul},
    {"", "Div", Div},
    {"", "Mod", Mod},
    {"", "Pow", Pow},
    {"", "Max", ExtremeOp<true>},
    {"", "Min", ExtremeOp<false>},
    {"", "Sum", SumOp},
    {"", "Mean", Mean},
};

}  // namespace

absl::Span<const OpEntry> ElementwiseOps() { return kElementwiseOps; }

}  // namespace kvlift::oracle
