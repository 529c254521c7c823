#include "rewrite/emit/emit_cache.h"

#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "rewrite/emit/relayout.h"
#include "rewrite/recognise/axis_letters.h"
#include "rewrite/recognise/match.h"

namespace kvlift::internal {

using sym::Expr;
using sym::Kind;

absl::Status CacheEmitter::Emit() {
  for (const AnalysedCache& cache : s_.a.caches) {
    if (cache.update_index < 0) continue;
    const PlannedCache& update = s_.caches[cache.update_index];
    const NodeId producer = s_.graph.producer(update.pair.present);
    if (s_.graph.outputs(producer).size() != 1) {
      s_.Refuse("KV217", "the present is one of several outputs of a node", {producer},
                {update.pair.present});
      return absl::OkStatus();
    }
    const auto slots = control_.SlotsOf(update);
    if (!slots.ok()) {
      s_.Refuse("KV204",
                fmt::format("the write index cannot be computed: {}",
                            std::string(slots.status().message())),
                {update.node}, {update.pair.present});
      return absl::OkStatus();
    }
    s_.nodes.set_scope(fmt::format("layers.{}/{}", cache.layer, WordOf(cache.role)));
    KV_ASSIGN_OR_RETURN(const std::string rows, Rows(update));
    s_.plan.patch.remove_nodes.insert(producer);
    KV_ASSIGN_OR_RETURN(const std::string buffer, WrittenBuffer(update));
    EmitScatter(update, buffer, rows, *slots);
    KeepReaders(update);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CacheEmitter::WrittenBuffer(const CacheUpdate& update) {
  const auto* all = std::get_if<AppendAll>(&update.how);
  if (all == nullptr || all->reordered_past == nullptr) return s_.graph.name(update.pair.past);
  s_.emitter.BindDim(
      CapacitySymbol(),
      {s_.nodes.Extent(s_.graph.name(update.pair.past), update.axis, "capacity"), false});
  sym::Emitter::Request request;
  request.shape = s_.forms.Of(update.pair.past).shape;
  request.shape[0] = s_.forms.Of(update.pair.present).shape[0];
  request.shape[update.axis] = s_.pool.Dim(CapacitySymbol());
  request.element = all->reordered_past;
  request.elem_type = s_.forms.ElementType(update.pair.past);
  request.role = "reordered";
  return s_.emitter.Tensor(request);
}

// Gives other readers of a fixed buffer its rows in the layout of the source.
void CacheEmitter::KeepReaders(const CacheUpdate& update) {
  if (update.grows() || !PlacementOf(s_.options, update).moved) return;
  for (ValueId v : {update.pair.past, update.pair.present}) {
    s_.plan.patch.replace_uses[s_.graph.name(v)] = ToSourceLayout(s_, update, s_.graph.name(v));
  }
}

absl::StatusOr<std::string> CacheEmitter::Rows(const CacheUpdate& update) {
  if (!PlacementOf(s_.options, update).moved) return RowsAsTheyLie(update);
  if (const ValueId rows = FindRowsInTargetLayout(s_, update); rows != kNoValue) {
    s_.roots.push_back(rows);
    return s_.graph.name(rows);
  }
  KV_ASSIGN_OR_RETURN(const std::string rows, RowsAsTheyLie(update));
  if (s_.plan.refusal) return rows;
  return ToTargetLayout(s_, update, rows);
}

absl::StatusOr<std::string> CacheEmitter::RowsAsTheyLie(const CacheUpdate& update) {
  if (update.update != kNoValue) {
    s_.roots.push_back(update.update);
    return s_.graph.name(update.update);
  }
  if (HasPackedAxes(update.layout)) {
    std::vector<Expr> shape = s_.forms.Of(update.pair.past).shape;
    shape[update.axis] = update.new_length;
    std::vector<ValueId> parts = FindParts(update, update.layout, update.update_element, shape);
    if (!parts.empty()) {
      s_.roots.insert(s_.roots.end(), parts.begin(), parts.end());
      return Stack(update.layout, shape, &parts);
    }
  }
  return DrawnRows(update);
}

absl::StatusOr<std::string> CacheEmitter::DrawnRows(const CacheUpdate& update) {
  sym::Emitter::Request request;
  request.shape = s_.forms.Of(update.pair.past).shape;
  request.shape[update.axis] = update.new_length;
  // The source may have the rows in another type, from which a cast keeps every number.
  const std::optional<int> joined = update.grows() ? std::optional(update.axis) : std::nullopt;
  const ValueId other =
      FindValue(s_.forms, update.pair.present, update.update_element, request.shape, joined);
  if (other != kNoValue) {
    s_.roots.push_back(other);
    const int64_t type = s_.forms.ElementType(update.pair.past);
    // ONNX Runtime 1.31 computes float16 in float32 on CPUs and drops the two casts between an
    // operator and a Cast behind it, and with them the rounding. It keeps what a Concat reads.
    const std::string rounded = s_.nodes.Add("Concat", {s_.graph.name(other)}, "rows",
                                             {MakeAttribute("axis", int64_t{update.axis})});
    return s_.nodes.Add("Cast", {rounded}, "update", {MakeAttribute("to", type)});
  }
  request.element = s_.pool.Substitute(update.update_element, s_.normal, sym::Facts{request.shape});
  request.elem_type = s_.forms.ElementType(update.pair.past);
  request.role = "update";
  for (ValueId source : sym::SourcesOf(request.element)) s_.roots.push_back(source);
  auto value = s_.emitter.Tensor(request);
  if (!value.ok()) {
    s_.Refuse("KV202", std::string(value.status().message()), {update.node});
    return std::string();
  }
  return value;
}

std::vector<ValueId> CacheEmitter::FindParts(const CacheUpdate& update, const std::string& layout,
                                             Expr element, const std::vector<Expr>& shape) {
  const size_t axis = FirstPackedAxis(layout);
  if (axis == std::string::npos) {
    const ValueId found = FindValue(s_.forms, update.pair.present, element, shape, std::nullopt,
                                    s_.forms.ElementType(update.pair.past));
    return found == kNoValue ? std::vector<ValueId>{} : std::vector<ValueId>{found};
  }
  if (shape[axis]->kind() != Kind::kInteger) return {};
  std::string rest = layout;
  rest.erase(axis, 1);
  std::vector<Expr> extents = shape;
  extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(axis));
  std::vector<ValueId> parts;
  for (int64_t index = 0; index < shape[axis]->value(); ++index) {
    sym::Pool::Substitution at;
    for (size_t k = 0; k < shape.size(); ++k) {
      at.indices.push_back(k == axis ? s_.pool.Integer(index)
                                     : s_.pool.Index(static_cast<int>(k < axis ? k : k - 1)));
    }
    const Expr part = s_.pool.Substitute(element, at, sym::Facts{extents});
    const std::vector<ValueId> found = FindParts(update, rest, part, extents);
    if (found.empty()) return {};
    parts.insert(parts.end(), found.begin(), found.end());
  }
  return parts;
}

std::string CacheEmitter::Stack(const std::string& layout, const std::vector<Expr>& shape,
                                std::vector<ValueId>* parts) {
  const size_t axis = FirstPackedAxis(layout);
  if (axis == std::string::npos) {
    const std::string name = s_.graph.name(parts->front());
    parts->erase(parts->begin());
    return name;
  }
  std::string rest = layout;
  rest.erase(axis, 1);
  std::vector<Expr> extents = shape;
  extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(axis));
  const auto place = static_cast<int64_t>(axis);
  NodeBuilder::Inputs stacked;
  for (int64_t index = 0; index < shape[axis]->value(); ++index) {
    const std::string part = Stack(rest, extents, parts);
    stacked.push_back(s_.nodes.Add("Unsqueeze", {part, s_.nodes.Int64s({place})}, "lane"));
  }
  return s_.nodes.Add("Concat", stacked, "update", {MakeAttribute("axis", place)});
}

void CacheEmitter::EmitScatter(const PlannedCache& update, const std::string& past,
                               const std::string& rows, const Slots& slots) {
  const std::string& present = s_.graph.name(update.pair.present);
  const int axis = PlacementOf(s_.options, update).axis;
  if (axis != 0) {
    NodeBuilder::Attributes attributes = {MakeAttribute("axis", int64_t{axis})};
    if (!update.linear()) attributes.push_back(MakeAttribute("mode", std::string("circular")));
    s_.nodes.AddNamed("TensorScatter", {past, rows, slots.write}, "TensorScatter", present,
                      std::move(attributes));
    return;
  }
  // Axis 0 of TensorScatter is the batch, so the sequence axis needs one in front of it.
  const std::string front = s_.nodes.Int64s({0});
  const std::string buffer = s_.nodes.Add("Unsqueeze", {past, front}, "buffer");
  const std::string update_rows = s_.nodes.Add("Unsqueeze", {rows, front}, "update");
  const std::string written = s_.nodes.Add("TensorScatter", {buffer, update_rows, slots.write},
                                           "TensorScatter", {MakeAttribute("axis", int64_t{1})});
  s_.nodes.AddNamed("Squeeze", {written, front}, "present", present);
}

}  // namespace kvlift::internal
