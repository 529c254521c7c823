// Pad: a tensor inside a larger or smaller one, with the rest constant or mirrored.
#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "fmt/format.h"

namespace kvlift::exec {
namespace {

using math::HasInput;
using math::NeedInputs;
using math::SetSpec;
using move::DenseStrides;
using move::Ints;
using move::InvalidInput;
using move::Rank;

struct PadPlan {
  Ints before, after;  // by dimension; negative: cropped
};

absl::StatusOr<PadPlan> PlanPad(const KernelContext& context) {
  const View& data = context.inputs[0];
  bool given = false, has_axes = false;
  KV_ASSIGN_OR_RETURN(const Ints pads, move::InputOrAttribute(context, 1, "pads", &given));
  KV_ASSIGN_OR_RETURN(Ints axes, move::InputOrAttribute(context, 3, "axes", &has_axes));
  if (!has_axes) {
    for (int64_t d = 0; d < Rank(data); ++d) axes.push_back(d);
  }
  if (pads.size() != 2 * axes.size()) {
    return InvalidInput("{} pads for {} axes", pads.size(), axes.size());
  }
  PadPlan plan;
  plan.before.assign(data.shape.size(), 0);
  plan.after.assign(data.shape.size(), 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    KV_ASSIGN_OR_RETURN(const int64_t axis, move::NormalizeAxis(context, axes[i], Rank(data)));
    plan.before[axis] = pads[i];
    plan.after[axis] = pads[i + axes.size()];
  }
  return plan;
}

absl::Status PadShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const PadPlan plan, PlanPad(context));
  Shape shape = data.shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (__builtin_add_overflow(shape[d], plan.before[d], &shape[d]) ||
        __builtin_add_overflow(shape[d], plan.after[d], &shape[d]) || shape[d] < 0) {
      return InvalidInput("pads leave dim {} negative or too large", d);
    }
  }
  SetSpec(context, 0, data.type, shape);
  return absl::OkStatus();
}

absl::Status PadConstant(KernelContext& context, const PadPlan& plan) {
  const View& data = context.inputs[0];
  View& out = context.outputs[0];
  if (HasInput(context, 2)) {
    if (context.inputs[2].type != data.type || context.inputs[2].size() != 1) {
      return InvalidInput("the padding value must be one element of the data's type");
    }
    move::FillElements(out.type, out.data, 0, out.size(), context.inputs[2].data, 0);
  } else {
    const float value = math::FloatAttribute(context, "value", 0.0f);
    if (value != 0.0f) {  // opset 10 and earlier
      KV_RETURN_IF_ERROR(math::VisitFloat(out.type, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        std::fill_n(out.as<T>(), out.size(), math::Narrow<T>(value));
        return absl::OkStatus();
      }));
    } else if (out.size() > 0) {
      std::memset(out.data, 0, static_cast<size_t>(out.bytes()));
    }
  }
  const Ints from = DenseStrides(data.shape), to = DenseStrides(out.shape);
  Shape shape = data.shape;
  int64_t from_offset = 0, to_offset = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    from_offset += std::max<int64_t>(0, -plan.before[d]) * from[d];
    to_offset += std::max<int64_t>(0, plan.before[d]) * to[d];
    shape[d] += std::min<int64_t>(0, plan.before[d]) + std::min<int64_t>(0, plan.after[d]);
    if (shape[d] <= 0) return absl::OkStatus();
  }
  move::CopyStrided(out.type, shape, {out.data, to_offset, to}, {data.data, from_offset, from},
                    context.threads);
  return absl::OkStatus();
}

// Returns the source index along a dimension of length n for a position that may be outside.
int64_t Mirror(int64_t i, int64_t n, std::string_view mode) {
  if (mode == "edge") return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == "wrap") return ((i % n) + n) % n;
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1);
  i = ((i % period) + period) % period;
  return i < n ? i : period - i;
}

absl::Status PadCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const PadPlan plan, PlanPad(context));
  const std::string_view mode = math::StringAttribute(context, "mode", "constant");
  if (mode == "constant") return PadConstant(context, plan);
  if (mode != "edge" && mode != "reflect" && mode != "wrap")
    return InvalidInput("mode \"{}\"", mode);
  if (out.size() == 0) return absl::OkStatus();
  if (data.size() == 0) return InvalidInput("mode \"{}\" of an empty tensor", mode);
  const Ints strides = DenseStrides(data.shape);
  Ints index(out.shape.size(), 0);
  for (int64_t i = 0; i < out.size(); ++i) {
    int64_t rest = i, from = 0;
    for (size_t d = out.shape.size(); d-- > 0;) {
      const int64_t position = rest % out.shape[d] - plan.before[d];
      from += Mirror(position, data.shape[d], mode) * strides[d];
      rest /= out.shape[d];
    }
    move::CopyElements(out.type, out.data, i, data.data, from, 1);
  }
  return absl::OkStatus();
}

constexpr OpDef kPadOps[] = {
    {"", "Pad", 2, PadShape, PadCompute},
    {"com.microsoft", "Pad", 1, PadShape, PadCompute},
};

}  // namespace

absl::Span<const OpDef> PadOps() { return kPadOps; }

}  // namespace kvlift::exec
