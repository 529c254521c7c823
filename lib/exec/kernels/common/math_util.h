// Helpers of the math kernels: element types with their compute type, attributes, broadcasting, and
// independent outputs split over threads.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "exec/kernels/common/gemm_isa.h"
#include "exec/kernels/common/kernel.h"
#include "exec/memory/scratch.h"
#include "exec/memory/team.h"
#include "exec/memory/tensor.h"

namespace kvlift::exec::math {

// float16 and bfloat16 elements. Kernels compute in float and round once per operator result.
struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

template <typename T>
inline constexpr bool kIsSmallFloat = std::is_same_v<T, Half> || std::is_same_v<T, Bfloat>;
template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T> || kIsSmallFloat<T>;
template <typename T>
using Compute = std::conditional_t<kIsSmallFloat<T>, float, T>;

template <typename T>
inline Compute<T> Widen(T x) {
  return x;
}
inline float Widen(Half x) { return HalfToFloat(x.bits); }
inline float Widen(Bfloat x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof(f));
  return f;
}

template <typename T>
inline T Narrow(Compute<T> x) {
  if constexpr (std::is_same_v<T, Half>) {
    return {FloatToHalf(x)};
  } else if constexpr (std::is_same_v<T, Bfloat>) {
    return {FloatToBfloat(x)};
  } else {
    return x;
  }
}

// Converts whole arrays; copies if T is its own compute type.
template <typename T>
void WidenArray(const T* x, int64_t n, Compute<T>* y) {
  if constexpr (std::is_same_v<T, Half>) {
    Isa().convert.half_to_float(reinterpret_cast<const uint16_t*>(x), n, y);
  } else if constexpr (std::is_same_v<T, Bfloat>) {
    Isa().convert.bfloat_to_float(reinterpret_cast<const uint16_t*>(x), n, y);
  } else {
    std::copy(x, x + n, y);
  }
}
template <typename T>
void NarrowArray(const Compute<T>* x, int64_t n, T* y) {
  if constexpr (std::is_same_v<T, Half>) {
    Isa().convert.float_to_half(x, n, reinterpret_cast<uint16_t*>(y));
  } else if constexpr (std::is_same_v<T, Bfloat>) {
    Isa().convert.float_to_bfloat(x, n, reinterpret_cast<uint16_t*>(y));
  } else {
    std::copy(x, x + n, y);
  }
}

template <typename T>
struct TypeTag {
  using Type = T;
};

// Calls f(TypeTag<T>) for the element type: VisitFloat for floating-point types, VisitNumeric for
// integers too. Returns Unimplemented for other types.
template <typename F>
absl::Status VisitFloat(int32_t type, F&& f) {
  switch (type) {
    case onnx::TensorProto::FLOAT:
      return f(TypeTag<float>());
    case onnx::TensorProto::DOUBLE:
      return f(TypeTag<double>());
    case onnx::TensorProto::FLOAT16:
      return f(TypeTag<Half>());
    case onnx::TensorProto::BFLOAT16:
      return f(TypeTag<Bfloat>());
    default:
      return absl::UnimplementedError("element type " + std::to_string(type) +
                                      " is not supported here");
  }
}
template <typename F>
absl::Status VisitNumeric(int32_t type, F&& f) {
  switch (type) {
    case onnx::TensorProto::INT8:
      return f(TypeTag<int8_t>());
    case onnx::TensorProto::UINT8:
      return f(TypeTag<uint8_t>());
    case onnx::TensorProto::INT16:
      return f(TypeTag<int16_t>());
    case onnx::TensorProto::UINT16:
      return f(TypeTag<uint16_t>());
    case onnx::TensorProto::INT32:
      return f(TypeTag<int32_t>());
    case onnx::TensorProto::UINT32:
      return f(TypeTag<uint32_t>());
    case onnx::TensorProto::INT64:
      return f(TypeTag<int64_t>());
    case onnx::TensorProto::UINT64:
      return f(TypeTag<uint64_t>());
    default:
      return VisitFloat(type, std::forward<F>(f));
  }
}

// Return InvalidArgument and Unimplemented, with the names of operator and node.
absl::Status Invalid(const KernelContext& context, std::string_view what);
absl::Status Unsupported(const KernelContext& context, std::string_view what);

const onnx::AttributeProto* FindInNode(const onnx::NodeProto& node, std::string_view name);
// Inline, so that HeadOf of a literal name is a constant.
inline const onnx::AttributeProto* FindAttribute(const KernelContext& context,
                                                 std::string_view name) {
  if (context.attributes == nullptr) return FindInNode(context.node, name);
  return context.attributes->Find(HeadOf(name), name);
}
inline int64_t IntAttribute(const KernelContext& context, std::string_view name, int64_t fallback) {
  const onnx::AttributeProto* a = FindAttribute(context, name);
  return a != nullptr ? a->i() : fallback;
}
inline float FloatAttribute(const KernelContext& context, std::string_view name, float fallback) {
  const onnx::AttributeProto* a = FindAttribute(context, name);
  return a != nullptr ? a->f() : fallback;
}
inline std::string_view StringAttribute(const KernelContext& context, std::string_view name,
                                        std::string_view fallback) {
  const onnx::AttributeProto* a = FindAttribute(context, name);
  return a != nullptr ? std::string_view(a->s()) : fallback;
}

inline bool HasInput(const KernelContext& context, size_t i) {
  return i < context.inputs.size() && !context.inputs[i].absent();
}
inline bool WantsOutput(const KernelContext& context, size_t i) {
  return i < context.outputs.size() && !context.outputs[i].absent();
}
// Returns InvalidArgument unless the first `count` inputs are present.
absl::Status NeedInputs(const KernelContext& context, size_t count);
// Sets the type and shape of one output; used by shape functions.
void SetSpec(KernelContext& context, size_t output, int32_t type, Shape shape);

// Shape function of elementwise operators: output 0 has the type and shape of input 0.
absl::Status SameAsInput(KernelContext& context);

// Computes the shape of numpy broadcasting. Returns false if the shapes do not broadcast.
bool BroadcastShapes(const Shape& a, const Shape& b, Shape* out);
// Returns the element strides of `shape` broadcast to `out`, 0 along broadcast dimensions.
absl::InlinedVector<int64_t, 6> BroadcastStrides(const Shape& shape, const Shape& out);

// Returns the axis in [0, rank), or -1 if it is out of range.
inline int64_t NormalAxis(int64_t axis, int64_t rank) {
  if (axis < 0) axis += rank;
  return axis >= 0 && axis < rank ? axis : -1;
}

// Calls f(begin, end) on disjoint ranges of [0, n) whose bounds are multiples of `grain`; several
// ranges have at least `least` elements each. The ranges depend on the number of threads, so
// results must not depend on how elements are divided.
template <typename F>
void ParallelFor(int threads, int64_t n, int64_t grain, int64_t least, F&& f) {
  constexpr int64_t kRunsPerThread = 2;
  const int64_t blocks = (n + grain - 1) / grain;
  const int64_t most = threads <= 1 ? 1 : kRunsPerThread * threads;
  const int64_t runs = std::min({most, blocks, n / std::max<int64_t>(1, least)});
  if (runs <= 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
  RunUnits(threads, runs, [&](int64_t run) {
    const int64_t begin = std::min(n, blocks * run / runs * grain);
    const int64_t end = std::min(n, blocks * (run + 1) / runs * grain);
    if (begin < end) f(begin, end);
  });
}

// Calls f(unit) for independent units of unequal cost, which threads claim one by one.
template <typename F>
void ParallelUnits(int threads, int64_t units, F&& f) {
  RunUnits(threads, units, f);
}

}  // namespace kvlift::exec::math
