// The part of Emitter::Builder that reads tensors: elements at computed places, in another order of
// axes, or of a part of an axis.
#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/status.h"
#include "sym/emit/tensor_builder.h"

namespace kvlift::sym {
namespace {

// Returns true if the index is an element of an integer tensor at output indices. A Gather of the
// source reads such an index at every place.
bool IsReadEverywhere(Expr index) {
  return index->kind() == Kind::kLoad &&
         absl::c_all_of(index->args(), [](Expr arg) { return arg->kind() == Kind::kIndex; });
}

}  // namespace

// Brings a tensor, whose axes are the given output axes in ascending order, to full rank.
std::string Emitter::Builder::OnAxes(const std::string& value, const std::vector<int>& axes) {
  std::vector<int64_t> missing;
  for (int k = 0; k < rank(); ++k) {
    if (std::find(axes.begin(), axes.end(), k) == axes.end()) missing.push_back(k);
  }
  if (missing.empty()) return value;
  return nodes().Add("Unsqueeze", {value, nodes().Int64s(missing)}, r_.role);
}

// Returns the axes of a source that may have more elements than its loads read.
absl::Span<const int> Emitter::Builder::WideAxes(ValueId source) const {
  if (const auto own = r_.wide_axes.find(source); own != r_.wide_axes.end()) return own->second;
  const auto bound = e_.sources_.find(source);
  if (bound == e_.sources_.end()) return {};
  return bound->second.wide_axes;
}

// Returns the name of a load's source, sliced to what is read along its wide axes and along axes
// that may be longer than what is read.
absl::StatusOr<std::string> Emitter::Builder::Source(Expr load) {
  const ValueId source = load->source();
  const auto it = e_.sources_.find(source);
  std::string value = it == e_.sources_.end() ? e_.forms_.graph().name(source) : it->second.value;
  for (int axis = 0; axis < static_cast<int>(load->args().size()); ++axis) {
    const Expr arg = load->args()[axis];
    if (arg->kind() != Kind::kIndex || arg->index() >= rank()) continue;
    const bool wide = IsWide(source, axis);
    if (!wide && !MayEndEarlier(source, axis, arg)) continue;
    KV_ASSIGN_OR_RETURN(std::string end, e_.Dim(r_.shape[arg->index()]));
    value = nodes().Add("Slice", {value, nodes().Int64s({0}), end, nodes().Int64s({axis})},
                        wide ? "visible" : "first");
  }
  return value;
}

// Returns true if the axis of a source may be read as a whole for an index of the output. It may
// not if the two extents are different numbers, or if they differ by their symbols, as S and P +
// S do, inside a branch of a select: the branch reads only a part of the axis. A wide axis ends
// behind the index, unless the element itself asks where the axis ends.
bool Emitter::Builder::SameExtent(ValueId source, int axis, Expr index) const {
  const Form& form = e_.forms_.Of(source);
  if (!form.known_rank || axis >= static_cast<int>(form.shape.size())) return true;
  const Expr own = form.shape[axis], wanted = r_.shape[index->index()];
  if (own == wanted) return true;
  if (wanted->kind() == Kind::kInteger) {
    return own->kind() != Kind::kInteger && branches_ == 0;
  }
  if (branches_ == 0) return true;
  if (IsWide(source, axis) && !AsksForEnd(own)) return true;
  const std::vector<DimSymbol> theirs = DimsOf(wanted), mine = DimsOf(own);
  return std::none_of(theirs.begin(), theirs.end(), [&](const DimSymbol& dim) {
    return e_.dims_.contains(dim) || std::find(mine.begin(), mine.end(), dim) != mine.end();
  });
}

// Returns true if the output index may end before the axis of the source does, as in a Slice of an
// input down to the number of sequences. It may not if the source's operators require the extents
// to be equal. Extents that depend on the past length are left to wide_axes.
bool Emitter::Builder::MayEndEarlier(ValueId source, int axis, Expr index) const {
  const Form& form = e_.forms_.Of(source);
  if (!form.known_rank || axis >= static_cast<int>(form.shape.size())) return false;
  const Expr own = form.shape[axis], wanted = r_.shape[index->index()];
  if (own == wanted || !SameExtent(source, axis, index)) return false;
  const auto is_bound = [&](const DimSymbol& dim) { return e_.dims_.contains(dim); };
  if (absl::c_any_of(DimsOf(own), is_bound) || absl::c_any_of(DimsOf(wanted), is_bound)) {
    return false;
  }
  Pool& pool = e_.forms_.pool();
  if (pool.ProveNonNegative(pool.Sub(wanted, own), Facts{})) return false;
  const Expr equal = pool.Eq(wanted, own, Facts{});
  return absl::c_none_of(e_.forms_.assumptions(), [&](const FormAssumption& assumption) {
    const bool extents = assumption.reason == AssumptionReason::kEqualExtents ||
                         assumption.reason == AssumptionReason::kBroadcast;
    return extents && absl::c_linear_search(ConjunctsOf(assumption.predicate), equal);
  });
}

// Returns true if the extent is a dimension symbol that occurs in the requested element.
bool Emitter::Builder::AsksForEnd(Expr extent) const {
  if (extent->kind() != Kind::kDim) return false;
  const std::vector<DimSymbol> dims = DimsOf(r_.element);
  return std::find(dims.begin(), dims.end(), extent->dim()) != dims.end();
}

bool Emitter::Builder::IsWide(ValueId source, int axis) const {
  const absl::Span<const int> wide = WideAxes(source);
  return std::find(wide.begin(), wide.end(), axis) != wide.end();
}

// Returns the index to read along an axis. An index that the source reads only in a branch of a
// select, or beside a predicate, may lie outside the axis elsewhere: it is clamped.
absl::StatusOr<Emitter::Piece> Emitter::Builder::Place(Expr load, int axis,
                                                       const std::string& value) {
  const Expr arg = load->args()[axis];
  KV_ASSIGN_OR_RETURN(Piece piece, Whole(arg));
  const Form& form = e_.forms_.Of(load->source());
  if (branches_ == 0 || !form.known_rank || IsReadEverywhere(arg)) return piece;
  Pool& pool = e_.forms_.pool();
  const Facts facts{{r_.shape.begin(), r_.shape.end()}};
  const Expr last = pool.Sub(form.shape[axis], pool.Integer(1));
  const bool low = pool.ProveNonNegative(arg, facts);
  const bool high = pool.ProveNonNegative(pool.Sub(last, arg), facts);
  if (low && high) return piece;
  if (!low) piece.value = nodes().Add("Max", {piece.value, nodes().Int64s({0})}, "index");
  if (high) return piece;
  std::string edge;
  if (last->kind() == Kind::kInteger) {
    edge = nodes().Int64s({last->value()});
  } else {
    if (MayBeEmpty(form.shape[axis])) return Cannot(load);
    edge =
        nodes().Add("Sub", {nodes().Extent(value, axis, "extent"), nodes().Int64s({1})}, "index");
  }
  piece.value = nodes().Add("Min", {piece.value, edge}, "index");
  return piece;
}

// The past may be empty, so that there is no element to clamp an index to.
bool Emitter::Builder::MayBeEmpty(Expr extent) const {
  return extent->kind() == Kind::kDim && e_.dims_.contains(extent->dim());
}

// Returns the part of an axis that a load reads for all numbers of one output index, if it is known
// to be a fixed one and not the whole axis.
std::optional<Emitter::Builder::FixedPart> Emitter::Builder::FixedPartOf(Expr load,
                                                                         int axis) const {
  const Form& form = e_.forms_.Of(load->source());
  if (!form.known_rank || axis >= static_cast<int>(form.shape.size())) return std::nullopt;
  const Expr own = form.shape[axis];
  if (own->kind() != Kind::kInteger) return std::nullopt;
  Pool& pool = e_.forms_.pool();
  for (int k = 0; k < rank(); ++k) {
    const Expr start = pool.Sub(load->args()[axis], pool.Index(k)), length = r_.shape[k];
    if (start->kind() != Kind::kInteger || length->kind() != Kind::kInteger) continue;
    const bool inside = start->value() >= 0 && start->value() + length->value() <= own->value();
    if (!inside || length == own) return std::nullopt;
    return FixedPart{k, start->value(), length->value()};
  }
  return std::nullopt;
}

absl::StatusOr<Emitter::Piece> Emitter::Builder::Load(Expr e) {
  KV_ASSIGN_OR_RETURN(std::string value, Source(e));
  // Axes of the source that are not indexed by an output index of their own.
  std::vector<int> moving;
  uint32_t plain = 0;
  std::vector<Expr> args(e->args().begin(), e->args().end());
  for (int j = 0; j < static_cast<int>(args.size()); ++j) {
    const Expr arg = args[j];
    const auto is_free = [&](int k) { return (plain >> k & 1u) == 0; };
    if (arg->kind() == Kind::kIndex && arg->index() < rank() && is_free(arg->index()) &&
        SameExtent(e->source(), j, arg)) {
      plain |= 1u << arg->index();
    } else if (const auto part = FixedPartOf(e, j); part && is_free(part->index)) {
      plain |= 1u << part->index;
      args[j] = e_.forms_.pool().Index(part->index);
      value = nodes().Add("Slice",
                          {value, nodes().Int64s({part->start}),
                           nodes().Int64s({part->start + part->length}), nodes().Int64s({j})},
                          "part");
    } else {
      moving.push_back(j);
    }
  }
  e = e_.forms_.pool().Load(e->source(), args);
  const int32_t type = e_.forms_.ElementType(e->source());
  if (moving.empty()) return Ordered(e, value, type);
  if (moving.size() == 1) {
    KV_ASSIGN_OR_RETURN(std::optional<Piece> piece, GatherOne(e, value, type, moving[0], plain));
    if (piece) return *piece;
  }
  return GatherAll(e, value, type);
}

Emitter::Piece Emitter::Builder::Ordered(Expr e, std::string value, int32_t type) {
  std::vector<int> axes;
  for (Expr arg : e->args()) axes.push_back(arg->index());
  return Permuted(std::move(value), axes, type);
}

// Brings `value` into the order of output axes; axes[j] is the output axis of its axis j.
Emitter::Piece Emitter::Builder::Permuted(std::string value, const std::vector<int>& axes,
                                          int32_t type) {
  std::vector<int64_t> perm(axes.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::sort(perm.begin(), perm.end(), [&](int64_t a, int64_t b) { return axes[a] < axes[b]; });
  if (!std::is_sorted(perm.begin(), perm.end())) {
    value = nodes().Add("Transpose", {value}, r_.role, {MakeAttribute("perm", perm)});
  }
  uint32_t mask = 0;
  for (int axis : axes) mask |= 1u << axis;
  return {OnAxes(value, axes), type, mask, !axes.empty() || rank() == 0};
}

// Reads a source with a Gather: one axis is indexed by an expression, the others by output
// indices. Returns nullopt if the expression depends on one of these.
absl::StatusOr<std::optional<Emitter::Piece>> Emitter::Builder::GatherOne(Expr e,
                                                                          const std::string& value,
                                                                          int32_t type, int axis,
                                                                          uint32_t plain) {
  KV_ASSIGN_OR_RETURN(Piece index, Place(e, axis, value));
  if ((index.axes & plain) != 0) return std::optional<Piece>();
  std::vector<int> index_axes;
  std::vector<int64_t> absent;
  for (int k = 0; k < rank(); ++k) {
    if (index.axes >> k & 1u) {
      index_axes.push_back(k);
    } else {
      absent.push_back(k);
    }
  }
  std::string at = index.value;
  if (!index.full_rank) {
    at = nodes().Add("Squeeze", {at}, "index");
  } else if (!absent.empty()) {
    at = nodes().Add("Squeeze", {at, nodes().Int64s(absent)}, "index");
  }
  const std::string gathered =
      nodes().Add("Gather", {value, at}, r_.role, {MakeAttribute("axis", int64_t{axis})});
  std::vector<int> axes;
  for (int j = 0; j < static_cast<int>(e->args().size()); ++j) {
    if (j == axis) {
      axes.insert(axes.end(), index_axes.begin(), index_axes.end());
    } else {
      axes.push_back(e->args()[j]->index());
    }
  }
  return std::optional<Piece>(Permuted(gathered, axes, type));
}

absl::StatusOr<Emitter::Piece> Emitter::Builder::GatherAll(Expr e, const std::string& value,
                                                           int32_t type) {
  std::vector<Piece> coordinates;
  uint32_t axes = 0;
  for (int k = 0; k < static_cast<int>(e->args().size()); ++k) {
    KV_ASSIGN_OR_RETURN(Piece piece, Place(e, k, value));
    axes |= piece.axes;
    coordinates.push_back(std::move(piece));
  }
  std::vector<Expr> shape;
  shape.reserve(rank());
  for (int k = 0; k < rank(); ++k) {
    shape.push_back(axes >> k & 1u ? r_.shape[k] : e_.forms_.pool().Integer(1));
  }
  KV_ASSIGN_OR_RETURN(std::string full, e_.DimVector(shape));
  NodeBuilder::Inputs parts;
  for (const Piece& piece : coordinates) {
    const std::string wide = nodes().Add("Expand", {piece.value, full}, "coordinate");
    parts.push_back(nodes().Add("Unsqueeze", {wide, nodes().Int64s({-1})}, "coordinate"));
  }
  const std::string index =
      nodes().Add("Concat", parts, "coordinates", {MakeAttribute("axis", int64_t{-1})});
  return Piece{nodes().Add("GatherND", {value, index}, r_.role), type, axes, true};
}

}  // namespace kvlift::sym
