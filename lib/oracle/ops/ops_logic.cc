// Comparisons, logic, bits and casts.
#include <bit>
#include <cmath>

#include "ir/types.h"
#include "oracle/core/op.h"

namespace kvlift::oracle {
namespace {

using onnx::TensorProto;

absl::Status Truth(OpContext& c, bool (*reals)(double, double),
                   bool (*integers)(int64_t, int64_t)) {
  const Value &a = c.in[0], &b = c.in[1];
  Dims dims;
  if (!Broadcast(a.dims(), b.dims(), &dims)) return Wrong(c, "shapes that do not fit");
  const auto ia = BroadcastIndex(a.dims(), dims), ib = BroadcastIndex(b.dims(), dims);
  std::vector<int64_t> out(ia.size());
  bool doubtful = false;
  for (size_t i = 0; i < ia.size(); ++i) {
    if (!a.real()) {
      int64_t x = a.integers()[ia[i]], y = b.integers()[ib[i]];
      if (a.type() == TensorProto::UINT64) {  // compare as unsigned numbers
        x ^= INT64_MIN;
        y ^= INT64_MIN;
      }
      out[i] = integers(x, y) ? 1 : 0;
      continue;
    }
    const Number x = a.reals().At(ia[i]), y = b.reals().At(ib[i]);
    out[i] = reals(x.value, y.value) ? 1 : 0;
    const double bound = BoundOf(x.worst, x.spread) + BoundOf(y.worst, y.spread);
    doubtful = doubtful || (bound > 0 && std::fabs(x.value - y.value) <= bound);
  }
  (*c.out)[0] = Value::FromIntegers(TensorProto::BOOL, dims, std::move(out));
  (*c.out)[0].doubtful = doubtful;
  return absl::OkStatus();
}

#define KV_COMPARISON(name, op)                       \
  absl::Status name(OpContext& c) {                   \
    return Truth(                                     \
        c, [](double a, double b) { return a op b; }, \
        [](int64_t a, int64_t b) { return a op b; }); \
  }
KV_COMPARISON(Equal, ==)
KV_COMPARISON(Less, <)
KV_COMPARISON(Greater, >)
KV_COMPARISON(LessOrEqual, <=)
KV_COMPARISON(GreaterOrEqual, >=)
#undef KV_COMPARISON

absl::Status Bits(OpContext& c, int64_t (*f)(int64_t, int64_t)) {
  const Value &a = c.in[0], &b = c.in[1];
  Dims dims;
  if (!Broadcast(a.dims(), b.dims(), &dims)) return Wrong(c, "shapes that do not fit");
  const auto ia = BroadcastIndex(a.dims(), dims), ib = BroadcastIndex(b.dims(), dims);
  std::vector<int64_t> out(ia.size());
  for (size_t i = 0; i < ia.size(); ++i) {
    out[i] = Wrap(a.type(), f(a.integers()[ia[i]], b.integers()[ib[i]]));
  }
  (*c.out)[0] = Value::FromIntegers(a.type(), dims, std::move(out));
  return absl::OkStatus();
}

absl::Status And(OpContext& c) {
  return Bits(c, [](int64_t a, int64_t b) { return a & b; });
}
absl::Status Or(OpContext& c) {
  return Bits(c, [](int64_t a, int64_t b) { return a | b; });
}
absl::Status Xor(OpContext& c) {
  return Bits(c, [](int64_t a, int64_t b) { return a ^ b; });
}

// A shift by the width or more, or by less than 0, shifts out all bits (a right shift keeps the
// sign).
int64_t Left(int64_t a, int64_t b) {
  return b < 0 || b > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
int64_t Right(int64_t a, int64_t b) { return a >> (b < 0 || b > 63 ? 63 : b); }
int64_t UnsignedRight(int64_t a, int64_t b) {
  return b < 0 || b > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> b);
}

absl::Status BitShift(OpContext& c) {
  if (c.Text("direction", "LEFT") == "LEFT") return Bits(c, Left);
  return Bits(c, c.in[0].type() == TensorProto::UINT64 ? UnsignedRight : Right);
}

absl::Status Not(OpContext& c) {
  std::vector<int64_t> out = c.in[0].integers();
  const bool logical = c.in[0].type() == TensorProto::BOOL;
  for (int64_t& v : out) v = logical ? 1 - v : Wrap(c.in[0].type(), ~v);
  (*c.out)[0] = Value::FromIntegers(c.in[0].type(), c.in[0].dims(), std::move(out));
  return absl::OkStatus();
}

absl::Status IsNan(OpContext& c) {
  const Reals& x = c.in[0].reals();
  std::vector<int64_t> out(x.value.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = std::isnan(x.value[i]) ? 1 : 0;
  (*c.out)[0] = Value::FromIntegers(TensorProto::BOOL, c.in[0].dims(), std::move(out));
  for (size_t i = 0; i < x.worst.size(); ++i) {
    if (std::isinf(BoundOf(x.worst[i], x.spread[i]))) (*c.out)[0].doubtful = true;
  }
  return absl::OkStatus();
}

absl::Status IsInf(OpContext& c) {
  const Reals& x = c.in[0].reals();
  const bool positive = c.Int("detect_positive", 1) != 0,
             negative = c.Int("detect_negative", 1) != 0;
  std::vector<int64_t> out(x.value.size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = std::isinf(x.value[i]) && (x.value[i] > 0 ? positive : negative) ? 1 : 0;
  }
  (*c.out)[0] = Value::FromIntegers(TensorProto::BOOL, c.in[0].dims(), std::move(out));
  for (size_t i = 0; i < x.worst.size(); ++i) {
    if (std::isinf(BoundOf(x.worst[i], x.spread[i]))) (*c.out)[0].doubtful = true;
  }
  return absl::OkStatus();
}

// Returns the smallest and largest integer of a type, as doubles.
std::pair<double, double> LimitsOf(int32_t type) {
  const int bits = ElementBits(type);
  const bool is_unsigned = type == TensorProto::UINT64 || type == TensorProto::UINT32 ||
                           type == TensorProto::UINT16 || type == TensorProto::UINT8 ||
                           type == TensorProto::UINT4 || type == TensorProto::UINT2;
  if (is_unsigned) return {0, std::ldexp(1.0, bits) - (bits > 53 ? 0 : 1)};
  return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - (bits > 53 ? 0 : 1)};
}

int64_t ToInteger(double x, int32_t type) {
  if (type == TensorProto::BOOL) return x != 0 ? 1 : 0;
  if (std::isnan(x)) return 0;
  const auto [low, high] = LimitsOf(type);
  const double whole = std::trunc(x);
  // Types smaller than a byte wrap around.
  if (ElementBits(type) < 8 && std::fabs(whole) < 0x1p62) {
    return Wrap(type, static_cast<int64_t>(whole));
  }
  if (whole <= low) return type == TensorProto::INT64 ? INT64_MIN : static_cast<int64_t>(low);
  if (whole >= high) {
    if (type == TensorProto::INT64) return INT64_MAX;
    if (type == TensorProto::UINT64) return -1;
    return static_cast<int64_t>(high);
  }
  if (type == TensorProto::UINT64) return static_cast<int64_t>(static_cast<uint64_t>(whole));
  return static_cast<int64_t>(whole);
}

absl::Status CastTo(OpContext& c, int32_t to) {
  const Value& x = c.in[0];
  if (!IsReal(to) && !IsIntegerType(to) && to != TensorProto::BOOL) {
    return NoMeaning(c, "this type");
  }
  if (IsReal(to) && to != TensorProto::DOUBLE && UnitOf(to) == UnitOf(TensorProto::DOUBLE)) {
    return NoMeaning(c, "this type");
  }
  const int64_t size = x.size();
  if (x.real() && IsReal(to)) {
    const bool wider = UnitOf(to) <= UnitOf(x.type()) && TinyOf(to) <= TinyOf(x.type());
    const bool small = ElementBits(to) == 8;
    const bool saturate = small && c.Int("saturate", 1) != 0;
    if (small && !saturate) return NoMeaning(c, "saturate=0");
    const double largest = to == TensorProto::FLOAT8E4M3FN ? 448 : 57344;
    Reals out(size);
    for (int64_t i = 0; i < size; ++i) {
      Number n = x.reals().At(i);
      if (saturate) {
        n.value = std::isnan(n.value) ? n.value : std::clamp(n.value, -largest, largest);
      }
      out.Set(i, wider ? n : Rounded(n, to));
    }
    (*c.out)[0] = Value::FromReals(to, x.dims(), std::move(out));
  } else if (IsReal(to)) {
    Reals out(size);
    for (int64_t i = 0; i < size; ++i) {
      const int64_t v = x.integers()[i];
      const double wide = x.type() == TensorProto::UINT64
                              ? static_cast<double>(static_cast<uint64_t>(v))
                              : static_cast<double>(v);
      out.value[i] = RoundTo(to, wide);
    }
    (*c.out)[0] = Value::FromReals(to, x.dims(), std::move(out));
  } else {
    std::vector<int64_t> out(static_cast<size_t>(size));
    bool doubtful = false;
    for (int64_t i = 0; i < size; ++i) {
      if (!x.real()) {
        out[i] = Wrap(to, x.integers()[i]);
        continue;
      }
      const Number n = x.reals().At(i);
      const double bound = BoundOf(n.worst, n.spread);
      out[i] = ToInteger(n.value, to);
      if (bound > 0) {
        doubtful = doubtful || ToInteger(n.value - bound, to) != out[i] ||
                   ToInteger(n.value + bound, to) != out[i];
      }
    }
    (*c.out)[0] = Value::FromIntegers(to, x.dims(), std::move(out));
    (*c.out)[0].doubtful = doubtful;
  }
  return absl::OkStatus();
}

absl::Status Cast(OpContext& c) {
  return CastTo(c, static_cast<int32_t>(c.Int("to", TensorProto::FLOAT)));
}
absl::Status CastLike(OpContext& c) { return CastTo(c, c.in[1].type()); }

constexpr OpEntry kLogicOps[] = {
    {"", "Equal", Equal},
    {"", "Less", Less},
    {"", "Greater", Greater},
    {"", "LessOrEqual", LessOrEqual},
    {"", "GreaterOrEqual", GreaterOrEqual},
    {"", "And", And},
    {"", "Or", Or},
    {"", "Xor", Xor},
    {"", "BitwiseAnd", And},
    {"", "BitwiseOr", Or},
    {"", "BitwiseXor", Xor},
    {"", "BitShift", BitShift},
    {"", "Not", Not},
    {"", "BitwiseNot", Not},
    {"", "IsNaN", IsNan},
    {"", "IsInf", IsInf},
    {"", "Cast", Cast},
    {"", "CastLike", CastLike},
};

}  // namespace

absl::Span<const OpEntry> LogicOps() { return kLogicOps; }

}  // namespace kvlift::oracle
