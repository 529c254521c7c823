// Regions of cache rows that are in other slots of the converted model than of the source. In each
// region the slot and the row number are both linear in the index.
#pragma once

#include <vector>

#include "sym/expr/expr.h"

namespace kvlift {

// The order of rows in a ring buffer: row t of the source is in slot (t + turn) mod slots.
struct Turn {
  // The number of slots.
  sym::Expr slots = nullptr;
  sym::Expr turn = nullptr;

  friend bool operator==(const Turn&, const Turn&) = default;
};

class MovedRows {
 public:
  // The region of the source's rows [first, first + rows). `text` names it in facts and must
  // outlive it.
  MovedRows(sym::Pool& pool, const char* text, Turn turn, sym::Expr first, sym::Expr rows)
      : pool_(&pool), text_(text), turn_(turn), first_(first), rows_(rows) {}

  // Return, for regions that follow one another, the region of the source's rows in front of them,
  // and the region of the slots that hold none of their rows. Either may be empty().
  static MovedRows InFrontOf(const std::vector<MovedRows>& regions);
  static MovedRows Behind(const std::vector<MovedRows>& regions);

  // Words for the region, such as "new rows".
  const char* text() const { return text_; }
  // True if the region is known to have no rows.
  bool empty() const { return rows_->is_integer(0); }
  sym::Expr slots() const { return turn_.slots; }
  sym::Expr first() const { return first_; }
  sym::Expr end() const { return pool_->Add(first_, rows_); }

  // In expressions of the converted model index `axis` counts slots, in those of the source rows.
  // Slots() and Extents() give `facts` with all slots, or the rows of this region, as the extent of
  // that index. Mine() and Theirs() rewrite an expression of the converted model, or of the source,
  // so that the index counts the rows of this region. `facts` are those of the caller, before
  // Slots(). Null stays null.
  sym::Facts Slots(const sym::Facts& facts, size_t axis) const;
  sym::Facts Extents(const sym::Facts& facts, size_t axis) const;
  sym::Expr Mine(sym::Expr e, const sym::Facts& facts, size_t axis) const;
  sym::Expr Theirs(sym::Expr e, const sym::Facts& facts, size_t axis) const;

  friend bool operator==(const MovedRows& a, const MovedRows& b) {
    return a.turn_ == b.turn_ && a.first_ == b.first_ && a.rows_ == b.rows_;
  }

 private:
  sym::Expr Replace(sym::Expr e, sym::Expr index, const sym::Facts& facts, size_t axis) const;
  sym::Expr Row(size_t axis) const;

  sym::Pool* pool_;
  const char* text_;
  Turn turn_;
  sym::Expr first_, rows_;
};

}  // namespace kvlift
