// Comparisons, boolean operators, Where, IsNaN, IsInf.
#include <algorithm>
#include <cmath>
#include <functional>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "exec/kernels/elementwise/elementwise.h"
#include "exec/memory/small_types.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using math::NeedInputs;
using math::SetSpec;
using move::Ints;
using move::InvalidInput;
using onnx::TensorProto;

// Calls f(i, offset of each operand) for output elements [begin, end), row by row.
template <size_t N, typename F>
void ForEachBroadcast(const Shape& out, const Ints (&strides)[N], int64_t begin, int64_t end,
                      const F& f) {
  const size_t rank = out.size();
  const int64_t row = rank == 0 ? 1 : out[rank - 1];
  for (int64_t i = begin; i < end;) {
    int64_t offsets[N] = {}, steps[N] = {};
    int64_t rest = i;
    for (size_t d = rank; d-- > 0;) {
      const int64_t position = rest % out[d];
      rest /= out[d];
      for (size_t k = 0; k < N; ++k) offsets[k] += position * strides[k][d];
    }
    for (size_t k = 0; k < N; ++k) steps[k] = rank == 0 ? 0 : strides[k][rank - 1];
    const int64_t stop = std::min(end, i - i % row + row);
    for (; i < stop; ++i) {
      f(i, offsets);
      for (size_t k = 0; k < N; ++k) offsets[k] += steps[k];
    }
  }
}

constexpr int64_t kPerThread = 1 << 15;

absl::Status BinaryShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const View& a = context.inputs[0];
  const View& b = context.inputs[1];
  if (a.type != b.type) {
    return InvalidInput("operands have types {} and {}", ElementTypeName(a.type),
                        ElementTypeName(b.type));
  }
  Shape shape;
  if (!math::BroadcastShapes(a.shape, b.shape, &shape)) {
    return InvalidInput("{} does not broadcast with {}", ShapeString(a.shape),
                        ShapeString(b.shape));
  }
  SetSpec(context, 0, TensorProto::BOOL, shape);
  return absl::OkStatus();
}

template <typename T, typename Op>
void BinaryTyped(KernelContext& context, const Op& op) {
  math::MapBinary<T, T, uint8_t>(
      context, [&](auto a, auto b) { return static_cast<uint8_t>(op(a, b) ? 1 : 0); });
}

template <typename Op>
absl::Status Compare(KernelContext& context) {
  if (context.inputs[0].type == TensorProto::BOOL) {
    BinaryTyped<uint8_t>(context, Op());
    return absl::OkStatus();
  }
  return math::VisitNumeric(context.inputs[0].type, [&](auto tag) {
    BinaryTyped<typename decltype(tag)::Type>(context, Op());
    return absl::OkStatus();
  });
}

absl::Status BoolShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(BinaryShape(context));
  if (context.inputs[0].type == TensorProto::BOOL) return absl::OkStatus();
  return InvalidInput("operands have type {}, bool needed",
                      ElementTypeName(context.inputs[0].type));
}

template <typename Op>
absl::Status BoolBinary(KernelContext& context) {
  BinaryTyped<uint8_t>(context, Op());
  return absl::OkStatus();
}

absl::Status NotShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  if (context.inputs[0].type != TensorProto::BOOL) {
    return InvalidInput("operand has type {}, bool needed",
                        ElementTypeName(context.inputs[0].type));
  }
  return math::SameAsInput(context);
}

absl::Status NotCompute(KernelContext& context) {
  const uint8_t* x = context.inputs[0].as<uint8_t>();
  uint8_t* y = context.outputs[0].as<uint8_t>();
  for (int64_t i = 0; i < context.outputs[0].size(); ++i) y[i] = x[i] == 0 ? 1 : 0;
  return absl::OkStatus();
}

absl::Status WhereShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  const View& condition = context.inputs[0];
  const View& a = context.inputs[1];
  const View& b = context.inputs[2];
  if (condition.type != TensorProto::BOOL || a.type != b.type) {
    return InvalidInput("operands have types {}, {}, {}", ElementTypeName(condition.type),
                        ElementTypeName(a.type), ElementTypeName(b.type));
  }
  Shape shape;
  if (!math::BroadcastShapes(a.shape, b.shape, &shape) ||
      !math::BroadcastShapes(shape, condition.shape, &shape)) {
    return InvalidInput("{}, {}, {} do not broadcast", ShapeString(condition.shape),
                        ShapeString(a.shape), ShapeString(b.shape));
  }
  SetSpec(context, 0, a.type, shape);
  return absl::OkStatus();
}

absl::Status WhereCompute(KernelContext& context) {
  const View& a = context.inputs[1];
  const View& b = context.inputs[2];
  const View& out = context.outputs[0];
  const Ints strides[3] = {math::BroadcastStrides(context.inputs[0].shape, out.shape),
                           math::BroadcastStrides(a.shape, out.shape),
                           math::BroadcastStrides(b.shape, out.shape)};
  const uint8_t* condition = context.inputs[0].as<uint8_t>();
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    math::ParallelFor(context.threads, out.size(), 64, kPerThread, [&](int64_t begin, int64_t end) {
      ForEachBroadcast(out.shape, strides, begin, end, [&](int64_t i, const int64_t* at) {
        out.as<T>()[i] = condition[at[0]] != 0 ? a.as<T>()[at[1]] : b.as<T>()[at[2]];
      });
    });
    return absl::OkStatus();
  };
  switch (ElementBits(out.type)) {
    case 8:
      return run(uint8_t{});
    case 16:
      return run(uint16_t{});
    case 32:
      return run(uint32_t{});
    case 64:
      return run(uint64_t{});
    default:
      break;
  }
  ForEachBroadcast(out.shape, strides, 0, out.size(), [&](int64_t i, const int64_t* at) {
    const bool first = condition[at[0]] != 0;
    move::CopyElements(out.type, out.data, i, first ? a.data : b.data, at[first ? 1 : 2], 1);
  });
  return absl::OkStatus();
}

absl::Status TestShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  SetSpec(context, 0, TensorProto::BOOL, context.inputs[0].shape);
  return absl::OkStatus();
}

template <typename Test>
absl::Status TestFloats(KernelContext& context, const Test& test) {
  if (const View& x = context.inputs[0]; IsSmallFloat(x.type)) {
    for (int64_t i = 0; i < x.size(); ++i) {
      context.outputs[0].as<uint8_t>()[i] = test(SmallFloatAt(x, i)) ? 1 : 0;
    }
    return absl::OkStatus();
  }
  return math::VisitFloat(context.inputs[0].type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const T* x = context.inputs[0].as<T>();
    uint8_t* y = context.outputs[0].as<uint8_t>();
    for (int64_t i = 0; i < context.outputs[0].size(); ++i) y[i] = test(math::Widen(x[i])) ? 1 : 0;
    return absl::OkStatus();
  });
}

absl::Status IsNanCompute(KernelContext& context) {
  return TestFloats(context, [](auto x) { return std::isnan(x); });
}

absl::Status IsInfCompute(KernelContext& context) {
  const bool positive = math::IntAttribute(context, "detect_positive", 1) != 0;
  const bool negative = math::IntAttribute(context, "detect_negative", 1) != 0;
  return TestFloats(context,
                    [=](auto x) { return std::isinf(x) && (x > 0 ? positive : negative); });
}

struct Xor {
  bool operator()(uint8_t a, uint8_t b) const { return (a != 0) != (b != 0); }
};

constexpr OpDef kLogicOps[] = {
    {"", "And", 7, BoolShape, BoolBinary<std::logical_and<>>},
    {"", "Equal", 7, BinaryShape, Compare<std::equal_to<>>},
    {"", "Greater", 7, BinaryShape, Compare<std::greater<>>},
    {"", "GreaterOrEqual", 12, BinaryShape, Compare<std::greater_equal<>>},
    {"", "IsInf", 10, TestShape, IsInfCompute},
    {"", "IsNaN", 9, TestShape, IsNanCompute},
    {"", "Less", 7, BinaryShape, Compare<std::less<>>},
    {"", "LessOrEqual", 12, BinaryShape, Compare<std::less_equal<>>},
    {"", "Not", 1, NotShape, NotCompute, ViewKind::kNone, 0},
    {"", "Or", 7, BoolShape, BoolBinary<std::logical_or<>>},
    {"", "Where", 9, WhereShape, WhereCompute},
    {"", "Xor", 7, BoolShape, BoolBinary<Xor>},
};

}  // namespace

absl::Span<const OpDef> LogicOps() { return kLogicOps; }

}  // namespace kvlift::exec
