// Normalisations with a scale per channel, the second dimension: BatchNormalization,
// InstanceNormalization and GroupNormalization; and LpNormalization.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "ir/operators/operator_traits.h"

namespace kvlift::exec {
namespace {

using namespace math;  // NOLINT

// Checks that X is [B, channels, ...] and that inputs 1 to `vectors` have `size` elements each.
absl::Status CheckChannels(const KernelContext& context, size_t vectors, int64_t size) {
  KV_RETURN_IF_ERROR(NeedInputs(context, vectors + 1));
  for (size_t i = 1; i <= vectors; ++i) {
    if (context.inputs[i].shape != Shape({size})) {
      return Invalid(context, fmt::format("input {} must have {} elements", i, size));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Channels(const KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const Shape& x = context.inputs[0].shape;
  if (x.empty()) return Invalid(context, "a scalar");
  return x.size() == 1 ? 1 : x[1];
}

absl::Status BatchShape(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const int64_t channels, Channels(context));
  if (IsTrainingNormalization(context.node)) {
    return Unsupported(context, "training is not supported");
  }
  KV_RETURN_IF_ERROR(CheckChannels(context, 4, channels));
  return SameAsInput(context);
}

// Y = (X - mean) / sqrt(variance + epsilon) * scale + bias.
absl::Status BatchCompute(KernelContext& context) {
  const View& x = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t channels, Channels(context));
  const int64_t inner = x.shape.size() < 2 ? 1 : move::Product(x.shape, 2, x.shape.size());
  return VisitFloat(x.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    const C epsilon = FloatAttribute(context, "epsilon", 1e-5f);
    const auto at = [&](size_t input, int64_t channel) {
      return static_cast<C>(ElementAsDouble(context.inputs[input], channel));
    };
    for (int64_t i = 0; i < x.size(); ++i) {
      const int64_t c = i / inner % channels;
      const C normal = (Widen(x.as<T>()[i]) - at(3, c)) / std::sqrt(at(4, c) + epsilon);
      context.outputs[0].as<T>()[i] = Narrow<T>(normal * at(1, c) + at(2, c));
    }
    return absl::OkStatus();
  });
}

// Groups of neighbouring channels are normalised together. Scale and bias are per channel or, in
// GroupNormalization-18, per group.
struct GroupPlan {
  int64_t channels = 1, groups = 1;
  bool by_group = false;
};

absl::StatusOr<GroupPlan> PlanGroups(const KernelContext& context) {
  GroupPlan p;
  KV_ASSIGN_OR_RETURN(p.channels, Channels(context));
  const bool instance = context.node.op_type() == "InstanceNormalization";
  p.groups = instance ? p.channels : IntAttribute(context, "num_groups", 0);
  p.by_group = !instance && context.opset < 21;
  if (context.inputs[0].shape.size() < 2 || p.groups < 1 || p.channels % p.groups != 0) {
    return Invalid(context, "the groups do not fit");
  }
  KV_RETURN_IF_ERROR(CheckChannels(context, 2, p.by_group ? p.groups : p.channels));
  return p;
}

absl::Status GroupShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(PlanGroups(context).status());
  return SameAsInput(context);
}

absl::Status GroupCompute(KernelContext& context) {
  KV_ASSIGN_OR_RETURN(const GroupPlan p, PlanGroups(context));
  const View& x = context.inputs[0];
  if (x.size() == 0) return absl::OkStatus();
  const int64_t inner = move::Product(x.shape, 2, x.shape.size());
  const int64_t size = p.channels / p.groups * inner;
  return VisitFloat(x.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    const C epsilon = FloatAttribute(context, "epsilon", 1e-5f);
    const auto at = [&](size_t input, int64_t group, int64_t i) {
      const int64_t channel = group * (p.channels / p.groups) + i / inner;
      return static_cast<C>(ElementAsDouble(context.inputs[input], p.by_group ? group : channel));
    };
    ScratchScope scratch;
    C* row = scratch.Get<C>(size);
    for (int64_t unit = 0; unit < x.shape[0] * p.groups; ++unit) {
      WidenArray(x.as<T>() + unit * size, size, row);
      const C mean = Vectors<C>().sum(row, size) / static_cast<C>(size);
      const C variance = Vectors<C>().sum_centered_squares(row, size, mean) / static_cast<C>(size);
      const C deviation = std::sqrt(variance + epsilon);
      for (int64_t i = 0; i < size; ++i) {
        const int64_t group = unit % p.groups;
        row[i] = (row[i] - mean) / deviation * at(1, group, i) + at(2, group, i);
      }
      NarrowArray(row, size, context.outputs[0].as<T>() + unit * size);
    }
    return absl::OkStatus();
  });
}

absl::Status LpShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const auto rank = static_cast<int64_t>(context.inputs[0].shape.size());
  KV_RETURN_IF_ERROR(move::Axis(context, "axis", -1, rank).status());
  const int64_t p = IntAttribute(context, "p", 2);
  if (p != 1 && p != 2) return Invalid(context, "p must be 1 or 2");
  return SameAsInput(context);
}

// Lines along the axis are divided by their norm; a line of zeros stays as it is.
absl::Status LpCompute(KernelContext& context) {
  const View& x = context.inputs[0];
  const auto rank = static_cast<int64_t>(x.shape.size());
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", -1, rank));
  const bool squares = IntAttribute(context, "p", 2) == 2;
  const int64_t n = x.shape[axis];
  const int64_t inner = move::Product(x.shape, static_cast<size_t>(axis) + 1, x.shape.size());
  if (x.size() == 0) return absl::OkStatus();
  return VisitFloat(x.type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    using C = Compute<T>;
    for (int64_t line = 0; line < x.size() / n; ++line) {
      const int64_t at = line / inner * n * inner + line % inner;
      C norm = 0;
      for (int64_t i = 0; i < n; ++i) {
        const C value = Widen(x.as<T>()[at + i * inner]);
        norm += squares ? value * value : std::fabs(value);
      }
      if (squares) norm = std::sqrt(norm);
      for (int64_t i = 0; i < n; ++i) {
        const C value = Widen(x.as<T>()[at + i * inner]);
        context.outputs[0].as<T>()[at + i * inner] = Narrow<T>(norm == 0 ? value : value / norm);
      }
    }
    return absl::OkStatus();
  });
}

}  // namespace

absl::Span<const OpDef> ChannelNormOps() {
  static const OpDef ops[] = {
      {"", "BatchNormalization", 7, BatchShape, BatchCompute},
      {"", "GroupNormalization", 18, GroupShape, GroupCompute},
      {"", "InstanceNormalization", 6, GroupShape, GroupCompute},
      {"", "LpNormalization", 1, LpShape, LpCompute},
  };
  return ops;
}

}  // namespace kvlift::exec
