// Masks that mean the same when rows of a cache are moved to other slots. Internal to
// lib/maintenance.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "sym/forms.h"

namespace kvlift::internal {

class SlotMask {
 public:
  // slots: the mask's axis of slots. starts: the write index, as the mask may name it. tells: an
  // expression tells something about slots (of its own, without the index of the axis).
  SlotMask(sym::Forms& forms, int slots, std::vector<sym::Expr> starts, sym::Facts facts,
           std::function<bool(sym::Expr)> tells)
      : forms_(forms),
        slots_(slots),
        starts_(std::move(starts)),
        facts_(std::move(facts)),
        tells_(std::move(tells)) {}

  // What the element says of a slot in front of the write index follows from what the host says of
  // it, and what it says of new tokens from that and from their distances.
  bool MeansTheSame(sym::Expr element);

  // Inputs that are read at the slot, with the axis.
  const std::vector<std::pair<ValueId, int>>& by_slot() const { return by_slot_; }

 private:
  // The element at slots in front of the write index, where `known` holds.
  sym::Expr OfOldTokens(sym::Expr e, const std::vector<sym::Expr>& known);
  // The element at the slot of new token i_slots.
  sym::Expr OfNewTokens(sym::Expr element, sym::Expr start);
  sym::Truth TruthOfOldTokens(sym::Expr predicate, const std::vector<sym::Expr>& known);
  bool NeverNegative(sym::Expr e, const std::vector<sym::Expr>& known);
  // Nothing tells which slot `slot` is. distance: the index of the axis is no slot.
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
