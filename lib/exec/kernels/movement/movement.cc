// Concat, Split, Slice, Transpose, Expand, Tile, Trilu: strided copies of any element type.
#include <algorithm>
#include <cstring>
#include <limits>

#include "base/status.h"
#include "exec/kernels/common/math_util.h"
#include "exec/kernels/common/move_util.h"
#include "exec/kernels/common/tables.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

using math::HasInput;
using math::IntAttribute;
using math::NeedInputs;
using math::SetSpec;
using move::DenseStrides;
using move::Ints;
using move::InvalidInput;
using move::Product;
using move::Rank;
using move::StridesOf;

// Returns the part at `offset` with these strides; no part if its elements do not form such blocks.
Part PartOf(int64_t offset, const Shape& shape, absl::Span<const int64_t> strides) {
  Part part = {offset, 0};
  int64_t next = 1;
  for (size_t d = shape.size(); d-- > 0; next *= shape[d]) {
    if (shape[d] == 0) return {0, 0};
    if (shape[d] == 1 || strides[d] == next) continue;
    if (part.pitch != 0 || d + 3 > shape.size() || strides[d] < next) return {};
    // Dimensions of length 1 between this one and the blocks have no stride of their own.
    int64_t blocks = 1;
    for (size_t i = d + 1; i + 2 < shape.size(); ++i) blocks *= shape[i];
    if (blocks != 1) return {};
    part.pitch = next = strides[d];
  }
  return part;
}

absl::Status ConcatShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, std::max<size_t>(1, context.inputs.size())));
  const View& first = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis,
                      move::Axis(context, "axis", context.opset < 4 ? 1 : 0, Rank(first)));
  Shape shape = first.shape;
  for (size_t i = 1; i < context.inputs.size(); ++i) {
    const View& other = context.inputs[i];
    bool fits = other.shape.size() == shape.size() && other.type == first.type;
    for (size_t d = 0; fits && d < shape.size(); ++d) {
      fits = static_cast<int64_t>(d) == axis || other.shape[d] == shape[d];
    }
    if (!fits) {
      return InvalidInput("input {} has shape {}, input 0 {}, axis {}", i, ShapeString(other.shape),
                          ShapeString(first.shape), axis);
    }
    shape[axis] += other.shape[axis];
  }
  SetSpec(context, 0, first.type, shape);
  return absl::OkStatus();
}

absl::Status ConcatCompute(KernelContext& context) {
  View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis,
                      move::Axis(context, "axis", context.opset < 4 ? 1 : 0, Rank(out)));
  const Ints strides = StridesOf(out);
  int64_t at = 0;
  for (const View& in : context.inputs) {
    // A cache that grows in place already has its first part.
    if (at == 0 && in.data == out.data && in.pitch == out.pitch && in.size() > 0) {
      at = in.shape[axis];
      continue;
    }
    move::CopyStrided(out.type, in.shape, {out.data, at * strides[axis], strides},
                      {in.data, 0, StridesOf(in)}, context.threads);
    at += in.shape[axis];
  }
  return absl::OkStatus();
}

absl::StatusOr<Ints> SplitLengths(const KernelContext& context, int64_t total, size_t parts) {
  bool given = false;
  KV_ASSIGN_OR_RETURN(Ints lengths, move::InputOrAttribute(context, 1, "split", &given));
  if (!given) {
    // From opset 18 on, the last part may be smaller; before, parts must be equal.
    const auto n = static_cast<int64_t>(parts);
    const int64_t length = (total + n - 1) / n;
    if (context.opset < 18 && length * n != total)
      return InvalidInput("{} in {} equal parts", total, n);
    int64_t rest = total;
    for (size_t i = 0; i < parts; ++i) {
      lengths.push_back(std::min(length, rest));
      rest -= lengths.back();
    }
  }
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (length < 0) return InvalidInput("negative part");
    sum += length;
  }
  if (lengths.size() != parts || sum != total) {
    return InvalidInput("{} parts of {} for {} outputs of an axis of {}", lengths.size(), sum,
                        parts, total);
  }
  return lengths;
}

absl::Status SplitShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  const size_t parts = context.specs->size();
  KV_ASSIGN_OR_RETURN(const Ints lengths, SplitLengths(context, data.shape[axis], parts));
  for (size_t i = 0; i < parts; ++i) {
    Shape shape = data.shape;
    shape[axis] = lengths[i];
    SetSpec(context, i, data.type, shape);
  }
  return absl::OkStatus();
}

absl::Status SplitCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const int64_t axis, move::Axis(context, "axis", 0, Rank(data)));
  KV_ASSIGN_OR_RETURN(const Ints lengths,
                      SplitLengths(context, data.shape[axis], context.outputs.size()));
  const Ints strides = StridesOf(data);
  int64_t at = 0;
  for (size_t i = 0; i < context.outputs.size(); ++i) {
    const View& out = context.outputs[i];
    if (!out.absent()) {
      move::CopyStrided(out.type, out.shape, {out.data, 0, DenseStrides(out.shape)},
                        {data.data, at * strides[axis], strides}, context.threads);
    }
    at += lengths[i];
  }
  return absl::OkStatus();
}

Part SplitPart(const KernelContext& context, size_t output) {
  const View& data = context.inputs[0];
  const auto axis = move::Axis(context, "axis", 0, Rank(data));
  if (!axis.ok()) return {};
  const auto lengths = SplitLengths(context, data.shape[*axis], context.outputs.size());
  if (!lengths.ok()) return {};
  const Ints strides = DenseStrides(data.shape);
  int64_t at = 0;
  for (size_t i = 0; i < output; ++i) at += (*lengths)[i];
  Shape shape = data.shape;
  shape[*axis] = (*lengths)[output];
  return PartOf(at * strides[*axis], shape, strides);
}

// Per dimension: first index, step and number of elements.
struct SlicePlan {
  Ints start, step, count;
};

absl::StatusOr<SlicePlan> PlanSlice(const KernelContext& context) {
  const View& data = context.inputs[0];
  SlicePlan plan;
  plan.start.assign(data.shape.size(), 0);
  plan.step.assign(data.shape.size(), 1);
  plan.count.assign(data.shape.begin(), data.shape.end());
  bool given = false, has_axes = false, has_steps = false;
  KV_ASSIGN_OR_RETURN(const Ints starts, move::InputOrAttribute(context, 1, "starts", &given));
  KV_ASSIGN_OR_RETURN(const Ints ends, move::InputOrAttribute(context, 2, "ends", &given));
  KV_ASSIGN_OR_RETURN(const Ints axes, move::InputOrAttribute(context, 3, "axes", &has_axes));
  KV_ASSIGN_OR_RETURN(const Ints steps, move::InputOrAttribute(context, 4, "steps", &has_steps));
  if (starts.size() != ends.size() || (has_axes && axes.size() != starts.size()) ||
      (has_steps && steps.size() != starts.size()) ||
      (!has_axes && starts.size() > data.shape.size())) {
    return InvalidInput("starts, ends, axes and steps differ in length");
  }
  absl::InlinedVector<bool, 6> seen(data.shape.size(), false);
  for (size_t i = 0; i < starts.size(); ++i) {
    KV_ASSIGN_OR_RETURN(
        const int64_t axis,
        move::NormalizeAxis(context, has_axes ? axes[i] : static_cast<int64_t>(i), Rank(data)));
    if (seen[axis]) return InvalidInput("axis {} twice", axis);
    seen[axis] = true;
    const int64_t step = has_steps ? steps[i] : 1, dim = data.shape[axis];
    if (step == 0) return InvalidInput("step 0");
    const auto bound = [&](int64_t value, int64_t low, int64_t high) {
      if (value < 0) value = value < -dim ? -dim - 1 : value;
      return std::clamp(value < 0 ? value + dim : value, low, high);
    };
    const int64_t first = bound(starts[i], 0, step > 0 ? dim : dim - 1);
    const int64_t last = bound(ends[i], step > 0 ? 0 : -1, step > 0 ? dim : dim - 1);
    int64_t count = 0;
    if (step > 0 && last > first) count = (last - first - 1) / step + 1;
    if (step < 0 && dim > 0 && last < first) {
      const uint64_t size = uint64_t{0} - static_cast<uint64_t>(step);
      count = static_cast<int64_t>(static_cast<uint64_t>(first - last - 1) / size) + 1;
    }
    plan.start[axis] = count > 0 ? first : 0;
    plan.step[axis] = count > 1 ? step : 1;
    plan.count[axis] = count;
  }
  return plan;
}

absl::Status SliceShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  KV_ASSIGN_OR_RETURN(const SlicePlan plan, PlanSlice(context));
  SetSpec(context, 0, context.inputs[0].type, Shape(plan.count.begin(), plan.count.end()));
  return absl::OkStatus();
}

absl::Status SliceCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  const View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const SlicePlan plan, PlanSlice(context));
  Ints strides = StridesOf(data);
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += plan.start[d] * strides[d];
    strides[d] *= plan.step[d];
  }
  move::CopyStrided(out.type, out.shape, {out.data, 0, DenseStrides(out.shape)},
                    {data.data, offset, strides}, context.threads);
  return absl::OkStatus();
}

Part SlicePart(const KernelContext& context, size_t) {
  const auto plan = PlanSlice(context);
  if (!plan.ok()) return {};
  Ints strides = DenseStrides(context.inputs[0].shape);
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += plan->start[d] * strides[d];
    strides[d] *= plan->step[d];
  }
  return PartOf(offset, context.outputs[0].shape, strides);
}

absl::StatusOr<Ints> Permutation(const KernelContext& context) {
  const int64_t rank = Rank(context.inputs[0]);
  Ints perm = move::IntsAttribute(context, "perm");
  if (perm.empty()) {
    for (int64_t d = rank - 1; d >= 0; --d) perm.push_back(d);
  }
  absl::InlinedVector<bool, 6> seen(static_cast<size_t>(rank), false);
  for (const int64_t d : perm) {
    if (d < 0 || d >= rank || seen[d]) return InvalidInput("perm is no permutation");
    seen[d] = true;
  }
  if (static_cast<int64_t>(perm.size()) != rank)
    return InvalidInput("perm has {} axes", perm.size());
  return perm;
}

absl::Status TransposeShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  KV_ASSIGN_OR_RETURN(const Ints perm, Permutation(context));
  Shape shape;
  for (const int64_t d : perm) shape.push_back(context.inputs[0].shape[d]);
  SetSpec(context, 0, context.inputs[0].type, shape);
  return absl::OkStatus();
}

absl::Status TransposeCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  const View& out = context.outputs[0];
  KV_ASSIGN_OR_RETURN(const Ints perm, Permutation(context));
  const Ints dense = StridesOf(data);
  Ints strides;
  for (const int64_t d : perm) strides.push_back(dense[d]);
  move::CopyStrided(out.type, out.shape, {out.data, 0, DenseStrides(out.shape)},
                    {data.data, 0, strides}, context.threads);
  return absl::OkStatus();
}

// Axes of length 1 may move without moving an element.
Part TransposePart(const KernelContext& context, size_t) {
  const auto perm = Permutation(context);
  if (!perm.ok()) return {};
  const Ints dense = DenseStrides(context.inputs[0].shape);
  Ints strides;
  for (const int64_t d : *perm) strides.push_back(dense[d]);
  return PartOf(0, context.outputs[0].shape, strides);
}

absl::Status ExpandShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  KV_ASSIGN_OR_RETURN(const Ints target, move::ReadIntsOfAnyRank(context, 1));
  for (const int64_t d : target) {
    if (d < 0) return InvalidInput("negative dim {}", d);
  }
  Shape shape;
  const View& data = context.inputs[0];
  const Shape wanted(target.begin(), target.end());
  if (!math::BroadcastShapes(data.shape, wanted, &shape)) {
    return InvalidInput("{} does not broadcast with {}", ShapeString(data.shape),
                        ShapeString(wanted));
  }
  SetSpec(context, 0, data.type, shape);
  return absl::OkStatus();
}

absl::Status ExpandCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  const View& out = context.outputs[0];
  move::CopyStrided(out.type, out.shape, {out.data, 0, DenseStrides(out.shape)},
                    {data.data, 0, StridesOf(data, out.shape)}, context.threads);
  return absl::OkStatus();
}

Part ExpandPart(const KernelContext& context, size_t) {
  const Shape& shape = context.outputs[0].shape;
  return PartOf(0, shape, math::BroadcastStrides(context.inputs[0].shape, shape));
}

absl::Status TileShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 2));
  const View& data = context.inputs[0];
  KV_ASSIGN_OR_RETURN(const Ints repeats, move::ReadInts(context, 1));
  if (repeats.size() != data.shape.size()) {
    return InvalidInput("{} repeats for rank {}", repeats.size(), data.shape.size());
  }
  Shape shape = data.shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (repeats[d] < 0 || __builtin_mul_overflow(shape[d], repeats[d], &shape[d])) {
      return InvalidInput("{} repeats", repeats[d]);
    }
  }
  SetSpec(context, 0, data.type, shape);
  return absl::OkStatus();
}

// Each dimension is split into (repeat, dimension): the target is dense, the source has stride 0
// along repeats.
absl::Status TileCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  const View& out = context.outputs[0];
  const Ints from = StridesOf(data);
  Shape shape;
  Ints source;
  for (size_t d = 0; d < data.shape.size(); ++d) {
    if (data.shape[d] == 0) return absl::OkStatus();
    shape.push_back(out.shape[d] / data.shape[d]);
    source.push_back(0);
    shape.push_back(data.shape[d]);
    source.push_back(from[d]);
  }
  move::CopyStrided(out.type, shape, {out.data, 0, DenseStrides(shape)}, {data.data, 0, source},
                    context.threads);
  return absl::OkStatus();
}

absl::Status TriluShape(KernelContext& context) {
  KV_RETURN_IF_ERROR(NeedInputs(context, 1));
  if (Rank(context.inputs[0]) < 2) return InvalidInput("rank {}", Rank(context.inputs[0]));
  SetSpec(context, 0, context.inputs[0].type, context.inputs[0].shape);
  return absl::OkStatus();
}

absl::Status TriluCompute(KernelContext& context) {
  const View& data = context.inputs[0];
  View& out = context.outputs[0];
  const size_t rank = data.shape.size();
  const int64_t rows = data.shape[rank - 2], columns = data.shape[rank - 1];
  const bool upper = IntAttribute(context, "upper", 1) != 0;
  int64_t k = 0;
  if (HasInput(context, 1)) {
    if (!move::IsIndexType(context.inputs[1].type) || context.inputs[1].size() != 1) {
      return InvalidInput("k must be one int64");
    }
    k = std::clamp(move::IndexAt(context.inputs[1], 0), -rows - 1, columns + 1);
  }
  if (out.size() == 0) return absl::OkStatus();
  const bool in_place = out.data == data.data;
  const uint64_t zero[2] = {0, 0};
  const auto* zeros = reinterpret_cast<const std::byte*>(zero);
  const int64_t all_rows = Product(data.shape, 0, rank - 1);
  for (int64_t r = 0; r < all_rows; ++r) {
    // The columns [begin, end) are kept.
    const int64_t diagonal = std::clamp<int64_t>(r % rows + k + (upper ? 0 : 1), 0, columns);
    const int64_t begin = upper ? diagonal : 0, end = upper ? columns : diagonal;
    const int64_t at = r * columns;
    move::FillElements(out.type, out.data, at, begin, zeros, 0);
    if (!in_place)
      move::CopyElements(out.type, out.data, at + begin, data.data, at + begin, end - begin);
    move::FillElements(out.type, out.data, at + end, columns - end, zeros, 0);
  }
  return absl::OkStatus();
}

constexpr OpDef Pitched(OpDef def, uint32_t inputs) {
  def.pitched_inputs = inputs;
  return def;
}

constexpr OpDef WithPart(OpDef def, PartFn part) {
  def.part = part;
  return Pitched(def, 1);
}

constexpr OpDef kMovementOps[] = {
    Pitched({"", "Concat", 1, ConcatShape, ConcatCompute}, ~0u),
    WithPart({"", "Expand", 8, ExpandShape, ExpandCompute}, ExpandPart),
    WithPart({"", "Slice", 1, SliceShape, SliceCompute}, SlicePart),
    WithPart({"", "Split", 2, SplitShape, SplitCompute}, SplitPart),
    Pitched({"", "Tile", 6, TileShape, TileCompute}, 1),
    WithPart({"", "Transpose", 1, TransposeShape, TransposeCompute}, TransposePart),
    {"", "Trilu", 14, TriluShape, TriluCompute, ViewKind::kNone, 0},
    {"com.microsoft", "Trilu", 1, TriluShape, TriluCompute, ViewKind::kNone, 0},
};

}  // namespace

absl::Span<const OpDef> MovementOps() { return kMovementOps; }

}  // namespace kvlift::exec
