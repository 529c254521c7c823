// The first part of a run: finds the shapes, then the memory, of all steps that are not late.
#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "exec/compile/shape_reads.h"
#include "exec/kernels/common/pitch.h"
#include "exec/memory/budget.h"
#include "exec/session/frame.h"
#include "fmt/format.h"
#include "ir/types.h"

namespace kvlift::exec {
namespace {

// Larger early values count as changed, without being compared.
constexpr size_t kComparedBytes = 1 << 16;

}  // namespace

KernelContext Frame::MakeContext(const StepPlan& step, absl::Span<const View> inputs,
                                 absl::Span<View> outputs) {
  KernelContext context{impl().graph->node(step.node), step.opset, inputs, outputs, &specs_};
  context.threads = impl().threads;
  context.canonical = impl().options.order == Order::kCanonical;
  context.attributes = &step.attributes;
  context.packed = impl().packed[step.node].get();
  return context;
}

void Frame::Connect() {
  const Plan& plan = impl().plan;
  const Wiring& wiring = impl().wiring;
  const Graph& graph = *impl().graph;
  operands_.resize(wiring.num_operands);
  contexts_.reserve(plan.steps.size());
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Wiring::Operands& o = wiring.operands[s];
    const auto operands = absl::MakeSpan(operands_);
    contexts_.push_back(MakeContext(plan.steps[s], operands.subspan(o.inputs, o.num_inputs),
                                    operands.subspan(o.outputs, o.num_outputs)));
  }
  again_.assign(plan.steps.size(), kNewShape | kNewElements);
  is_view_.assign(plan.steps.size(), false);
  extents_.resize(plan.values.size());
  early_.resize(plan.num_early);
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    const Home home = plan.values[v].home;
    const bool constant = home == Home::kConstant;
    if (constant) {
      for (const int at : wiring.operands_of[v]) operands_[at] = views_[v];
    }
    const int s = wiring.step_of[v];
    const bool planned = s >= 0 && plan.steps[s].timing != Timing::kLate;
    if (constant || home == Home::kInput ||
        (planned && (home == Home::kEarly || home == Home::kOutput || home == Home::kNext ||
                     home == Home::kCache))) {
      roots_.push_back(v);
    }
  }
  bases_.assign(roots_.size(), nullptr);
}

absl::Status Frame::Prepare(absl::Span<const View> inputs) {
  TakeInputs(inputs);
  for (size_t s = 0; s < again_.size(); ++s) {
    const uint8_t why = again_[s];
    const StepPlan& step = impl().plan.steps[s];
    if (why == 0 || step.timing == Timing::kLate) continue;
    again_[s] = 0;
    const absl::Status status = ResolveStep(static_cast<int>(s), why);
    if (!status.ok()) {
      // The shapes found so far may not fit together.
      std::fill(again_.begin(), again_.end(), kNewShape | kNewElements);
      return InStep(step, status);
    }
  }
  return Place();
}

void Frame::TakeInputs(absl::Span<const View> inputs) {
  const auto names = impl().graph->graph_inputs();
  for (size_t i = 0; i < names.size(); ++i) {
    const ValueId v = names[i];
    const View& view = views_[v];
    const bool new_shape = view.type != inputs[i].type || view.shape != inputs[i].shape;
    if (new_shape) SetSpec(v, {inputs[i].type, inputs[i].shape});
    if (view.data != inputs[i].data) SetData(v, inputs[i].data);
    if (view.pitch != inputs[i].pitch) SetPitch(v, inputs[i].pitch);
    LookAgain(v, new_shape);
  }
}

// Marks the readers of v, whose elements and perhaps shape are new.
void Frame::LookAgain(ValueId v, bool new_shape) {
  for (const Consumer& consumer : impl().wiring.consumers_of[v]) {
    again_[consumer.step] |=
        new_shape ? static_cast<uint8_t>(kNewShape | kNewElements) : consumer.on_elements;
  }
}

absl::Status Frame::ResolveStep(int s, uint8_t why) {
  const StepPlan& step = impl().plan.steps[s];
  if ((why & kNewShape) != 0) {
    KV_RETURN_IF_ERROR(FindShapes(s));
    if (step.def->part != nullptr && step.timing == Timing::kPlanned) FindParts(s);
  }
  return step.timing == Timing::kEarly ? RunEarly(s) : absl::OkStatus();
}

absl::Status Frame::FindShapes(int s) {
  const StepPlan& step = impl().plan.steps[s];
  const Graph& graph = *impl().graph;
  const auto inputs = graph.inputs(step.node), outputs = graph.outputs(step.node);
  // The shape function must not read elements that are not known yet.
  const uint32_t reads = ShapeReads(*step.def);
  CollectInputs(step.node);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool constant =
        inputs[i] != kNoValue && impl().plan.values[inputs[i]].home == Home::kConstant;
    if (!constant && !ReadsInput(reads, i)) in_[i].data = nullptr;
  }
  specs_.resize(outputs.size());
  for (OutputSpec& spec : specs_) {
    spec.type = 0;
    spec.shape.clear();
  }
  KernelContext context = MakeContext(step, in_, {});
  KV_RETURN_IF_ERROR(step.def->shape(context));
  for (size_t o = 0; o < outputs.size(); ++o) {
    const ValueId v = outputs[o];
    if (v == kNoValue) continue;
    KV_RETURN_IF_ERROR(CheckSpec(step, static_cast<int>(o), specs_[o]));
    if (SetSpec(v, specs_[o])) LookAgain(v, true);
  }
  return absl::OkStatus();
}

// Checks an output's type and shape before it gets memory. The operands are in in_.
absl::Status Frame::CheckSpec(const StepPlan& step, int output, const OutputSpec& spec) const {
  const int64_t bytes = NumBytes(spec.type, spec.shape);
  const Home home = impl().plan.values[impl().graph->outputs(step.node)[output]].home;
  const bool view = home == Home::kView;
  // Strings, sequences and empty optional values have no size, so only views of them are possible.
  const bool passes = view && in_[0].bytes() < 0 && in_[0].type == spec.type &&
                      in_[0].size() == NumElements(spec.shape);
  if (bytes < 0 && !passes) {
    return absl::InvalidArgumentError(fmt::format("output {} would have shape {}, element type {}",
                                                  output, ShapeString(spec.shape), spec.type));
  }
  if (!passes) {
    KV_RETURN_IF_ERROR(CheckElements(spec.shape));
  }
  if (!view && home != Home::kCache) return absl::OkStatus();
  const View& source = in_[view ? 0 : step.def->inplace_input];
  if (source.bytes() == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} elements become shape {}", source.size(), ShapeString(spec.shape)));
}

bool Frame::SetSpec(ValueId v, const OutputSpec& spec) {
  View& view = views_[v];
  if (view.type == spec.type && view.shape == spec.shape) return false;
  view.type = spec.type;
  view.shape = spec.shape;
  for (const int at : impl().wiring.operands_of[v]) {
    operands_[at].type = spec.type;
    operands_[at].shape = spec.shape;
  }
  extents_[v].bytes = view.bytes();
  extents_changed_ = true;
  return true;
}

void Frame::FindParts(int s) {
  const StepPlan& step = impl().plan.steps[s];
  const auto outputs = impl().graph->outputs(step.node);
  const int bits = ElementBits(contexts_[s].inputs[0].type);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] == kNoValue) continue;
    const Part found = bits % 8 == 0 ? step.def->part(contexts_[s], o) : Part();
    Extent& extent = extents_[outputs[o]];
    const int64_t part = found.offset < 0 ? -1 : found.offset * (bits / 8);
    extents_changed_ = extents_changed_ || part != extent.part || found.pitch != extent.pitch;
    extent.part = part;
    extent.pitch = found.pitch;
  }
}

// Computes the step, and marks the readers of the result if it has changed.
absl::Status Frame::RunEarly(int s) {
  const StepPlan& step = impl().plan.steps[s];
  const auto outputs = impl().graph->outputs(step.node);
  KernelContext& context = contexts_[s];
  if (step.def->view == ViewKind::kWhole) {
    SetData(outputs[0], context.inputs[0].data);
    LookAgain(outputs[0], false);
    return absl::OkStatus();
  }
  bool compare = true;
  before_.clear();
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] == kNoValue) continue;
    Buffer& buffer = early_[impl().plan.values[outputs[o]].index];
    const auto bytes = static_cast<size_t>(extents_[outputs[o]].bytes);
    KV_RETURN_IF_ERROR(buffer.Reserve(bytes));
    if (buffer.data() != context.outputs[o].data) {
      SetData(outputs[o], buffer.data());
      compare = false;
      // A larger result of a later step is compared with these bytes.
      if (buffer.capacity() > 0) std::memset(buffer.data(), 0, buffer.capacity());
    }
    compare = compare && before_.size() + bytes <= kComparedBytes;
    if (compare) before_.insert(before_.end(), buffer.data(), buffer.data() + bytes);
  }
  KV_RETURN_IF_ERROR(step.def->compute(context));
  size_t at = 0;
  for (const ValueId v : outputs) {
    if (v == kNoValue) continue;
    const auto bytes = static_cast<size_t>(extents_[v].bytes);
    const bool same =
        compare && (bytes == 0 || std::memcmp(before_.data() + at, views_[v].data, bytes) == 0);
    if (!same) LookAgain(v, false);
    at += bytes;
  }
  return absl::OkStatus();
}

void Frame::SetData(ValueId v, std::byte* data) {
  views_[v].data = data;
  for (const int at : impl().wiring.operands_of[v]) operands_[at].data = data;
}

void Frame::SetPitch(ValueId v, int64_t pitch) {
  views_[v].pitch = pitch;
  for (const int at : impl().wiring.operands_of[v]) operands_[at].pitch = pitch;
}

void Frame::SetDataOfMembers(ValueId root, std::byte* data) {
  for (const ValueId v : layout_.members(root)) {
    SetData(v, v == root ? data : data + layout_.offset(v));
  }
}

// Returns the memory of a value that is not a view of another one.
std::byte* Frame::BaseOf(ValueId root) const {
  const ValuePlan& value = impl().plan.values[root];
  switch (value.home) {
    case Home::kArena:
      return arena_.data() + layout_.offset(root);
    case Home::kEarly:
      return early_[value.index].data();
    case Home::kOutput:
      return outputs_[value.index].data();
    case Home::kNext:
      return NextOf(value.index);
    case Home::kCache:
      return views_[impl().plan.pairs[value.index].past].data;
    default:
      return views_[root].data;
  }
}

absl::Status Frame::ReserveOutputs() {
  for (const ValueId v : roots_) {
    const ValuePlan& value = impl().plan.values[v];
    const auto bytes = static_cast<size_t>(extents_[v].bytes);
    if (value.home == Home::kOutput) {
      KV_RETURN_IF_ERROR(outputs_[value.index].ReserveUnshared(bytes));
    } else if (value.home == Home::kNext) {
      KV_RETURN_IF_ERROR(ReserveNext(value.index, views_[v]));
    }
  }
  return absl::OkStatus();
}

// Lets the present stay in the buffer of its past if there is room behind the past's rows.
// Otherwise the present goes to the pair's other buffer, which gets room to grow.
absl::Status Frame::ReserveNext(int pair, const View& present) {
  const PairPlan& plan = impl().plan.pairs[pair];
  grows_[pair] = false;
  int64_t pitch = 0;
  if (plan.grower != kNoNode && pair < static_cast<int>(rooms_.size())) {
    KV_ASSIGN_OR_RETURN(pitch, ReserveRows(pair, present));
  } else {
    KV_RETURN_IF_ERROR(next_[pair].Reserve(static_cast<size_t>(present.bytes())));
  }
  for (const ValueId v : plan.members) {
    if (views_[v].pitch != pitch) SetPitch(v, pitch);
  }
  return absl::OkStatus();
}

// Returns the pitch of the present; 0 if its rows are contiguous.
absl::StatusOr<int64_t> Frame::ReserveRows(int pair, const View& present) {
  const PairPlan& plan = impl().plan.pairs[pair];
  const auto rank = static_cast<int64_t>(present.shape.size());
  const auto bytes = static_cast<size_t>(present.bytes());
  int64_t axis = IntAttribute(impl().graph->node(plan.grower), "axis", 0);
  if (axis < 0) axis += rank;
  const bool whole = axis >= 0 && ElementBits(present.type) % 8 == 0;
  bool first = whole;
  for (int64_t d = 0; first && d < axis; ++d) first = present.shape[d] == 1;
  const bool apart = whole && !first && axis == rank - 2 && MayLieApart(plan, present);
  if (!first && !apart) {
    KV_RETURN_IF_ERROR(next_[pair].Reserve(bytes));
    return 0;
  }
  const CacheRoom& room = rooms_[pair];
  const View& past = views_[plan.past];
  const int64_t pitch = first ? 0 : past.pitch;
  const bool mine = past.data == room.data && past.data != nullptr && past.bytes() == room.used &&
                    (first || RoomyPitch(present.shape, 0) <= pitch) &&
                    SpannedBytes(present.type, present.shape, pitch) <= room.capacity;
  if (mine) {
    grows_[pair] = true;
    if (impl().options.alias == AliasMode::kPoison && IsFloatType(present.type)) {
      PoisonRoom(past, room.capacity);
    }
    return pitch;
  }
  const int64_t next = first ? 0 : GrowingPitch(present.shape);
  KV_RETURN_IF_ERROR(next_[pair].Reserve(first ? bytes + bytes / 4
                                               : SpannedBytes(present.type, present.shape, next)));
  return next;
}

bool Frame::MayLieApart(const PairPlan& pair, const View& present) const {
  if (!pair.apart) return false;
  const auto tail = [](const Shape& shape) {
    return absl::MakeSpan(shape).subspan(shape.size() - 2);
  };
  return std::all_of(pair.members.begin(), pair.members.end(), [&](ValueId v) {
    const Shape& shape = views_[v].shape;
    return shape.size() >= 2 && tail(shape) == tail(present.shape);
  });
}

// Gives every value memory, and every operand a pointer to it.
absl::Status Frame::Place() {
  KV_RETURN_IF_ERROR(ReserveOutputs());
  bool anew = false;
  if (extents_changed_ || !layout_.made()) {
    anew = !layout_.Fits(extents_);
    if (anew) {
      layout_.Make(extents_);
      KV_RETURN_IF_ERROR(arena_.ReserveExactly(layout_.arena_bytes()));
      FindViewSteps();
    }
    extents_changed_ = false;
    SetPitches();
    for (const ValueId root : layout_.moved()) SetDataOfMembers(root, BaseOf(root));
  }
  for (size_t i = 0; i < roots_.size(); ++i) {
    std::byte* base = BaseOf(roots_[i]);
    if (base == bases_[i] && !anew) continue;
    bases_[i] = base;
    SetDataOfMembers(roots_[i], base);
  }
  if (!anew) return absl::OkStatus();
  for (ValueId v = 0; v < impl().graph->num_values(); ++v) {
    if (impl().plan.values[v].home == Home::kArena && layout_.root(v) == v) {
      SetDataOfMembers(v, BaseOf(v));
    }
  }
  return absl::OkStatus();
}

void Frame::SetPitches() {
  for (size_t s = 0; s < is_view_.size(); ++s) {
    const StepPlan& step = impl().plan.steps[s];
    if (step.def == nullptr || step.def->part == nullptr) continue;
    for (const ValueId v : impl().graph->outputs(step.node)) {
      if (v == kNoValue) continue;
      const int64_t pitch = layout_.root(v) != v ? extents_[v].pitch : 0;
      if (views_[v].pitch != pitch) SetPitch(v, pitch);
    }
  }
}

void Frame::FindViewSteps() {
  const Plan& plan = impl().plan;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const StepPlan& step = plan.steps[s];
    if (step.def == nullptr) continue;
    bool view = step.def->compute == nullptr;
    if (step.def->part != nullptr) {
      for (const ValueId v : impl().graph->outputs(step.node)) {
        view = view || (v != kNoValue && layout_.root(v) != v);
      }
    }
    is_view_[s] = view;
  }
}

}  // namespace kvlift::exec
