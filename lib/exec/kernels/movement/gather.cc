// Gather, GatherElements, GatherND, Compress, OneHot.
#include <algorithm>

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

absl::Status NeedIndices(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  if (move::IsIndexType(context.inputs[1].type)) return absl::OkStatus();
  return InvalidInput("indices have type {}", ElementTypeName(context.inputs[1].type));
}

// Returns InvalidArgument unless all indices lie in [-n, n).
absl::Status CheckIndices(const View& indices, int64_t n) {
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t index = IndexAt(indices, i);
    if (index < -n || index >= n) {
      return InvalidInput("index {} is out of range for an axis of {}", index, n);
    }
  }
  return absl::OkStatus();
}

absl::Status GatherShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedIndices(context));
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  Shape shape(data.shape.begin(), data.shape.begin() + axis);
  shape.insert(shape.end(), context.inputs[1].shape.begin(), context.inputs[1].shape.end());
  shape.insert(shape.end(), data.shape.begin() + axis + 1, data.shape.end());
  SetSpec(context, 0, data.type, shape);
  return absl::OkStatus();
}

absl::Status GatherCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  const View& indices = context.inputs[1];
  const View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  const auto a = static_cast<size_t>(axis);
  const int64_t n = data.shape[a], count = indices.size();
  KV_RETURN_IF_ERROR(CheckIndices(indices, n));
  const int64_t outer = Product(data.shape, 0, a);
  const int64_t inner = Product(data.shape, a + 1, data.shape.size());
  const bool packed = ElementBits(data.type) < 8;  // neighbouring elements share bytes
  math::ParallelFor(packed ? 1 : context.threads, outer * count, 1,
                    std::max<int64_t>(1, 65536 / std::max<int64_t>(1, inner)),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        int64_t index = IndexAt(indices, i % count);
                        if (index < 0) index += n;
                        move::CopyElements(out.type, out.data, i * inner, data.data,
                                           (i / count * n + index) * inner, inner);
                      }
                    });
  return absl::OkStatus();
}

absl::Status GatherElementsShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedIndices(context));
  const View& data = context.inputs[0];
  const View& indices = context.inputs[1];
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  bool fits = indices.shape.size() == data.shape.size();
  for (size_t d = 0; fits && d < data.shape.size(); ++d) {
    fits = static_cast<int64_t>(d) == axis || indices.shape[d] <= data.shape[d];
  }
  if (!fits) {
    return InvalidInput("indices {} do not fit data {}", ShapeString(indices.shape),
                        ShapeString(data.shape));
  }
  SetSpec(context, 0, data.type, indices.shape);
  return absl::OkStatus();
}

absl::Status GatherElementsCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  const View& indices = context.inputs[1];
  const View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  KV_RETURN_IF_ERROR(CheckIndices(indices, data.shape[axis]));
  const Ints strides = move::DenseStrides(data.shape);
  for (int64_t i = 0; i < out.size(); ++i) {
    int64_t rest = i, from = 0;
    for (int64_t d = Rank(data) - 1; d >= 0; --d) {
      int64_t position = rest % out.shape[d];
      rest /= out.shape[d];
      if (d == axis) {
        position = IndexAt(indices, i);
        if (position < 0) position += data.shape[d];
      }
      from += position * strides[d];
    }
    move::CopyElements(out.type, out.data, i, data.data, from, 1);
  }
  return absl::OkStatus();
}

absl::Status GatherNdShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedIndices(context));
  const View& data = context.inputs[0];
  const View& indices = context.inputs[1];
  const int64_t batch = math::IntAttribute(context, "batch_dims", 0);
  const int64_t depth = indices.shape.empty() ? 0 : indices.shape.back();
  bool fits = batch >= 0 && batch < std::min(Rank(data), Rank(indices)) && depth >= 1 &&
              batch + depth <= Rank(data);
  for (int64_t d = 0; fits && d < batch; ++d) fits = data.shape[d] == indices.shape[d];
  if (!fits) {
    return InvalidInput("indices {} do not fit data {} with {} batch dims",
                        ShapeString(indices.shape), ShapeString(data.shape), batch);
  }
  Shape shape(indices.shape.begin(), indices.shape.end() - 1);
  shape.insert(shape.end(), data.shape.begin() + batch + depth, data.shape.end());
  SetSpec(context, 0, data.type, shape);
  return absl::OkStatus();
}

absl::Status GatherNdCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  const View& indices = context.inputs[1];
  const View& out = context.outputs[0];
  const auto batch = static_cast<size_t>(math::IntAttribute(context, "batch_dims", 0));
  const auto depth = static_cast<size_t>(indices.shape.back());
  const int64_t batches = Product(data.shape, 0, batch);
  const int64_t tuples = Product(indices.shape, batch, indices.shape.size() - 1);
  const int64_t inner = Product(data.shape, batch + depth, data.shape.size());
  int64_t next = 0;
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t t = 0; t < tuples; ++t) {
      int64_t at = b;
      for (size_t d = 0; d < depth; ++d) {
        const int64_t n = data.shape[batch + d];
        int64_t index = IndexAt(indices, next++);
        if (index < -n || index >= n) {
          return InvalidInput("index {} is out of range for an axis of {}", index, n);
        }
        at = at * n + (index < 0 ? index + n : index);
      }
      move::CopyElements(out.type, out.data, (b * tuples + t) * inner, data.data, at * inner,
                         inner);
    }
  }
  return absl::OkStatus();
}

// The axis (the tensor is flattened if there is none), and the slices that are kept.
struct CompressPlan {
  Shape shape;
  int64_t axis = 0;
  Ints kept;
};

absl::StatusOr<CompressPlan> PlanCompress(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const View& data = context.inputs[0];
  const View& condition = context.inputs[1];
  CompressPlan plan;
  plan.shape = {data.size()};
  if (math::FindAttribute(context, "axis") != nullptr) {
    plan.shape = data.shape;
    KV_ASSIGN_OR_RETURN(plan.axis, move::Axis(context, "axis", 0, Rank(data)));
  }
  if (condition.type != onnx::TensorProto::BOOL || condition.shape.size() != 1 ||
      condition.size() > plan.shape[plan.axis]) {
    return InvalidInput("condition {} does not fit", ShapeString(condition.shape));
  }
  for (int64_t i = 0; i < condition.size(); ++i) {
    if (condition.as<uint8_t>()[i] != 0) plan.kept.push_back(i);
  }
  return plan;
}

absl::Status CompressShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(CompressPlan plan, PlanCompress(context));
  plan.shape[plan.axis] = static_cast<int64_t>(plan.kept.size());
  SetSpec(context, 0, context.inputs[0].type, plan.shape);
  return absl::OkStatus();
}

absl::Status CompressCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const CompressPlan plan, PlanCompress(context));
  const View& out = context.outputs[0];
  const auto a = static_cast<size_t>(plan.axis);
  const int64_t inner = Product(plan.shape, a + 1, plan.shape.size());
  int64_t to = 0;
  for (int64_t outer = 0; outer < Product(plan.shape, 0, a); ++outer) {
    for (const int64_t i : plan.kept) {
      move::CopyElements(out.type, out.data, to, context.inputs[0].data,
                         (outer * plan.shape[a] + i) * inner, inner);
      to += inner;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> OneHotDepth(const KernelContext& context) {
  const View& depth = context.inputs[1];
  if (depth.size() != 1) return InvalidInput("depth has shape {}", ShapeString(depth.shape));
  const double value = ElementAsDouble(depth, 0);
  if (!(value >= 1 && value < 1e15)) return InvalidInput("depth {}", value);
  return static_cast<int64_t>(value);
}

absl::Status OneHotShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 3));
  const View& indices = context.inputs[0];
  if (context.inputs[2].size() != 2) return InvalidInput("values must be [off, on]");
  KV_ASSIGN_OR_RETURN(const int64_t depth, OneHotDepth(context));
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", -1, Rank(indices) + 1));
  Shape shape = indices.shape;
  shape.insert(shape.begin() + axis, depth);
  SetSpec(context, 0, context.inputs[2].type, shape);
  return absl::OkStatus();
}

absl::Status OneHotCompute(KernelContext& context) {
  const View& indices = context.inputs[0];
  const View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t depth, OneHotDepth(context));
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", -1, Rank(indices) + 1));
  const int64_t inner = Product(indices.shape, static_cast<size_t>(axis), indices.shape.size());
  move::FillElements(out.type, out.data, 0, out.size(), context.inputs[2].data, 0);
  for (int64_t i = 0; i < indices.size(); ++i) {
    const double value = ElementAsDouble(indices, i);
    // An index out of range gives a row of `off` values.
    if (!(value >= static_cast<double>(-depth) && value < static_cast<double>(depth))) continue;
    auto hot = static_cast<int64_t>(value);
    if (hot < 0) hot += depth;
    const int64_t at = (i / inner * depth + hot) * inner + i % inner;
    move::CopyElements(out.type, out.data, at, context.inputs[2].data, 1, 1);
  }
  return absl::OkStatus();
}

constexpr OpDef kGatherOps[] = {
    {"", "Compress", 9, CompressShape, CompressCompute},
    {"", "Gather", 1, GatherShape, GatherCompute},
    {"", "GatherElements", 11, GatherElementsShape, GatherElementsCompute},
    {"", "GatherND", 11, GatherNdShape, GatherNdCompute},
    {"", "OneHot", 9, OneHotShape, OneHotCompute},
};

}  // namespace

absl::Span<const OpDef> GatherOps() { return kGatherOps; }

}  // namespace kvlift::exec
