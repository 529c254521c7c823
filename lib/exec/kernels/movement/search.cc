// TopK, ArgMax, ArgMin, NonZero, CumSum, CumProd.
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

using math::IntAttribute;
using math::NeedInputs;
using math::SetSpec;
using math::Widen;
using move::InvalidInput;
using move::Product;
using move::Rank;
using onnx::TensorProto;

// A tensor as [outer, n, inner] around an axis.
struct Lines {
  int64_t outer, n, inner;
};

Lines Around(const Shape& shape, int64_t axis) {
  const auto a = static_cast<size_t>(axis);
  return {Product(shape, 0, a), shape[a], Product(shape, a + 1, shape.size())};
}

// A total order in which NaN is larger than all other values.
template <typename T>
bool Above(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
  }
  return a > b;
}

absl::StatusOr<int64_t> TopKCount(const KernelContext& context) {
  if (context.opset < 10) return IntAttribute(context, "k", 0);
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  if (!move::IsIndexType(context.inputs[1].type) || context.inputs[1].shape != Shape{1}) {
    return InvalidInput("k must be a vector of one int64");
  }
  return move::IndexAt(context.inputs[1], 0);
}

absl::Status TopKShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t k, TopKCount(context));
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", -1, Rank(data)));
  if (k < 0 || k > data.shape[axis]) return InvalidInput("k is {} of {}", k, data.shape[axis]);
  Shape shape = data.shape;
  shape[axis] = k;
  SetSpec(context, 0, data.type, shape);
  SetSpec(context, 1, TensorProto::INT64, shape);
  return absl::OkStatus();
}

template <typename T>
void TopKTyped(KernelContext& context, const Lines& lines, int64_t k) {
  const bool largest = IntAttribute(context, "largest", 1) != 0;
  const T* x = context.inputs[0].as<T>();
  ScratchScope scratch;
  int64_t* order = scratch.Get<int64_t>(lines.n);
  for (int64_t line = 0; line < lines.outer * lines.inner; ++line) {
    const int64_t at = line / lines.inner * lines.n * lines.inner + line % lines.inner;
    for (int64_t i = 0; i < lines.n; ++i) order[i] = i;
    std::partial_sort(order, order + k, order + lines.n, [&](int64_t i, int64_t j) {
      const auto a = Widen(x[at + i * lines.inner]), b = Widen(x[at + j * lines.inner]);
      if (largest ? Above(a, b) : Above(b, a)) return true;
      if (largest ? Above(b, a) : Above(a, b)) return false;
      return i < j;
    });
    const int64_t to = line / lines.inner * k * lines.inner + line % lines.inner;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t target = to + i * lines.inner;
      if (math::WantsOutput(context, 0)) {
        context.outputs[0].as<T>()[target] = x[at + order[i] * lines.inner];
      }
      if (math::WantsOutput(context, 1)) context.outputs[1].as<int64_t>()[target] = order[i];
    }
  }
}

absl::Status TopKCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t k, TopKCount(context));
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", -1, Rank(data)));
  return math::VisitNumeric(data.type, [&](auto tag) {
    TopKTyped<typename decltype(tag)::Type>(context, Around(data.shape, axis), k);
    return absl::OkStatus();
  });
}

absl::Status ArgShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  if (data.shape[axis] == 0) return InvalidInput("axis {} is empty", axis);
  Shape shape = data.shape;
  if (IntAttribute(context, "keepdims", 1) != 0) {
    shape[axis] = 1;
  } else {
    shape.erase(shape.begin() + axis);
  }
  SetSpec(context, 0, TensorProto::INT64, shape);
  return absl::OkStatus();
}

template <bool kMax>
absl::Status ArgCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  const Lines lines = Around(data.shape, axis);
  const bool last = IntAttribute(context, "select_last_index", 0) != 0;
  int64_t* out = context.outputs[0].as<int64_t>();
  return math::VisitNumeric(data.type, [&](auto tag) {
    const auto* x = data.as<typename decltype(tag)::Type>();
    for (int64_t line = 0; line < lines.outer * lines.inner; ++line) {
      const auto* row = x + line / lines.inner * lines.n * lines.inner + line % lines.inner;
      int64_t best = 0;
      for (int64_t i = 1; i < lines.n; ++i) {
        const auto a = Widen(row[i * lines.inner]), b = Widen(row[best * lines.inner]);
        const bool better = kMax ? Above(a, b) : Above(b, a);
        const bool worse = kMax ? Above(b, a) : Above(a, b);
        if (better || (last && !worse)) best = i;
      }
      out[line] = best;
    }
    return absl::OkStatus();
  });
}

template <typename F>
absl::Status ForEachNonZero(const View& data, const F& f) {
  const int32_t type = data.type == TensorProto::BOOL ? int32_t{TensorProto::UINT8} : data.type;
  return math::VisitNumeric(type, [&](auto tag) {
    const auto* x = data.as<typename decltype(tag)::Type>();
    for (int64_t i = 0; i < data.size(); ++i) {
      if (Widen(x[i]) != 0) f(i);
    }
    return absl::OkStatus();
  });
}

absl::Status NonZeroShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  int64_t count = 0;
  KV_RETURN_IF_ERROR(ForEachNonZero(context.inputs[0], [&](int64_t) { ++count; }));
  SetSpec(context, 0, TensorProto::INT64, {Rank(context.inputs[0]), count});
  return absl::OkStatus();
}

absl::Status NonZeroCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  int64_t* out = context.outputs[0].as<int64_t>();
  if (data.shape.empty()) return absl::OkStatus();
  const int64_t count = context.outputs[0].shape[1];
  int64_t k = 0;
  return ForEachNonZero(data, [&](int64_t i) {
    for (size_t d = data.shape.size(); d-- > 0;) {
      out[static_cast<int64_t>(d) * count + k] = i % data.shape[d];
      i /= data.shape[d];
    }
    ++k;
  });
}

absl::StatusOr<int64_t> CumulativeAxis(const KernelContext& context) {
  if (!move::IsIndexType(context.inputs[1].type) || context.inputs[1].size() != 1) {
    return InvalidInput("axis must be one int64 or int32");
  }
  return move::NormalizeAxis(context, move::IndexAt(context.inputs[1], 0), Rank(context.inputs[0]));
}

absl::Status CumulativeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  KV_RETURN_IF_ERROR(CumulativeAxis(context).status());
  return math::SameAsInput(context);
}

template <bool kProduct>
absl::Status CumulativeCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis, CumulativeAxis(context));
  const Lines lines = Around(data.shape, axis);
  const bool exclusive = IntAttribute(context, "exclusive", 0) != 0;
  const bool reverse = IntAttribute(context, "reverse", 0) != 0;
  return math::VisitNumeric(data.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = math::Compute<T>;
    const T* x = data.as<T>();
    T* y = context.outputs[0].as<T>();
    for (int64_t line = 0; line < lines.outer * lines.inner; ++line) {
      const int64_t at = line / lines.inner * lines.n * lines.inner + line % lines.inner;
      C all = static_cast<C>(kProduct ? 1 : 0);
      for (int64_t i = 0; i < lines.n; ++i) {
        const int64_t k = at + (reverse ? lines.n - 1 - i : i) * lines.inner;
        const C value = Widen(x[k]);
        if (exclusive) y[k] = math::Narrow<T>(all);
        all = static_cast<C>(kProduct ? all * value : all + value);
        if (!exclusive) y[k] = math::Narrow<T>(all);
      }
    }
    return absl::OkStatus();
  });
}

constexpr OpDef kSearchOps[] = {
    {"", "ArgMax", 1, ArgShape, ArgCompute<true>},
    {"", "ArgMin", 1, ArgShape, ArgCompute<false>},
    {"", "CumProd", 26, CumulativeShape, CumulativeCompute<true>, ViewKind::kNone, 0},
    {"", "CumSum", 11, CumulativeShape, CumulativeCompute<false>, ViewKind::kNone, 0},
    {"", "NonZero", 9, NonZeroShape, NonZeroCompute},
    {"", "TopK", 1, TopKShape, TopKCompute},
};

}  // namespace

absl::Span<const OpDef> SearchOps() { return kSearchOps; }

}  // namespace kvlift::exec
