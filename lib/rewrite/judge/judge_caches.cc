#include "rewrite/judge/judge_caches.h"

#include <cstddef>
#include <string>
#include <utility>

#include "base/status.h"
#include "fmt/format.h"
#include "ir/tensor_data.h"
#include "rewrite/recognise/attention/match.h"
#include "rewrite/recognise/axis_letters.h"
#include "rewrite/recognise/input_assumptions.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::internal {
namespace {

using onnx::TensorProto;
using sym::Expr;
using sym::Kind;

// Fails if the write index of a buffer depends on the length of a past that grows: the result has a
// buffer in its place, whose length is the capacity.
absl::Status NamesNoGrowingPast(const PlanBasis& s, Expr start) {
  for (const PlannedCache& other : s.caches) {
    const auto rows = other.rows_of_past(s.pool);
    if (!rows || !sym::ContainsDim(start, rows->first->dim())) continue;
    return absl::UnimplementedError(
        fmt::format("it is the length of {}, which grows", s.graph.name(other.pair.past)));
  }
  return absl::OkStatus();
}

// Returns the write index of a buffer of the source. Fails if it cannot be built from nodes.
absl::StatusOr<WriteIndex> IndexOfBuffer(const PlanBasis& s, const PlannedCache& cache) {
  const Expr rows = s.forms.Of(cache.pair.past).shape[0];
  const Expr start = CountedUp(s.forms, cache.write_index(s.pool));
  KV_RETURN_IF_ERROR(NamesNoGrowingPast(s, start));
  const Expr first = cache.axis == 0 ? s.pool.Integer(1) : rows;
  const Expr capacity = s.forms.Of(cache.pair.past).shape[cache.axis];
  const Expr batch = cache.layout[0] == 'B' ? rows : s.extents.batch;
  SourceIndex index;
  index.slot = {cache.linear() ? start : s.pool.Mod(start, capacity, {}),
                {first},
                TensorProto::INT64,
                0,
                "write_indices"};
  index.start = {start, {batch}, TensorProto::INT64, 0, "write_indices"};
  index.new_length = cache.new_length;
  KV_RETURN_IF_ERROR(s.probe.Tensor(index.slot));
  KV_RETURN_IF_ERROR(s.probe.Dim(index.new_length));
  KV_RETURN_IF_ERROR(s.probe.Tensor(index.start));
  return WriteIndex(std::move(index));
}

// Returns the write index of a growing cache: once for each index on its first axis, or once if
// that is the sequence axis.
absl::StatusOr<WriteIndex> IndexOfGrowing(const PlanBasis& s, const PlannedCache& cache) {
  const bool plain = !s.uniform || (cache.layout[0] == 'B' && cache.layout.size() == 4);
  if (plain) return WriteIndex(SharedIndex{});
  const Expr rows = s.forms.Of(cache.pair.past).shape[0];
  const RepeatedIndex index = {cache.axis == 0 ? s.pool.Integer(1) : rows};
  KV_RETURN_IF_ERROR(s.probe.Dim(index.count));
  return WriteIndex(index);
}

absl::StatusOr<WriteIndex> IndexOf(const PlanBasis& s, const PlannedCache& cache) {
  return cache.grows() ? IndexOfGrowing(s, cache) : IndexOfBuffer(s, cache);
}

// Returns the values of the source that, stacked along the axes that hold several caches, have the
// element `element`; empty if some part is not a value of the source.
std::vector<ValueId> FindParts(const PlanBasis& s, const CacheUpdate& update,
                               const std::string& layout, Expr element,
                               const std::vector<Expr>& shape) {
  const size_t axis = FirstPackedAxis(layout);
  if (axis == std::string::npos) {
    const ValueId found = FindValue(s.forms, update.pair.present, element, shape, std::nullopt,
                                    s.forms.ElementType(update.pair.past));
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
      at.indices.push_back(k == axis ? s.pool.Integer(index)
                                     : s.pool.Index(static_cast<int>(k < axis ? k : k - 1)));
    }
    const Expr part = s.pool.Substitute(element, at, sym::Facts{extents});
    const std::vector<ValueId> found = FindParts(s, update, rest, part, extents);
    if (found.empty()) return {};
    parts.insert(parts.end(), found.begin(), found.end());
  }
  return parts;
}

// Returns the element of new rows whose sequences are reordered with the past's as that of one
// value of the source in another order: rows[x[i0], ..] instead of the operators that compute it.
// Returns the element as it is if there is no such value.
Expr ReorderedRows(const PlanBasis& s, const PlannedCache& cache, const std::vector<Expr>& shape) {
  if (cache.reordered_past == nullptr) return cache.update_element;
  const auto batch = static_cast<int>(cache.layout.find('B'));
  std::vector<Expr> places = Indices(s.pool, static_cast<int>(shape.size()));
  const Expr order = cache.reordered_past->args()[batch];
  sym::Pool::Substitution in_place;
  in_place.atoms[order] = places[batch];
  const Expr rows = s.pool.Substitute(cache.update_element, in_place, sym::Facts{shape});
  const ValueId found = FindValue(s.forms, cache.pair.present, rows, shape, std::nullopt,
                                  s.forms.ElementType(cache.pair.past));
  if (found == kNoValue) return cache.update_element;
  places[batch] = order;
  return s.pool.Load(found, places);
}

// Returns where the new rows come from, and sets *narrow as PlannedWrite::narrow_rows. Fails if
// they are no value and there are no nodes for them.
absl::StatusOr<NewRows> RowsOf(const PlanBasis& s, const PlannedCache& cache, bool* narrow) {
  if (const ValueId rows = FindRowsInTargetLayout(s.forms, cache); rows != kNoValue) {
    return NewRows(RowsInTargetLayout{rows});
  }
  if (cache.update != kNoValue) return NewRows(RowsInSourceLayout{cache.update});
  std::vector<Expr> shape = s.forms.Of(cache.pair.past).shape;
  shape[cache.axis] = cache.new_length;
  if (HasPackedAxes(cache.layout)) {
    std::vector<ValueId> parts = FindParts(s, cache, cache.layout, cache.update_element, shape);
    if (!parts.empty()) return NewRows(StackedRows{std::move(parts), std::move(shape)});
  }
  const int32_t numbers = s.forms.NumbersOf(cache.pair.past).type;
  *narrow = sym::HoldsNarrowerNumbers(s.forms, cache.pair.past);
  if (*narrow) {
    const ValueId rows =
        FindValue(s.forms, cache.pair.present, cache.update_element, shape, std::nullopt, numbers);
    if (rows != kNoValue) return NewRows(RowsInSourceLayout{rows});
  }
  DrawnRows drawn;
  drawn.rows.element =
      s.pool.Substitute(ReorderedRows(s, cache, shape), s.extents.normal, sym::Facts{shape});
  drawn.rows.shape = std::move(shape);
  drawn.rows.elem_type = numbers;
  drawn.rows.role = "update";
  KV_RETURN_IF_ERROR(s.probe.Tensor(drawn.rows));
  return NewRows(std::move(drawn));
}

// Returns what is written instead of the past, if its sequences are reordered.
std::optional<sym::Emitter::Request> ReorderedPast(const PlanBasis& s, const PlannedCache& cache) {
  if (cache.reordered_past == nullptr) return std::nullopt;
  const size_t batch = cache.layout.find('B');
  sym::Emitter::Request request;
  request.shape = s.forms.Of(cache.pair.past).shape;
  request.shape[batch] = s.forms.Of(cache.pair.present).shape[batch];
  if (cache.grows()) request.shape[cache.axis] = s.pool.Dim(CapacitySymbol());
  request.element = cache.reordered_past;
  request.elem_type = s.forms.ElementType(cache.pair.past);
  request.role = "reordered";
  return request;
}

// Returns the results of the source's Slices of rows of a buffer, if they read it as it is.
std::vector<ValueId> SlicesOf(const PlanBasis& s, const PlannedCache& cache) {
  std::vector<ValueId> slices;
  if (cache.grows() || cache.placement.moved) return slices;
  for (const Use& use : s.graph.uses(cache.pair.present)) {
    if (use.kind != Use::Kind::kNodeInput || use.index != 0 || !s.graph.Is(use.node, "Slice")) {
      continue;
    }
    const auto inputs = s.graph.inputs(use.node);
    const TensorProto* axes =
        inputs.size() < 4 || inputs[3] == kNoValue ? nullptr : s.graph.constant(inputs[3]);
    if (axes == nullptr || axes->data_type() != TensorProto::INT64) continue;
    const auto read = ReadInts(*axes);
    if (!read.ok() || *read != std::vector<int64_t>{cache.axis}) continue;
    slices.push_back(s.graph.outputs(use.node)[0]);
  }
  return slices;
}

}  // namespace

JudgedCaches JudgeCaches(const PlanBasis& s) {
  JudgedCaches judged;
  judged.writes.resize(s.caches.size());
  for (const AnalysedCache& cache : s.a.caches) {
    if (cache.update_index < 0) continue;
    const PlannedCache& planned = s.caches[cache.update_index];
    PlannedWrite& write = judged.writes[cache.update_index];
    const NodeId producer = s.graph.producer(planned.pair.present);
    if (s.graph.outputs(producer).size() != 1) {
      judged.refusal = MakeFinding("KV217", "the present is one of several outputs of a node",
                                   s.graph, {producer}, {planned.pair.present});
      return judged;
    }
    absl::StatusOr<WriteIndex> index = IndexOf(s, planned);
    if (!index.ok()) {
      judged.refusal = MakeFinding("KV204",
                                   fmt::format("the write index cannot be computed: {}",
                                               std::string(index.status().message())),
                                   s.graph, {planned.node}, {planned.pair.present});
      return judged;
    }
    write.index = *std::move(index);
    absl::StatusOr<NewRows> rows = RowsOf(s, planned, &write.narrow_rows);
    if (rows.ok()) {
      write.rows = *std::move(rows);
    } else {
      judged.refusal =
          MakeFinding("KV202", std::string(rows.status().message()), s.graph, {planned.node});
    }
    write.reordered_past = ReorderedPast(s, planned);
    write.slices = SlicesOf(s, planned);
  }
  return judged;
}

int CapacityCache(const PlanBasis& s) {
  if (s.options.max_seq_len) return -1;
  // The caches stand in the order of the graph's outputs, and no layer may depend on a later one.
  int first = -1, layer = 0;
  for (size_t k = 0; k < s.caches.size(); ++k) {
    if (!s.caches[k].grows() || !s.caches[k].linear()) continue;
    const int own = LayerOf(s.a, static_cast<int>(k));
    if (first >= 0 && layer <= own) continue;
    first = static_cast<int>(k);
    layer = own;
  }
  return first;
}

}  // namespace kvlift::internal
