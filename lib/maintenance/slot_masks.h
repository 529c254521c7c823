// Proves that a mask means the same after rows of a cache are moved to other slots. Internal to
// lib/maintenance.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "sym/forms/forms.h"

namespace kvlift::internal {

class SlotMask {
 public:
  // slots: the axis of the mask that counts slots. starts: expressions that the mask may use for
  // the write index. tells: returns true if an expression depends on slots other than by the index
  // of that axis. facts: bounds of the mask's indices.
  SlotMask(sym::Forms& forms, int slots, std::vector<sym::Expr> starts, sym::Facts facts,
           std::function<bool(sym::Expr)> tells)
      : forms_(forms),
        slots_(slots),
        starts_(std::move(starts)),
        facts_(std::move(facts)),
        tells_(std::move(tells)) {}

  // Returns true if the element at a slot in front of the write index depends on inputs that the
  // host gives for that slot only, and at slots of new tokens on these and on distances between new
  // tokens.
  bool MeansTheSame(sym::Expr element);

  // Returns the inputs that MeansTheSame found to be read at the slot, each with the axis.
  const std::vector<std::pair<ValueId, int>>& by_slot() const { return by_slot_; }

 private:
  // Returns the element at slots in front of the write index, given the predicates `known`.
  sym::Expr OfOldTokens(sym::Expr e, const std::vector<sym::Expr>& known);
  // Returns the element at the slot of a new token; the index of the axis counts new tokens.
  sym::Expr OfNewTokens(sym::Expr element, sym::Expr start);
  sym::Truth TruthOfOldTokens(sym::Expr predicate, const std::vector<sym::Expr>& known);
  bool NeverNegative(sym::Expr e, const std::vector<sym::Expr>& known);
  // Returns true if e depends on `slot` only by inputs that are read there. distance: the index of
  // the axis counts new tokens, so e may depend on it.
  bool IsPlain(sym::Expr e, sym::Expr slot, bool distance);
  bool IsPlainLoad(sym::Expr load, sym::Expr slot, bool distance);

  sym::Forms& forms_;
  int slots_;
  std::vector<sym::Expr> starts_;
  sym::Facts facts_;
  std::function<bool(sym::Expr)> tells_;
  std::vector<std::pair<ValueId, int>> by_slot_;
};

}  // namespace kvlift::internal
