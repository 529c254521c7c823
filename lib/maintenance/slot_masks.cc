#include "maintenance/slot_masks.h"

#include <algorithm>

namespace kvlift::internal {

using sym::Expr;
using sym::Kind;

bool SlotMask::MeansTheSame(Expr element) {
  const Expr index = forms_.pool().Index(slots_);
  if (!IsPlain(OfOldTokens(element, {}), index, /*distance=*/false)) return false;
  return std::any_of(starts_.begin(), starts_.end(), [&](Expr start) {
    return IsPlain(OfNewTokens(element, start), forms_.pool().Add(start, index),
                   /*distance=*/true);
  });
}

Expr SlotMask::OfOldTokens(Expr e, const std::vector<Expr>& known) {
  sym::Pool& pool = forms_.pool();
  switch (e->kind()) {
    case Kind::kLe: {
      const sym::Truth truth = TruthOfOldTokens(e, known);
      if (truth == sym::Truth::kUnknown) return e;
      return truth == sym::Truth::kYes ? pool.True() : pool.False();
    }
    case Kind::kNot:
      return pool.Not(OfOldTokens(e->args()[0], known));
    case Kind::kAnd: {
      Expr all = pool.True();
      for (const Expr part : e->args()) {
        std::vector<Expr> more = known;
        for (const Expr other : e->args()) {
          if (other != part) more.push_back(other);
        }
        all = pool.And(all, OfOldTokens(part, more));
      }
      return all;
    }
    case Kind::kSelect:
      return pool.Select(OfOldTokens(e->args()[0], known), OfOldTokens(e->args()[1], known),
                         OfOldTokens(e->args()[2], known));
    default:
      return e;
  }
}

// In front of the write index, slot <= start + g is true for g >= -1, and start + h <= slot is
// false for h >= 0.
sym::Truth SlotMask::TruthOfOldTokens(Expr predicate, const std::vector<Expr>& known) {
  sym::Pool& pool = forms_.pool();
  const auto slot = sym::LinearIn(pool, predicate->args()[0], pool.Index(slots_));
  if (!slot) return sym::Truth::kUnknown;
  for (const Expr start : starts_) {
    if (slot->coefficient == 1) {
      const Expr g = pool.Neg(pool.Add(slot->rest, start));
      if (NeverNegative(pool.Add(g, pool.Integer(1)), known)) return sym::Truth::kYes;
    } else if (slot->coefficient == -1) {
      if (NeverNegative(pool.Sub(slot->rest, start), known)) return sym::Truth::kNo;
    }
  }
  return sym::Truth::kUnknown;
}

// Returns true if e >= 0 is proved given the known predicates. A predicate r <= i_k is used by
// writing i_k as r plus an index. Only predicates without the index of slots are used, and what is
// decided here contains that index, so no predicate proves itself.
bool SlotMask::NeverNegative(Expr e, const std::vector<Expr>& known) {
  sym::Pool& pool = forms_.pool();
  sym::Pool::Substitution s;
  sym::Facts facts = facts_;
  s.indices.resize(static_cast<size_t>(slots_) + 1, nullptr);
  for (const Expr fact : known) {
    if (fact->kind() != Kind::kLe) continue;
    for (int k = 0; k < slots_; ++k) {
      const auto bound = sym::LinearIn(pool, fact->args()[0], pool.Index(k));
      if (!bound || bound->coefficient != -1 || bound->rest->has_index()) continue;
      s.indices[k] = pool.Add(bound->rest, pool.Index(k));
      if (facts.extents.size() > static_cast<size_t>(k)) facts.extents[k] = nullptr;
    }
  }
  return pool.ProveNonNegative(pool.Substitute(e, s, facts), facts);
}

Expr SlotMask::OfNewTokens(Expr element, Expr start) {
  sym::Pool& pool = forms_.pool();
  sym::Pool::Substitution s;
  s.indices.assign(static_cast<size_t>(slots_) + 1, nullptr);
  s.indices.back() = pool.Add(start, pool.Index(slots_));
  sym::Facts facts = facts_;
  if (facts.extents.size() > static_cast<size_t>(slots_)) facts.extents[slots_] = nullptr;
  return pool.Substitute(element, s, facts);
}

bool SlotMask::IsPlain(Expr e, Expr slot, bool distance) {
  switch (e->kind()) {
    case Kind::kLoad:
      return IsPlainLoad(e, slot, distance);
    case Kind::kIndex:
      return distance || e->index() != slots_;
    case Kind::kDim:
      return !tells_(e);
    case Kind::kSum:
      return std::all_of(e->terms().begin(), e->terms().end(), [&](const sym::Term& term) {
        return std::all_of(term.atoms.begin(), term.atoms.end(),
                           [&](Expr atom) { return IsPlain(atom, slot, distance); });
      });
    default:
      return std::all_of(e->args().begin(), e->args().end(),
                         [&](Expr arg) { return IsPlain(arg, slot, distance); });
  }
}

bool SlotMask::IsPlainLoad(Expr load, Expr slot, bool distance) {
  const bool input = forms_.graph().is_graph_input(load->source());
  if (tells_(forms_.pool().Load(load->source(), {}))) return false;
  for (size_t k = 0; k < load->args().size(); ++k) {
    const Expr arg = load->args()[k];
    if (!input && (arg == slot || sym::ContainsIndex(arg, slots_))) return false;
    if (arg != slot) {
      if (!IsPlain(arg, slot, distance)) return false;
      continue;
    }
    const std::pair<ValueId, int> found = {load->source(), static_cast<int>(k)};
    if (std::find(by_slot_.begin(), by_slot_.end(), found) == by_slot_.end()) {
      by_slot_.push_back(found);
    }
  }
  return true;
}

}  // namespace kvlift::internal
