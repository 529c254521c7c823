#include "proof/lemmas/finite_minimum.h"

#include "fmt/format.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;

bool HidesKey(double number) {
  constexpr double kLow = -1e4;
  return number <= kLow;
}

bool SeesAKey(sym::Pool& pool, Expr visible, const Facts& extents) {
  constexpr size_t kQueries = 2, kKeys = 3;
  const Expr keys = extents.extents[kKeys], queries = extents.extents[kQueries];
  if (visible == nullptr || keys == nullptr || queries == nullptr) return false;
  const Expr own = pool.Add(pool.Sub(keys, queries), pool.Index(2));
  for (const Expr key : {own, pool.Integer(0)}) {
    Facts where = extents;
    where.extents[kKeys] = nullptr;
    sym::Pool::Substitution at;
    at.indices = {nullptr, nullptr, nullptr, key};
    const Expr seen = pool.Substitute(visible, at, where);
    const Expr is_there = pool.And(pool.Le(pool.Integer(0), key, where), pool.Lt(key, keys, where));
    const auto holds = [&](Expr e) {
      return e->is_integer(1) || pool.Prove(e, where) == sym::Truth::kYes;
    };
    if (holds(is_there) && holds(seen)) return true;
  }
  return false;
}

Assumption HiddenKeysScoreLow(const std::string& attention, const std::set<double>& numbers,
                              bool sink) {
  constexpr double kNothing = 745;     // exp(-745) is the smallest positive number of float64
  constexpr double kBeyondAll = 1e30;  // beyond all scores of a working model
  const double distance = -*numbers.rbegin() - kNothing;
  const bool finite = distance > kBeyondAll;
  return ScoresWithin(finite ? AssumptionKind::kFinite : AssumptionKind::kScoreRange, attention,
                      finite ? kBeyondAll : distance / 2, sink);
}

Assumption ScoresWithin(AssumptionKind kind, const std::string& attention, double most, bool sink) {
  return {kind, attention,
          fmt::format("each query of {0} sees a key{2} that scores more than -{1}, and no hidden "
                      "key scores more than {1} before it is hidden",
                      attention, most, sink ? " or a sink" : ""),
          AssumptionSource::kHost};
}

}  // namespace kvlift
