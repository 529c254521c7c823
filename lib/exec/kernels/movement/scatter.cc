// ScatterND and ScatterElements. All indices are checked before the first element is written, since
// the output may be a cache.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using math::NeedInputs;
using math::SetSpec;
using move::IndexAt;
using move::Ints;
using move::InvalidInput;
using move::Product;
using move::Rank;
using onnx::TensorProto;

enum class Reduction { kNone, kAdd, kMul, kMax, kMin };

absl::StatusOr<Reduction> ReadReduction(const KernelContext& context) {
  const std::string_view name = math::StringAttribute(context, "reduction", "none");
  if (name == "none") return Reduction::kNone;
  if (name == "add") return Reduction::kAdd;
  if (name == "mul") return Reduction::kMul;
  if (name == "max") return Reduction::kMax;
  if (name == "min") return Reduction::kMin;
  return InvalidInput("reduction \"{}\"", name);
}

template <typename T>
T Pick(T a, T b, bool larger) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
  }
  return (a < b) == larger ? b : a;
}

template <typename T>
void ReduceInto(Reduction reduction, T* target, const T* source, int64_t count) {
  using C = math::Compute<T>;
  for (int64_t i = 0; i < count; ++i) {
    const C a = math::Widen(target[i]), b = math::Widen(source[i]);
    C result{};
    switch (reduction) {
      case Reduction::kAdd:
        result = static_cast<C>(a + b);
        break;
      case Reduction::kMul:
        result = static_cast<C>(a * b);
        break;
      case Reduction::kMax:
        result = Pick(a, b, true);
        break;
      default:
        result = Pick(a, b, false);
    }
    target[i] = math::Narrow<T>(result);
  }
}

// Combines `count` contiguous elements.
absl::Status Combine(Reduction reduction, const View& out, int64_t at, const View& updates,
                     int64_t from, int64_t count) {
  if (reduction == Reduction::kNone) {
    move::CopyElements(out.type, out.data, at, updates.data, from, count);
    return absl::OkStatus();
  }
  if (out.type == TensorProto::BOOL) {  // add and max are "or"; mul and min are "and"
    for (int64_t i = 0; i < count; ++i) {
      uint8_t& a = out.as<uint8_t>()[at + i];
      const uint8_t b = updates.as<uint8_t>()[from + i];
      a = reduction == Reduction::kAdd || reduction == Reduction::kMax ? a | b : a & b;
    }
    return absl::OkStatus();
  }
  return math::VisitNumeric(out.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    ReduceInto<T>(reduction, out.as<T>() + at, updates.as<T>() + from, count);
    return absl::OkStatus();
  });
}

absl::Status CheckOperands(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  if (!move::IsIndexType(context.inputs[1].type)) {
    return InvalidInput("indices have type {}", ElementTypeName(context.inputs[1].type));
  }
  if (context.inputs[2].type != context.inputs[0].type) {
    return InvalidInput("updates have type {}, data {}", ElementTypeName(context.inputs[2].type),
                        ElementTypeName(context.inputs[0].type));
  }
  return absl::OkStatus();
}

void CopyData(const View& data, const View& out) {
  if (out.data != data.data && data.size() > 0) {
    std::memcpy(out.data, data.data, static_cast<size_t>(data.bytes()));
  }
}

absl::Status ScatterNdShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(CheckOperands(context));
  const View& data = context.inputs[0];
  const View& indices = context.inputs[1];
  const int64_t depth = indices.shape.empty() ? 0 : indices.shape.back();
  if (depth < 1 || depth > Rank(data)) {
    return InvalidInput("indices {} do not fit data {}", ShapeString(indices.shape),
                        ShapeString(data.shape));
  }
  Shape wanted(indices.shape.begin(), indices.shape.end() - 1);
  wanted.insert(wanted.end(), data.shape.begin() + depth, data.shape.end());
  if (context.inputs[2].shape != wanted) {
    return InvalidInput("updates have shape {}, {} needed", ShapeString(context.inputs[2].shape),
                        ShapeString(wanted));
  }
  SetSpec(context, 0, data.type, data.shape);
  return absl::OkStatus();
}

absl::Status ScatterNdCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  const View& indices = context.inputs[1];
  const View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const Reduction reduction, ReadReduction(context));
  const auto depth = static_cast<size_t>(indices.shape.back());
  const int64_t tuples = Product(indices.shape, 0, indices.shape.size() - 1);
  const int64_t inner = Product(data.shape, depth, data.shape.size());
  for (int64_t i = 0; i < tuples * static_cast<int64_t>(depth); ++i) {
    const int64_t n = data.shape[i % static_cast<int64_t>(depth)], index = IndexAt(indices, i);
    if (index < -n || index >= n) {
      return InvalidInput("index {} is out of range for an axis of {}", index, n);
    }
  }
  CopyData(data, out);
  int64_t next = 0;
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t at = 0;
    for (size_t d = 0; d < depth; ++d) {
      const int64_t index = IndexAt(indices, next++);
      at = at * data.shape[d] + (index < 0 ? index + data.shape[d] : index);
    }
    KV_RETURN_IF_ERROR(Combine(reduction, out, at * inner, context.inputs[2], t * inner, inner));
  }
  return absl::OkStatus();
}

absl::Status ScatterElementsShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(CheckOperands(context));
  const View& data = context.inputs[0];
  const View& indices = context.inputs[1];
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  bool fits = indices.shape.size() == data.shape.size() && indices.shape == context.inputs[2].shape;
  for (size_t d = 0; fits && d < data.shape.size(); ++d) {
    fits = static_cast<int64_t>(d) == axis || indices.shape[d] <= data.shape[d];
  }
  if (!fits) {
    return InvalidInput("indices {}, updates {} and data {} do not fit", ShapeString(indices.shape),
                        ShapeString(context.inputs[2].shape), ShapeString(data.shape));
  }
  SetSpec(context, 0, data.type, data.shape);
  return absl::OkStatus();
}

absl::Status ScatterElementsCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  const View& indices = context.inputs[1];
  const View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const Reduction reduction, ReadReduction(context));
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  const int64_t n = data.shape[axis];
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t index = IndexAt(indices, i);
    if (index < -n || index >= n) {
      return InvalidInput("index {} is out of range for an axis of {}", index, n);
    }
  }
  CopyData(data, out);
  const Ints strides = move::DenseStrides(data.shape);
  for (int64_t i = 0; i < indices.size(); ++i) {
    int64_t rest = i, at = 0;
    for (int64_t d = Rank(data) - 1; d >= 0; --d) {
      int64_t position = rest % indices.shape[d];
      rest /= indices.shape[d];
      if (d == axis) {
        position = IndexAt(indices, i);
        if (position < 0) position += n;
      }
      at += position * strides[d];
    }
    KV_RETURN_IF_ERROR(Combine(reduction, out, at, context.inputs[2], i, 1));
  }
  return absl::OkStatus();
}

constexpr OpDef kScatterOps[] = {
    {"", "Scatter", 9, ScatterElementsShape, ScatterElementsCompute, ViewKind::kNone, 0},
    {"", "ScatterElements", 11, ScatterElementsShape, ScatterElementsCompute, ViewKind::kNone, 0},
    {"", "ScatterND", 11, ScatterNdShape, ScatterNdCompute, ViewKind::kNone, 0},
};

}  // namespace

absl::Span<const OpDef> ScatterOps() { return kScatterOps; }

}  // namespace kvlift::exec
