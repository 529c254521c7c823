// Cast and CastLike between floats, integers (also of 2, 4 and 8 bits) and bool. Floats round to
// nearest even, once. A float becomes an integer by truncation, clamped to its range, and NaN
// becomes 0. Integers wrap around.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/pitch.h"
#include "exec/kernels/common/tables.h"
#include "exec/memory/small_types.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using math::NeedInputs;
using math::SetSpec;
using onnx::TensorProto;

constexpr int64_t kAtOnce = 256;

// Elements during a conversion: floats as double, integers as 64 bits (uint64 keeps its bit
// pattern).
struct Chunk {
  enum class Kind { kFloat, kSigned, kUnsigned } kind;
  double floats[kAtOnce];
  int64_t ints[kAtOnce];
};

bool IsPacked(int32_t type) { return IsSmallInteger(type) && ElementBits(type) < 8; }

bool IsCastable(int32_t type) {
  switch (type) {
    case TensorProto::FLOAT:
    case TensorProto::DOUBLE:
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
    case TensorProto::BOOL:
    case TensorProto::INT8:
    case TensorProto::UINT8:
    case TensorProto::INT16:
    case TensorProto::UINT16:
    case TensorProto::INT32:
    case TensorProto::UINT32:
    case TensorProto::INT64:
    case TensorProto::UINT64:
      return true;
    default:
      return IsPacked(type) || IsSmallFloat(type);
  }
}

void ReadSmall(const View& view, int64_t begin, int64_t count, Chunk& chunk) {
  chunk.kind = IsSmallFloat(view.type) ? Chunk::Kind::kFloat : Chunk::Kind::kSigned;
  for (int64_t i = 0; i < count; ++i) {
    if (chunk.kind == Chunk::Kind::kFloat) {
      chunk.floats[i] = SmallFloatAt(view, begin + i);
    } else {
      chunk.ints[i] = SmallIntegerAt(view, begin + i);
    }
  }
}

template <typename T>
void ReadTyped(const View& view, int64_t begin, int64_t count, Chunk& chunk) {
  const T* x = view.as<T>() + begin;
  if constexpr (math::kIsFloat<T>) {
    chunk.kind = Chunk::Kind::kFloat;
    for (int64_t i = 0; i < count; ++i) chunk.floats[i] = static_cast<double>(math::Widen(x[i]));
  } else {
    chunk.kind = std::is_signed_v<T> ? Chunk::Kind::kSigned : Chunk::Kind::kUnsigned;
    for (int64_t i = 0; i < count; ++i) chunk.ints[i] = static_cast<int64_t>(x[i]);
  }
}

absl::Status Read(const View& view, int64_t begin, int64_t count, Chunk& chunk) {
  if (IsPacked(view.type) || IsSmallFloat(view.type)) {
    ReadSmall(view, begin, count, chunk);
    return absl::OkStatus();
  }
  const int32_t type = view.type == TensorProto::BOOL ? int32_t{TensorProto::UINT8} : view.type;
  return math::VisitNumeric(type, [&](auto tag) {
    ReadTyped<typename decltype(tag)::Type>(view, begin, count, chunk);
    return absl::OkStatus();
  });
}

// Rounds to odd. A later rounding to a narrower type then gives the same as one rounding of x.
float RoundToOdd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto back = static_cast<double>(nearest);
  if (back == x || std::isnan(x) || std::isinf(nearest)) return nearest;
  uint32_t bits;
  std::memcpy(&bits, &nearest, sizeof(bits));
  // Rounds towards zero, then sets the last bit. One step down in magnitude is one less in the bit
  // pattern.
  if (std::fabs(back) > std::fabs(x)) --bits;
  bits |= 1u;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

template <typename T>
T FromFloat(double x) {
  if constexpr (math::kIsSmallFloat<T>) {
    return math::Narrow<T>(RoundToOdd(x));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(x);
  } else {
    if (std::isnan(x)) return 0;
    const double low = static_cast<double>(std::numeric_limits<T>::min());
    // The first value beyond the range.
    const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
    if (x <= low) return std::numeric_limits<T>::min();
    if (x >= high) return std::numeric_limits<T>::max();
    return static_cast<T>(x);
  }
}

template <typename T>
T FromInt(int64_t x, bool is_unsigned) {
  if constexpr (math::kIsSmallFloat<T>) {
    return FromFloat<T>(is_unsigned ? static_cast<double>(static_cast<uint64_t>(x))
                                    : static_cast<double>(x));
  } else {
    return is_unsigned ? static_cast<T>(static_cast<uint64_t>(x)) : static_cast<T>(x);
  }
}

template <typename T>
void WriteTyped(const View& view, int64_t begin, int64_t count, const Chunk& chunk) {
  T* y = view.as<T>() + begin;
  const bool is_unsigned = chunk.kind == Chunk::Kind::kUnsigned;
  if (chunk.kind == Chunk::Kind::kFloat) {
    for (int64_t i = 0; i < count; ++i) y[i] = FromFloat<T>(chunk.floats[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) y[i] = FromInt<T>(chunk.ints[i], is_unsigned);
  }
}

void WritePacked(const View& view, int64_t begin, int64_t count, const Chunk& chunk) {
  for (int64_t i = 0; i < count; ++i) {
    SetSmallInteger(
        view, begin + i,
        chunk.kind == Chunk::Kind::kFloat ? FromFloat<int64_t>(chunk.floats[i]) : chunk.ints[i]);
  }
}

void WriteSmallFloats(const View& view, int64_t begin, int64_t count, const Chunk& chunk,
                      bool saturate) {
  for (int64_t i = 0; i < count; ++i) {
    double value = 0;
    switch (chunk.kind) {
      case Chunk::Kind::kFloat:
        value = chunk.floats[i];
        break;
      case Chunk::Kind::kSigned:
        value = static_cast<double>(chunk.ints[i]);
        break;
      case Chunk::Kind::kUnsigned:
        value = static_cast<double>(static_cast<uint64_t>(chunk.ints[i]));
        break;
    }
    SetSmallFloat(view, begin + i, RoundToOdd(value), saturate);
  }
}

absl::Status Write(const View& view, int64_t begin, int64_t count, const Chunk& chunk,
                   bool saturate) {
  if (IsSmallFloat(view.type)) {
    WriteSmallFloats(view, begin, count, chunk, saturate);
    return absl::OkStatus();
  }
  if (IsPacked(view.type)) {
    WritePacked(view, begin, count, chunk);
    return absl::OkStatus();
  }
  if (view.type == TensorProto::BOOL) {
    for (int64_t i = 0; i < count; ++i) {
      const bool set =
          chunk.kind == Chunk::Kind::kFloat ? chunk.floats[i] != 0.0 : chunk.ints[i] != 0;
      view.as<uint8_t>()[begin + i] = set ? 1 : 0;
    }
    return absl::OkStatus();
  }
  return math::VisitNumeric(view.type, [&](auto tag) {
    WriteTyped<typename decltype(tag)::Type>(view, begin, count, chunk);
    return absl::OkStatus();
  });
}

// Handles the conversions that models use most at run time; returns false for other pairs of types.
bool CastFast(KernelContext& context) {
  const View& in = context.inputs[0];
  const View& out = context.outputs[0];
  const auto each = [&](auto convert) {
    math::ParallelFor(context.threads, out.size(), 64, 1 << 15, convert);
    return true;
  };
  const auto is = [&](int32_t from, int32_t to) { return in.type == from && out.type == to; };
  if (in.type == out.type) {
    if (in.data != out.data) move::CopyElements(in.type, out.data, 0, in.data, 0, in.size());
    return true;
  }
  if (is(TensorProto::FLOAT16, TensorProto::FLOAT)) {
    return each([&](int64_t b, int64_t e) {
      math::WidenArray(in.as<math::Half>() + b, e - b, out.as<float>() + b);
    });
  }
  if (is(TensorProto::BFLOAT16, TensorProto::FLOAT)) {
    return each([&](int64_t b, int64_t e) {
      math::WidenArray(in.as<math::Bfloat>() + b, e - b, out.as<float>() + b);
    });
  }
  if (is(TensorProto::FLOAT, TensorProto::FLOAT16)) {
    return each([&](int64_t b, int64_t e) {
      math::NarrowArray(in.as<float>() + b, e - b, out.as<math::Half>() + b);
    });
  }
  if (is(TensorProto::FLOAT, TensorProto::BFLOAT16)) {
    return each([&](int64_t b, int64_t e) {
      math::NarrowArray(in.as<float>() + b, e - b, out.as<math::Bfloat>() + b);
    });
  }
  return false;
}

absl::Status CastDense(KernelContext& context) {
  if (CastFast(context)) return absl::OkStatus();
  const View& in = context.inputs[0];
  const View& out = context.outputs[0];
  Chunk chunk;
  const bool saturate = math::IntAttribute(context, "saturate", 1) != 0;
  for (int64_t begin = 0; begin < in.size(); begin += kAtOnce) {
    const int64_t count = std::min(kAtOnce, in.size() - begin);
    KV_RETURN_IF_ERROR(Read(in, begin, count, chunk));
    KV_RETURN_IF_ERROR(Write(out, begin, count, chunk, saturate));
  }
  return absl::OkStatus();
}

// Blocks of a view with a pitch are cast one by one.
absl::Status CastCompute(KernelContext& context) {
  const View& in = context.inputs[0];
  if (in.pitch == 0) return CastDense(context);
  if (ElementBits(context.outputs[0].type) % 8 != 0) {
    Tensor dense(in.type, in.shape);
    CopyView(in, dense.view());
    KernelContext whole = context;
    whole.inputs = {&dense.view(), 1};
    return CastDense(whole);
  }
  const size_t rank = in.shape.size();
  const Shape block = {in.shape[rank - 2], in.shape[rank - 1]};
  const int64_t size = NumElements(block);
  View from = {in.type, block, in.data}, to = {context.outputs[0].type, block, {}};
  for (int64_t i = 0; size > 0 && i < in.size() / size; ++i) {
    from.data = in.data + NumBytes(in.type, {in.pitch}) * i;
    to.data = context.outputs[0].data + NumBytes(to.type, {size}) * i;
    KernelContext part = context;
    part.inputs = {&from, 1};
    part.outputs = {&to, 1};
    KV_RETURN_IF_ERROR(CastDense(part));
  }
  return absl::OkStatus();
}

absl::Status SetCast(KernelContext& context, int64_t to) {
  const int32_t from = context.inputs[0].type;
  const auto type = static_cast<int32_t>(to);
  if (from != type && (!IsCastable(from) || !IsCastable(type))) {
    return absl::UnimplementedError(
        fmt::format("cast from {} to {}", ElementTypeName(from), ElementTypeName(type)));
  }
  if (type == TensorProto::FLOAT8E8M0 &&
      math::StringAttribute(context, "round_mode", "up") != "up") {
    return absl::UnimplementedError("a cast that does not round up");
  }
  SetSpec(context, 0, type, context.inputs[0].shape);
  return absl::OkStatus();
}

absl::Status CastShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  return SetCast(context, math::IntAttribute(context, "to", 0));
}

absl::Status CastLikeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  return SetCast(context, context.inputs[1].type);
}

constexpr OpDef kCastOps[] = {
    {"", "Cast", 6, CastShape, CastCompute, ViewKind::kNone, 0, nullptr, 1, false, nullptr, 1},
    {"", "CastLike", 15, CastLikeShape, CastCompute, ViewKind::kNone, 0},
};

}  // namespace

absl::Span<const OpDef> CastOps() { return kCastOps; }

}  // namespace kvlift::exec
