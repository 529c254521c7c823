// Caches of M rows that move to the front with each step (kind "shift"): row t of the source is in
// slot (t + P + S) mod M of the conversion, as long as a step has M tokens at most.
#pragma once

#include <optional>
#include <vector>

#include "contract/manifest.h"
#include "proof/pair.h"

namespace kvlift {

struct ShiftOfRows {
  sym::Expr slots = nullptr;   // M, a number
  sym::Expr tokens = nullptr;  // S: a dim, or a number
};

// Of a cache of the source; nothing if its form does not say so.
std::optional<ShiftOfRows> ReadShiftOfRows(const GraphPair& pair, const ManifestCache& cache);

// Some rows of the source, where the conversion has them.
class ShiftedRows {
 public:
  // Rows [0, M - S), and from there on: all there are. `stay`: the dim M - S, null if it is a
  // number.
  static std::vector<ShiftedRows> Regions(sym::Pool& pool, const ShiftOfRows& shift, sym::Expr past,
                                          sym::Expr stay);

  const char* text() const { return text_; }
  sym::Expr slots() const { return shift_.slots; }
  // i_axis counts slots in expressions of the conversion, rows in those of the source; the rows of
  // this region in what these make of it.
  sym::Facts Extents(const sym::Facts& facts, size_t axis) const;
  sym::Expr Mine(sym::Expr e, const sym::Facts& facts, size_t axis) const;
  sym::Expr Theirs(sym::Expr e, const sym::Facts& facts, size_t axis) const;

 private:
  explicit ShiftedRows(sym::Pool& pool) : pool_(&pool) {}
  sym::Expr Replace(sym::Expr e, sym::Expr index, const sym::Facts& facts, size_t axis) const;

  sym::Pool* pool_;
  const char* text_ = "";
  ShiftOfRows shift_;
  sym::Expr past_ = nullptr;
  sym::Expr first_ = nullptr, rows_ = nullptr;  // of the region
  sym::Pool::Substitution sizes_;
};

}  // namespace kvlift
