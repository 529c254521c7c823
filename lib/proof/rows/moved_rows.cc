#include "proof/rows/moved_rows.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Pool;

MovedRows MovedRows::InFrontOf(const std::vector<MovedRows>& regions) {
  const MovedRows& own = regions.front();
  return MovedRows(*own.pool_, "rows that have left", own.turn_, own.pool_->Integer(0), own.first_);
}

MovedRows MovedRows::Behind(const std::vector<MovedRows>& regions) {
  const MovedRows& own = regions.front();
  const Expr rows = own.pool_->Sub(regions.back().end(), own.first_);
  return MovedRows(*own.pool_, "slots without a row", own.turn_, regions.back().end(),
                   own.pool_->Sub(own.turn_.slots, rows));
}

Facts MovedRows::Slots(const Facts& facts, size_t axis) const {
  Facts own = facts;
  own.extents[axis] = turn_.slots;
  return own;
}

Facts MovedRows::Extents(const Facts& facts, size_t axis) const {
  Facts own = facts;
  own.extents[axis] = rows_;
  return own;
}

Expr MovedRows::Replace(Expr e, Expr index, const Facts& facts, size_t axis) const {
  if (e == nullptr) return nullptr;
  Pool::Substitution s;
  s.indices.resize(axis + 1, nullptr);
  s.indices[axis] = index;
  return pool_->Substitute(e, s, Extents(facts, axis));
}

Expr MovedRows::Row(size_t axis) const {
  return pool_->Add(first_, pool_->Index(static_cast<int>(axis)));
}

Expr MovedRows::Mine(Expr e, const Facts& facts, size_t axis) const {
  const Expr turned = pool_->Add(Row(axis), turn_.turn);
  return Replace(e, pool_->Mod(turned, turn_.slots, Extents(facts, axis)), facts, axis);
}

Expr MovedRows::Theirs(Expr e, const Facts& facts, size_t axis) const {
  return Replace(e, Row(axis), facts, axis);
}

}  // namespace kvlift
