// In which interval an integer expression lies: what decides whether machine arithmetic is exact.
// Internal to lib/sym.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "sym/expr.h"
#include "sym/forms.h"

namespace kvlift::sym::internal {

class Engine;

// low <= x <= high; infinite where nothing is known.
struct Interval {
  double low, high;

  bool Within(const Interval& other) const { return low >= other.low && high <= other.high; }
};

// The integers that a type holds exactly, without gaps: all of an integer type (of 64 bits as many
// as are needed to be on the safe side of rounding), |x| <= 2^p of a float type of precision p.
Interval ExactIntegersOf(int32_t type);

// Ranges of the expressions of one graph. Symbols of extents lie in [0, kMostSize], and so do, in
// magnitude, integers that a host feeds and that are counted from them; a product of different
// extents is at most kMostElements. Every verdict states these limits
// (AssumptionKind::kIntegerRange).
class Ranges {
 public:
  explicit Ranges(Engine& engine) : engine_(engine) {}

  Interval Of(Expr e, const Facts& facts);

 private:
  using Memo = absl::flat_hash_map<Expr, Interval>;

  Interval Compute(Expr e, const Facts& facts, Memo* memo);
  Interval Visit(Expr e, const Facts& facts, Memo* memo);
  Interval OfSum(Expr e, const Facts& facts, Memo* memo);
  Interval OfTerm(const Term& term, const Facts& facts, Memo* memo);
  Interval OfSource(ValueId v);

  Engine& engine_;
  absl::flat_hash_map<ValueId, Interval> sources_;
};

}  // namespace kvlift::sym::internal
