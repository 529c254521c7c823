#include "exec/memory/small_types.h"

#include <array>
#include <cmath>
#include <limits>

#include "ir/types.h"

namespace kvlift::exec {
namespace {

using onnx::TensorProto;

bool IsSignedType(int32_t type) {
  switch (type) {
    case TensorProto::INT2:
    case TensorProto::INT4:
    case TensorProto::INT8:
    case TensorProto::INT16:
    case TensorProto::INT32:
      return true;
    default:
      return false;
  }
}

// Returns the 2, 4 or 8 bits of element i.
unsigned BitsAt(const View& view, int64_t i, int64_t bits) {
  const auto byte = static_cast<unsigned>(view.as<uint8_t>()[i * bits / 8]);
  return byte >> (i * bits % 8) & ((1u << bits) - 1);
}
void SetBits(const View& view, int64_t i, int64_t bits, unsigned value) {
  uint8_t& byte = view.as<uint8_t>()[i * bits / 8];
  const auto shift = static_cast<unsigned>(i * bits % 8);
  const unsigned mask = ((1u << bits) - 1) << shift;
  byte = static_cast<uint8_t>((byte & ~mask) | (value << shift & mask));
}

// The parameters of a floating-point format, and its special codes.
struct Format {
  int mantissa_bits, bias;
  unsigned largest;       // code of the largest finite value
  unsigned infinity;      // 0: the format has no infinity
  unsigned nan;           // code with its sign
  bool negative_zero;     // whether -0 exists
  unsigned sign = 0x80u;  // the sign bit
};

Format FormatOf(int32_t type) {
  switch (type) {
    case TensorProto::FLOAT8E4M3FN:
      return {3, 7, 0x7eu, 0, 0x7fu, true};
    case TensorProto::FLOAT8E4M3FNUZ:
      return {3, 8, 0x7fu, 0, 0x80u, false};
    case TensorProto::FLOAT8E5M2:
      return {2, 15, 0x7bu, 0x7cu, 0x7fu, true};
    case TensorProto::FLOAT8E5M2FNUZ:
      return {2, 16, 0x7fu, 0, 0x80u, false};
    default:  // float4e2m1: NaN becomes -0, as in ONNX's reference implementation
      return {1, 1, 0x7u, 0, 0x8u, true, 0x8u};
  }
}

float Magnitude(const Format& f, unsigned code) {
  const int exponent = static_cast<int>(code >> f.mantissa_bits);
  const int mantissa = static_cast<int>(code & ((1u << f.mantissa_bits) - 1));
  if (exponent == 0) {
    return std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa_bits);
  }
  const int whole = mantissa + (1 << f.mantissa_bits);
  return std::ldexp(static_cast<float>(whole), exponent - f.bias - f.mantissa_bits);
}

// Returns the code of a magnitude; one more than the largest code if it is too large.
unsigned Nearest(const Format& f, float x) {
  unsigned low = 0, high = f.largest + 1;
  if (x >= Magnitude(f, high)) return high;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (Magnitude(f, middle) <= x ? low : high) = middle;
  }
  const float below = x - Magnitude(f, low), above = Magnitude(f, high) - x;
  if (below != above) return below < above ? low : high;
  return low % 2 == 0 ? low : high;
}

unsigned EncodeExponent(float x) {  // float8e8m0: powers of two, rounded up
  if (std::isnan(x)) return 0xffu;
  if (!(x > 0)) return 0;
  if (std::isinf(x)) return 0xfeu;
  int exponent = 0;
  const float mantissa = std::frexp(x, &exponent);  // in [0.5, 1)
  const int code = exponent - (mantissa == 0.5f ? 1 : 0) + 127;
  return static_cast<unsigned>(code < 0 ? 0 : code > 254 ? 254 : code);
}

}  // namespace

bool IsSmallInteger(int32_t type) {
  switch (type) {
    case TensorProto::UINT2:
    case TensorProto::UINT4:
    case TensorProto::UINT8:
    case TensorProto::UINT16:
    case TensorProto::UINT32:
      return true;
    default:
      return IsSignedType(type);
  }
}

IntegerRange RangeOf(int32_t type) {
  const int bits = ElementBits(type);
  if (IsSignedType(type)) return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
  return {0, (int64_t{1} << bits) - 1};
}

int64_t SmallIntegerAt(const View& view, int64_t i) {
  switch (view.type) {
    case TensorProto::INT8:
      return view.as<int8_t>()[i];
    case TensorProto::UINT8:
      return view.as<uint8_t>()[i];
    case TensorProto::INT16:
      return view.as<int16_t>()[i];
    case TensorProto::UINT16:
      return view.as<uint16_t>()[i];
    case TensorProto::INT32:
      return view.as<int32_t>()[i];
    case TensorProto::UINT32:
      return view.as<uint32_t>()[i];
    default:
      break;
  }
  const int64_t bits = ElementBits(view.type);
  const auto value = static_cast<int64_t>(BitsAt(view, i, bits));
  const bool negative = IsSignedType(view.type) && value >> (bits - 1) != 0;
  return negative ? value - (int64_t{1} << bits) : value;
}

void SetSmallInteger(const View& view, int64_t i, int64_t value) {
  switch (ElementBits(view.type)) {
    case 8:
      view.as<uint8_t>()[i] = static_cast<uint8_t>(value);
      return;
    case 16:
      view.as<uint16_t>()[i] = static_cast<uint16_t>(value);
      return;
    case 32:
      view.as<uint32_t>()[i] = static_cast<uint32_t>(value);
      return;
    default:
      SetBits(view, i, ElementBits(view.type), static_cast<unsigned>(value));
  }
}

bool IsSmallFloat(int32_t type) {
  switch (type) {
    case TensorProto::FLOAT8E4M3FN:
    case TensorProto::FLOAT8E4M3FNUZ:
    case TensorProto::FLOAT8E5M2:
    case TensorProto::FLOAT8E5M2FNUZ:
    case TensorProto::FLOAT8E8M0:
    case TensorProto::FLOAT4E2M1:
      return true;
    default:
      return false;
  }
}

float SmallFloatAt(const View& view, int64_t i) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const unsigned code = BitsAt(view, i, ElementBits(view.type));
  if (view.type == TensorProto::FLOAT8E8M0) {
    return code == 0xffu ? kNan : std::ldexp(1.0f, static_cast<int>(code) - 127);
  }
  const Format f = FormatOf(view.type);
  const unsigned magnitude = code & ~f.sign;
  float value = 0;
  if (!f.negative_zero && code == f.nan) return kNan;
  if (f.infinity != 0 && magnitude == f.infinity) {
    value = std::numeric_limits<float>::infinity();
  } else if (magnitude > f.largest) {
    return kNan;
  } else {
    value = Magnitude(f, magnitude);
  }
  return (code & f.sign) != 0 ? -value : value;
}

void SetSmallFloat(const View& view, int64_t i, float value, bool saturate) {
  const int64_t bits = ElementBits(view.type);
  if (view.type == TensorProto::FLOAT8E8M0) return SetBits(view, i, bits, EncodeExponent(value));
  const Format f = FormatOf(view.type);
  const bool always = view.type == TensorProto::FLOAT4E2M1;
  if (std::isnan(value)) return SetBits(view, i, bits, f.nan);
  const unsigned sign = std::signbit(value) ? f.sign : 0;
  unsigned code = std::isinf(value) ? f.largest + 1 : Nearest(f, std::fabs(value));
  if (code > f.largest) {
    if (saturate || always) {
      code = f.largest;
    } else if (f.infinity != 0) {
      code = f.infinity;
    } else {
      return SetBits(view, i, bits, f.negative_zero ? f.nan | sign : f.nan);
    }
  }
  if (code == 0 && !f.negative_zero) return SetBits(view, i, bits, 0);
  SetBits(view, i, bits, code | sign);
}

}  // namespace kvlift::exec
