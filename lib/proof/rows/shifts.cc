#include "proof/rows/shifts.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;
using sym::Pool;

namespace {

// Returns `tokens` if the expression is tokens or min(tokens, slots); null otherwise.
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

std::vector<MovedRows> RegionsOf(Pool& pool, const ShiftOfRows& shift, Expr past) {
  const Turn turn{shift.slots, pool.Add(past, shift.tokens)};
  const Expr stay = pool.Sub(shift.slots, shift.tokens);
  return {MovedRows(pool, "rows that stay", turn, pool.Integer(0), stay),
          MovedRows(pool, "new rows", turn, stay, shift.tokens)};
}

}  // namespace kvlift
