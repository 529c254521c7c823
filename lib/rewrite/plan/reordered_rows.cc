// The part of CrossTokenFinder that knows which operands read rows of other sequences or of other
// tokens, by the places at which their elements are loaded.
#include <algorithm>
#include <vector>

#include "rewrite/plan/cross_token_finder.h"

namespace kvlift::internal {
namespace {

using sym::Expr;

}  // namespace

// Returns true if an operand reads a place on the axis of sequences for which `leaves` holds.
bool CrossTokenFinder::ReadsMoved(NodeId n, bool (*leaves)(Expr)) {
  const auto inputs = graph_.inputs(n);
  return std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) { return IsMoved(v, leaves); });
}

bool CrossTokenFinder::IsMoved(ValueId v, bool (*leaves)(Expr)) {
  if (v == kNoValue || graph_.constant(v) != nullptr || !forms_.Of(v).known_rank) return false;
  const sym::Form form = forms_.Of(v);
  // An extent that is data of one sequence is that of all.
  return LoadsMoved(form.element, leaves) ||
         std::any_of(form.shape.begin(), form.shape.end(),
                     [&](Expr extent) { return LoadsMoved(extent, leaves); });
}

bool CrossTokenFinder::LoadsMoved(Expr e, bool (*leaves)(Expr)) {
  for (Expr load : sym::LoadsOf(e)) {
    const sym::Form& form = forms_.Of(load->source());
    if (!form.known_rank) continue;
    int axes = 0;
    for (size_t axis = 0; axis < form.shape.size(); ++axis) {
      const Expr extent = form.shape[axis];
      if (extent->kind() != sym::Kind::kDim || !sequences_.contains(extent->dim())) continue;
      // Sequences are on one axis; the extent of another one changes with what else is in the
      // batch.
      if (++axes > 1 || leaves(load->args()[axis])) return true;
    }
  }
  return false;
}

// Returns true for a place on the axis of sequences other than the element's own, which is an
// index or the quotient of an index.
bool CrossTokenFinder::IsOfOtherSequence(Expr place) {
  const Expr own = place->kind() == sym::Kind::kFloorDiv ? place->args()[0] : place;
  return own->kind() != sym::Kind::kIndex;
}

// Returns true for a place at a distance from the element's own, or counted from the end: a sum
// of one index and sizes.
bool CrossTokenFinder::IsShifted(Expr place) {
  if (place->kind() != sym::Kind::kSum) return false;
  int indices = 0;
  for (const sym::Term& term : place->terms()) {
    for (Expr atom : term.atoms) {
      if (atom->kind() == sym::Kind::kDim) continue;
      const bool own = atom->kind() == sym::Kind::kIndex && term.atoms.size() == 1 &&
                       (term.coefficient == 1 || term.coefficient == -1);
      if (!own) return false;
      ++indices;
    }
  }
  return indices == 1;
}

// Returns true for a place that depends on a condition, such as the larger one of two.
bool CrossTokenFinder::DependsOnCondition(Expr place) {
  if (place->kind() != sym::Kind::kSum) return place->kind() == sym::Kind::kSelect;
  return std::any_of(place->terms().begin(), place->terms().end(), [](const sym::Term& term) {
    return std::any_of(term.atoms.begin(), term.atoms.end(),
                       [](Expr atom) { return atom->kind() == sym::Kind::kSelect; });
  });
}

// Returns true if an operand of a node with a row per token reads rows of another token than the
// result's own: of one at a distance, or of some tokens for all.
bool CrossTokenFinder::ReadsOtherTokens(ValueId v) {
  if (v == kNoValue || graph_.constant(v) != nullptr || !forms_.Of(v).known_rank) return false;
  const sym::Form operand = forms_.Of(v);
  for (Expr load : sym::LoadsOf(operand.element)) {
    const sym::Form& form = forms_.Of(load->source());
    if (!form.known_rank || !HoldsReals(forms_.ElementType(load->source()))) continue;
    for (size_t axis = 0; axis < form.shape.size(); ++axis) {
      const Expr place = load->args()[axis], extent = form.shape[axis];
      const std::vector<sym::DimSymbol> dims = sym::DimsOf(extent);
      const bool of_past = std::any_of(
          dims.begin(), dims.end(), [&](const sym::DimSymbol& dim) { return past_.contains(dim); });
      if (of_past || !HoldsTokens(extent)) continue;
      const bool is_part = place->kind() == sym::Kind::kIndex &&
                           static_cast<size_t>(place->index()) < operand.shape.size() &&
                           operand.shape[place->index()] != extent;
      if (is_part || IsShifted(place) || DependsOnCondition(place) || !place->has_index()) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace kvlift::internal
