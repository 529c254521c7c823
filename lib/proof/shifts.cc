#include "proof/shifts.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;
using sym::Pool;

namespace {

constexpr char kTokens[] = "new tokens of the step";

// tokens, if the expression is tokens or min(tokens, slots).
Expr Unclamped(Pool& pool, Expr e, Expr slots) {
  if (e->kind() == Kind::kDim || e->kind() == Kind::kInteger) return e;
  if (e->kind() != Kind::kSelect) return nullptr;
  for (const int k : {1, 2}) {
    const Expr tokens = e->args()[k];
    if (tokens->kind() == Kind::kDim && e == pool.Min(tokens, slots, Facts{})) return tokens;
  }
  return nullptr;
}

}  // namespace

std::optional<ShiftOfRows> ReadShiftOfRows(const GraphPair& pair, const ManifestCache& cache) {
  const ValueId past = pair.Before(cache.source.input), present = pair.Before(cache.source.output);
  if (past == kNoValue || present == kNoValue || !cache.source.select.empty()) return std::nullopt;
  Pool& pool = pair.forms().pool();
  const sym::Form before = pair.forms().Of(past), later = pair.forms().Of(present);
  const auto axis = static_cast<size_t>(cache.source.axis);
  if (!before.known_rank || !later.known_rank || axis >= before.shape.size() ||
      later.shape.size() != before.shape.size() || before.shape[axis]->kind() != Kind::kInteger) {
    return std::nullopt;
  }
  ShiftOfRows shift{before.shape[axis], nullptr};
  for (Expr load : sym::OuterLoadsOf(later.element)) {
    if (load->source() != past) continue;
    const Expr moved = pool.Sub(load->args()[axis], pool.Index(static_cast<int>(axis)));
    const Expr tokens = Unclamped(pool, moved, shift.slots);
    if (tokens == nullptr || (shift.tokens != nullptr && shift.tokens != tokens)) {
      return std::nullopt;
    }
    shift.tokens = tokens;
  }
  if (shift.tokens == nullptr) return std::nullopt;
  const bool number = shift.tokens->kind() == Kind::kInteger;
  if (number && (shift.tokens->value() < 1 || shift.tokens->value() > shift.slots->value())) {
    return std::nullopt;
  }
  return shift;
}

std::vector<ShiftedRows> ShiftedRows::Regions(Pool& pool, const ShiftOfRows& shift, Expr past,
                                              Expr stay) {
  ShiftedRows old(pool), fresh(pool);
  old.text_ = "rows that stay";
  old.past_ = past;
  old.shift_ = shift;
  if (stay != nullptr) {
    // Where there are rows that stay, M - S is positive; S never is negative.
    old.shift_.tokens = pool.Dim(kTokens);
    old.sizes_.dims[stay->dim()] = pool.Sub(shift.slots, old.shift_.tokens);
  }
  old.first_ = pool.Integer(0);
  old.rows_ = pool.Sub(shift.slots, old.shift_.tokens);
  fresh.text_ = "new rows";
  fresh.past_ = past;
  fresh.shift_ = shift;
  fresh.first_ = pool.Sub(shift.slots, shift.tokens);
  fresh.rows_ = shift.tokens;
  return {old, fresh};
}

Facts ShiftedRows::Extents(const Facts& facts, size_t axis) const {
  Facts own = facts;
  for (Expr& extent : own.extents) {
    if (extent != nullptr) extent = pool_->Substitute(extent, sizes_, Facts{});
  }
  own.extents[axis] = rows_;
  return own;
}

Expr ShiftedRows::Replace(Expr e, Expr index, const Facts& facts, size_t axis) const {
  if (e == nullptr) return nullptr;
  Pool::Substitution s = sizes_;
  s.indices.resize(axis + 1, nullptr);
  s.indices[axis] = index;
  return pool_->Substitute(e, s, Extents(facts, axis));
}

Expr ShiftedRows::Mine(Expr e, const Facts& facts, size_t axis) const {
  const Expr row = pool_->Add(first_, pool_->Index(static_cast<int>(axis)));
  const Expr behind = pool_->Add(row, pool_->Add(past_, shift_.tokens));
  return Replace(e, pool_->Mod(behind, shift_.slots, Extents(facts, axis)), facts, axis);
}

Expr ShiftedRows::Theirs(Expr e, const Facts& facts, size_t axis) const {
  return Replace(e, pool_->Add(first_, pool_->Index(static_cast<int>(axis))), facts, axis);
}

}  // namespace kvlift
