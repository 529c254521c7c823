#include "rewrite/emit/emit_cache.h"

#include <cstddef>

#include "base/overloaded.h"
#include "base/status.h"
#include "contract/words.h"
#include "fmt/format.h"
#include "rewrite/emit/relayout.h"
#include "rewrite/recognise/axis_letters.h"

namespace kvlift::internal {

using sym::Expr;

absl::Status CacheEmitter::Emit() {
  for (const AnalysedCache& cache : s_.a.caches) {
    if (cache.update_index < 0) continue;
    const PlannedCache& planned = s_.plan.caches[cache.update_index];
    const PlannedWrite& write = s_.plan.writes[cache.update_index];
    KV_ASSIGN_OR_RETURN(const Slots slots, control_.SlotsOf(cache.update_index));
    s_.nodes.set_scope(fmt::format("layers.{}/{}", cache.layer, WordOf(cache.role)));
    KV_ASSIGN_OR_RETURN(const std::string rows, Rows(planned, write));
    s_.patch.remove_nodes.insert(s_.graph.producer(planned.pair.present));
    KV_ASSIGN_OR_RETURN(const std::string buffer, WrittenBuffer(planned, write));
    EmitScatter(planned, buffer, rows, slots);
    for (ValueId slice : write.slices) {
      s_.Made(planned).views.push_back({s_.graph.name(slice), /*counted=*/false});
    }
    KeepReaders(planned);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CacheEmitter::WrittenBuffer(const PlannedCache& cache,
                                                        const PlannedWrite& write) {
  const std::string& past = s_.graph.name(cache.pair.past);
  if (!write.reordered_past) return past;
  s_.emitter.BindDim(CapacitySymbol(), {s_.nodes.Extent(past, cache.axis, "capacity"), false});
  return s_.emitter.Tensor(*write.reordered_past);
}

// Gives other readers of a fixed buffer its rows in the layout of the source.
void CacheEmitter::KeepReaders(const PlannedCache& cache) {
  if (cache.grows() || !cache.placement.moved) return;
  for (ValueId v : {cache.pair.past, cache.pair.present}) {
    s_.patch.replace_uses[s_.graph.name(v)] = ToSourceLayout(s_, cache, s_.graph.name(v));
  }
}

absl::StatusOr<std::string> CacheEmitter::Rows(const PlannedCache& cache,
                                               const PlannedWrite& write) {
  using Name = absl::StatusOr<std::string>;
  if (const auto* placed = std::get_if<RowsInTargetLayout>(&write.rows)) {
    return s_.graph.name(placed->value);
  }
  KV_ASSIGN_OR_RETURN(
      const std::string as_in_source,
      std::visit(
          Overloaded{[&](const RowsInTargetLayout& r) { return Name(s_.graph.name(r.value)); },
                     [&](const RowsInSourceLayout& r) { return Name(s_.graph.name(r.value)); },
                     [&](const StackedRows& r) {
                       std::vector<ValueId> parts = r.parts;
                       return Name(Stack(cache.layout, r.shape, &parts));
                     },
                     [&](const DrawnRows& r) { return s_.emitter.Tensor(r.rows); }},
          write.rows));
  if (!write.narrow_rows) return ToTargetLayout(s_, cache, as_in_source);
  KV_ASSIGN_OR_RETURN(const std::string cast, CastToCache(cache, as_in_source));
  return ToTargetLayout(s_, cache, cast);
}

absl::StatusOr<std::string> CacheEmitter::CastToCache(const PlannedCache& cache,
                                                      const std::string& rows) {
  KV_ASSIGN_OR_RETURN(const std::string length, s_.emitter.Dim(cache.new_length));
  const std::string all = s_.nodes.Add(
      "Slice", {rows, s_.nodes.Int64s({0}), length, s_.nodes.Int64s({cache.axis})}, "rounded");
  const int64_t type = s_.forms.ElementType(cache.pair.past);
  return s_.nodes.Add("Cast", {all}, "update", {MakeAttribute("to", type)});
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

void CacheEmitter::EmitScatter(const PlannedCache& cache, const std::string& past,
                               const std::string& rows, const Slots& slots) {
  const std::string& present = s_.graph.name(cache.pair.present);
  EmittedCache& made = s_.Made(cache);
  const int axis = cache.placement.axis;
  if (axis != 0) {
    NodeBuilder::Attributes attributes = {MakeAttribute("axis", int64_t{axis})};
    if (!cache.linear()) attributes.push_back(MakeAttribute("mode", std::string("circular")));
    s_.nodes.AddNamed("TensorScatter", {past, rows, slots.write}, "TensorScatter", present,
                      std::move(attributes));
    made.writer = present;
    if (past == s_.graph.name(cache.pair.past)) {
      made.update = rows;
      made.write_indices = slots.write;
    }
    return;
  }
  // Axis 0 of TensorScatter is the batch, so the sequence axis needs one in front of it.
  const std::string front = s_.nodes.Int64s({0});
  const std::string buffer = s_.nodes.Add("Unsqueeze", {past, front}, "buffer");
  made.writer = buffer;
  const std::string update_rows = s_.nodes.Add("Unsqueeze", {rows, front}, "update");
  const std::string written = s_.nodes.Add("TensorScatter", {buffer, update_rows, slots.write},
                                           "TensorScatter", {MakeAttribute("axis", int64_t{1})});
  s_.nodes.AddNamed("Squeeze", {written, front}, "present", present);
}

}  // namespace kvlift::internal
