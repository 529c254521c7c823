// Rows that the source and the conversion have in other places: a region of them, in which both
// places are sums.
#pragma once

#include <vector>

#include "sym/expr.h"

namespace kvlift {

// How rows of the source lie in a buffer of the conversion that is written around its end: row t is
// in slot (t + turn) mod slots.
struct Turn {
  sym::Expr slots = nullptr;
  sym::Expr turn = nullptr;

  friend bool operator==(const Turn&, const Turn&) = default;
};

class MovedRows {
 public:
  // Rows [first, first + rows) of the source.
  MovedRows(sym::Pool& pool, const char* text, Turn turn, sym::Expr first, sym::Expr rows)
      : pool_(&pool), text_(text), turn_(turn), first_(first), rows_(rows) {}

  // Rows of the source in front of these regions, which follow one another, and slots that are left
  // behind their last row. Empty if there are none.
  static MovedRows InFrontOf(const std::vector<MovedRows>& regions);
  static MovedRows Behind(const std::vector<MovedRows>& regions);

  const char* text() const { return text_; }
  bool empty() const { return rows_->is_integer(0); }
  sym::Expr slots() const { return turn_.slots; }
  sym::Expr first() const { return first_; }
  sym::Expr end() const { return pool_->Add(first_, rows_); }

  // i_axis counts slots in expressions of the conversion, rows in those of the source; the rows of
  // this region in what these make of it. facts: of the former.
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
