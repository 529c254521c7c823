#include "sym/forms/reach.h"

#include <algorithm>

namespace kvlift::sym::internal {
namespace {

constexpr int64_t kMaxPlaces = 256;

// Returns true if a condition depends on indices only.
bool AsksIndices(Expr e) {
  if (e->kind() == Kind::kDim || e->kind() == Kind::kLoad || e->kind() == Kind::kApply ||
      e->kind() == Kind::kFloat) {
    return false;
  }
  for (Expr arg : e->args()) {
    if (!AsksIndices(arg)) return false;
  }
  for (const Term& term : e->terms()) {
    if (!std::all_of(term.atoms.begin(), term.atoms.end(), AsksIndices)) return false;
  }
  return true;
}

using Place = std::vector<Expr>;  // index per axis; null on axes that are not enumerated

class Walker {
 public:
  Walker(Pool& pool, const Shape& extents) : pool_(pool), extents_(extents) {}

  Expr Run(Expr e) {
    std::vector<bool> asked(extents_.size(), false);
    MarkAsked(e, &asked);
    std::vector<Place> places{Place(extents_.size(), nullptr)};
    for (size_t axis = 0; axis < extents_.size(); ++axis) {
      if (!asked[axis]) continue;
      const Expr n = extents_[axis];
      const bool small = n->kind() == Kind::kInteger && n->value() > 0 &&
                         n->value() <= kMaxPlaces / std::ssize(places);
      if (small) places = Multiplied(places, axis, n->value());
    }
    return places.size() > 1 ? Visit(e, places) : e;
  }

 private:
  // Marks the axes that conditions above the leaves depend on, except for conditions that depend on
  // data as well.
  void MarkAsked(Expr e, std::vector<bool>* asked) {
    if (e->kind() != Kind::kSelect) return;
    if (AsksIndices(e->args()[0])) {
      for (size_t axis = 0; axis < asked->size(); ++axis) {
        (*asked)[axis] = (*asked)[axis] || ContainsIndex(e->args()[0], static_cast<int>(axis));
      }
    }
    MarkAsked(e->args()[1], asked);
    MarkAsked(e->args()[2], asked);
  }

  std::vector<Place> Multiplied(const std::vector<Place>& places, size_t axis, int64_t n) {
    std::vector<Place> result;
    for (const Place& place : places) {
      for (int64_t i = 0; i < n; ++i) {
        result.push_back(place);
        result.back()[axis] = pool_.Integer(i);
      }
    }
    return result;
  }

  Expr Visit(Expr e, const std::vector<Place>& places) {
    if (e->kind() != Kind::kSelect) return e;
    const Expr condition = e->args()[0];
    std::vector<Place> yes, no;
    for (const Place& place : places) {
      Pool::Substitution s;
      s.indices = place;
      const Expr truth =
          AsksIndices(condition) ? pool_.Substitute(condition, s, Facts{extents_}) : condition;
      if (!truth->is_integer(0)) yes.push_back(place);
      if (!truth->is_integer(1)) no.push_back(place);
    }
    if (yes.empty()) return Visit(e->args()[2], no);
    if (no.empty()) return Visit(e->args()[1], yes);
    return pool_.Select(condition, Visit(e->args()[1], yes), Visit(e->args()[2], no));
  }

  Pool& pool_;
  const Shape& extents_;
};

}  // namespace

Expr WithoutUnreached(Pool& pool, Expr e, const Shape& extents) {
  return Walker(pool, extents).Run(e);
}

}  // namespace kvlift::sym::internal
