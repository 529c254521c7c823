// Intervals of integer expressions, which decide whether machine arithmetic is exact. Internal to
// lib/sym.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "sym/expr/expr.h"
#include "sym/forms/forms.h"

namespace kvlift::sym::internal {

class Engine;

// low <= x <= high. An infinite bound is unknown.
struct Interval {
  double low, high;

  bool Within(const Interval& other) const { return low >= other.low && high <= other.high; }
};

// Returns an interval of integers that a type represents exactly, without gaps: the whole range of
// integer types up to 32 bits, somewhat less for 64 bits (bounds are doubles and may be rounded),
// and |x| <= 2^p for a float type with p bits of precision. Returns [0, 0] for other types.
Interval ExactIntegersOf(int32_t type);

// Intervals of the expressions of one graph. Symbols of extents are taken to lie in [0,
// MostSize()]. Integers that the host gives, and places on axes and counts derived from them, are
// taken to have at most that magnitude. A product of distinct extents is taken to be at most
// kMostElements. Every verdict states these limits (AssumptionKind::kIntegerRange).
class Ranges {
 public:
  explicit Ranges(Engine& engine)
      : engine_(engine),
        most_size_(static_cast<double>(MostSize())),
        most_elements_(static_cast<double>(std::max(MostSize(), kMostElements))) {}

  // Returns an interval that contains e for all indices that the facts allow.
  Interval Of(Expr e, const Facts& facts);

 private:
  using Memo = absl::flat_hash_map<Expr, Interval>;

  Interval Compute(Expr e, const Facts& facts, Memo* memo);
  Interval Visit(Expr e, const Facts& facts, Memo* memo);
  Interval OfSum(Expr e, const Facts& facts, Memo* memo);
  Interval OfTerm(const Term& term, const Facts& facts, Memo* memo);
  Interval OfSource(ValueId v);
  Interval OfCount(ValueId v, const Interval& operand, const Interval& usual);

  Engine& engine_;
  const double most_size_, most_elements_;
  absl::flat_hash_map<ValueId, Interval> sources_;
};

}  // namespace kvlift::sym::internal
