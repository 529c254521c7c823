#include "proof/correspondence/equality.h"

#include <algorithm>
#include <cstdlib>

#include "absl/algorithm/container.h"

namespace kvlift {

using sym::Expr;
using sym::Facts;
using sym::Kind;

namespace {

constexpr int kDeepestSelect = 8;  // the largest number of nested conditions
constexpr size_t kMostIndices = 8;
constexpr int64_t kSize = 1 << 20;  // any large size
// The largest number of pool steps for one question; the project's own tests need fewer than
// 20,000.
constexpr int64_t kMostEqualitySteps = 60000;

// Returns the condition by which a comparison selects a number; null if it compares no select.
Expr AskedBy(Expr comparison) {
  if (comparison->kind() != Kind::kLe && comparison->kind() != Kind::kEq) return nullptr;
  const Expr e = comparison->args()[0];
  if (e->kind() == Kind::kSelect) return e->args()[0];
  for (const sym::Term& term : e->terms()) {
    for (Expr atom : term.atoms) {
      if (atom->kind() == Kind::kSelect) return atom->args()[0];
    }
  }
  return nullptr;
}

// Returns a part of a conjunction, if possible one that reads no elements.
Expr SimplestPart(Expr conjunction) {
  const std::vector<Expr> parts = sym::ConjunctsOf(conjunction);
  const auto it = std::find_if(parts.begin(), parts.end(),
                               [](Expr part) { return sym::LoadsOf(part).empty(); });
  return it == parts.end() ? parts.front() : *it;
}

// Returns a comparison that divides a predicate into cases. If a comparison in the predicate
// selects a number by a condition, the result is a part of that condition; otherwise it is a part
// of a negated conjunction. Returns null if the predicate has neither.
Expr DividingCondition(Expr predicate) {
  if (const Expr asked = AskedBy(predicate)) {
    const Expr part = SimplestPart(asked->kind() == Kind::kNot ? asked->args()[0] : asked);
    const Expr inner = DividingCondition(part);
    return inner == nullptr ? part : inner;
  }
  if (predicate->kind() != Kind::kNot && predicate->kind() != Kind::kAnd) return nullptr;
  for (Expr part : predicate->args()) {
    if (const Expr condition = DividingCondition(part)) return condition;
  }
  const bool negates =
      predicate->kind() == Kind::kNot && predicate->args()[0]->kind() == Kind::kAnd;
  return negates ? SimplestPart(predicate->args()[0]) : nullptr;
}

// Adds the comparisons of numbers without elements of which a predicate is made.
void CollectBounds(Expr predicate, std::vector<Expr>* bounds) {
  if (predicate->kind() == Kind::kLe && sym::LoadsOf(predicate).empty()) {
    bounds->push_back(predicate);
  } else if (predicate->kind() == Kind::kNot || predicate->kind() == Kind::kAnd) {
    for (Expr part : predicate->args()) CollectBounds(part, bounds);
  }
}

}  // namespace

bool Equality::TakesLong() const { return pool_.num_steps() - begun_ > kMostEqualitySteps; }

bool Equality::Equal(Expr mine, Expr theirs, Expr known, const Facts& facts) {
  bool holds = Holds(mine, theirs, known, facts);
  if (!holds && HoldsWhereRowsFit(mine, theirs, known, facts)) {
    holds = true;
    known = pool_.And(known, twins_->Fits());
  }
  if (!holds && twins_ != nullptr && mine != nullptr && theirs != nullptr && !TakesLong()) {
    const Expr fitting = pool_.And(known, twins_->SourceFits());
    if (fitting != known && Holds(mine, theirs, fitting, facts)) {
      holds = true;
      known = fitting;
    }
  }
  Record(holds, mine, theirs, known, facts);
  return holds;
}

bool Equality::HoldsWhereRowsFit(Expr mine, Expr theirs, Expr known, const Facts& facts) {
  if (twins_ == nullptr || mine == nullptr || theirs == nullptr || TakesLong()) return false;
  const Expr x = twins_->Fitted(mine, facts), y = twins_->Fitted(theirs, facts);
  if ((x == mine && y == theirs) || !Holds(x, y, known, facts)) return false;
  twins_->RestOnFits();
  return true;
}

void Equality::Record(bool holds, Expr mine, Expr theirs, Expr known, const Facts& facts) {
  if (obligations_ == nullptr || mine == nullptr || theirs == nullptr) return;
  const EqualityClaim claim = {mine, theirs, known, premise_, facts};
  if (holds) {
    obligations_->Same(claim, pool_, &forms_.graph());
  } else {
    obligations_->NotSeen(claim, pool_, &forms_.graph());
  }
}

bool Equality::Holds(Expr mine, Expr theirs, Expr known, const Facts& facts) {
  begun_ = pool_.num_steps();
  if (premise_->is_integer(1)) return Equal(mine, theirs, known, facts, 0);
  Facts supposed = facts;
  for (Expr& extent : supposed.extents) {
    if (extent != nullptr) extent = Under(extent, premise_, facts);
  }
  return Equal(mine, theirs, pool_.And(known, Supposed(supposed)), supposed, 0);
}

bool Equality::Follows(Expr premise, Expr conclusion, const Facts& facts) {
  begun_ = pool_.num_steps();
  const bool follows = FollowsInAllCases(pool_.And(premise, premise_), conclusion, facts, 0);
  Record(follows, conclusion, pool_.True(), premise, facts);
  return follows;
}

bool Equality::FollowsInAllCases(Expr premise, Expr conclusion, const Facts& facts, int depth) {
  constexpr int kMostConditions = 5;
  if (Implies(premise, conclusion, facts)) return true;
  const Expr condition = DividingCondition(conclusion);
  if (condition == nullptr || depth >= kMostConditions) return false;
  for (const bool truth : {true, false}) {
    const Expr asked = truth ? condition : pool_.Not(condition);
    const Expr here = pool_.And(pool_.Assume(premise, condition, truth, facts), asked);
    if (IsImpossible(here, facts)) continue;
    const Expr then = pool_.Assume(conclusion, condition, truth, facts);
    if (!FollowsInAllCases(here, then, facts, depth + 1)) return false;
  }
  return true;
}

bool Equality::Equal(Expr mine, Expr theirs, Expr known, const Facts& facts, int depth) {
  if (mine == nullptr || theirs == nullptr || TakesLong()) return false;
  if (mine == theirs) return true;
  const Expr a = Divided(Settled(Under(mine, known, facts), facts), known, facts);
  const Expr b = Divided(Settled(Under(theirs, known, facts), facts), known, facts);
  if (a == b) return true;
  if (a->is_predicate() && b->is_predicate()) {
    return AsBounds(a) == AsBounds(b) ||
           (Implies(pool_.And(known, a), b, facts) && Implies(pool_.And(known, b), a, facts)) ||
           InCasesOfBound(a, b, known, facts, depth) ||
           InCasesOfCondition(a, b, known, facts, depth);
  }
  return SameCases(a, b, known, facts, depth) || InBothCases(a, b, known, facts, depth);
}

Expr Equality::AsBounds(Expr predicate) {
  Expr all = pool_.True();
  for (Expr bound : Bounds(predicate)) all = pool_.And(all, bound);
  return all;
}

bool Equality::SameCases(Expr mine, Expr theirs, Expr known, const Facts& facts, int depth) {
  if (depth >= kDeepestSelect || mine->kind() != Kind::kSelect || theirs->kind() != Kind::kSelect) {
    return false;
  }
  const auto p = mine->args(), q = theirs->args();
  for (const bool turned : {false, true}) {
    const Expr condition = turned ? pool_.Not(p[0]) : p[0];
    if (Equal(condition, q[0], known, facts, depth + 1) &&
        Equal(p[turned ? 2 : 1], q[1], pool_.And(known, condition), facts, depth + 1) &&
        Equal(p[turned ? 1 : 2], q[2], pool_.And(known, pool_.Not(condition)), facts, depth + 1)) {
      return true;
    }
  }
  return false;
}

bool Equality::InBothCases(Expr mine, Expr theirs, Expr known, const Facts& facts, int depth) {
  const bool first = mine->kind() == Kind::kSelect;
  if (depth >= kDeepestSelect || (!first && theirs->kind() != Kind::kSelect)) return false;
  const Expr condition = (first ? mine : theirs)->args()[0];
  for (int k : {1, 2}) {
    const Expr here = k == 1 ? condition : pool_.Not(condition);
    const Expr then = pool_.And(known, here);
    if (IsImpossible(then, facts)) continue;
    Expr a = first ? mine->args()[k] : mine, b = first ? theirs : theirs->args()[k];
    // The other expression may select by an equivalent condition.
    Expr& other = first ? b : a;
    if (other->kind() == Kind::kSelect) {
      const Expr asked = other->args()[0];
      if (Implies(then, asked, facts)) {
        other = other->args()[1];
      } else if (Implies(then, pool_.Not(asked), facts)) {
        other = other->args()[2];
      }
    }
    if (!Equal(a, b, then, facts, depth + 1)) return false;
  }
  return true;
}

bool Equality::InCasesOfBound(Expr mine, Expr theirs, Expr known, const Facts& facts, int depth) {
  if (depth >= kDeepestSelect) return false;
  std::vector<Expr> own, others;
  CollectBounds(mine, &own);
  CollectBounds(theirs, &others);
  const auto of_one = [](const std::vector<Expr>& bounds, const std::vector<Expr>& of_other) {
    const auto it = std::find_if(bounds.begin(), bounds.end(), [&](Expr bound) {
      return std::find(of_other.begin(), of_other.end(), bound) == of_other.end();
    });
    return it == bounds.end() ? nullptr : *it;
  };
  Expr bound = of_one(own, others);
  if (bound == nullptr) bound = of_one(others, own);
  if (bound == nullptr && depth > 0 && !own.empty()) bound = own.front();
  if (bound == nullptr) return false;
  for (const bool truth : {true, false}) {
    const Expr then = pool_.And(known, truth ? bound : pool_.Not(bound));
    if (IsImpossible(then, facts)) continue;
    const Expr a = Pinned(pool_.Assume(mine, bound, truth, facts), then, facts);
    const Expr b = Pinned(pool_.Assume(theirs, bound, truth, facts), then, facts);
    if (!Equal(a, b, then, facts, depth + 1)) return false;
  }
  return true;
}

bool Equality::InCasesOfCondition(Expr mine, Expr theirs, Expr known, const Facts& facts,
                                  int depth) {
  if (depth >= kDeepestSelect) return false;
  Expr condition = DividingCondition(mine);
  if (condition == nullptr) condition = DividingCondition(theirs);
  if (condition == nullptr) return false;
  for (const bool truth : {true, false}) {
    const Expr asked = truth ? condition : pool_.Not(condition);
    const Expr then = pool_.And(pool_.Assume(known, condition, truth, facts), asked);
    if (IsImpossible(then, facts)) continue;
    const Expr a = pool_.Assume(mine, condition, truth, facts);
    const Expr b = pool_.Assume(theirs, condition, truth, facts);
    if (!Equal(a, b, then, facts, depth + 1)) return false;
  }
  return true;
}

Expr Equality::Pinned(Expr e, Expr known, const Facts& facts) {
  const Expr zero = pool_.Integer(0);
  sym::Pool::Substitution s;
  for (Expr load : sym::OuterLoadsOf(e)) {
    std::vector<Expr> args(load->args().begin(), load->args().end());
    for (Expr& arg : args) {
      if (arg->kind() == Kind::kInteger || !sym::LoadsOf(arg).empty()) continue;
      const Expr is_zero = pool_.And(pool_.Le(arg, zero, facts), pool_.Le(zero, arg, facts));
      if (Implies(known, is_zero, facts)) arg = zero;
    }
    s.atoms[load] = pool_.Load(load->source(), args);
  }
  return s.atoms.empty() ? e : pool_.Substitute(e, s, facts);
}

Expr Equality::AsTruth(Expr e) {
  if (e == nullptr) return nullptr;
  sym::Pool::Substitution s;
  for (Expr load : sym::OuterLoadsOf(e)) {
    if (forms_.ElementType(load->source()) != onnx::TensorProto::BOOL) continue;
    s.atoms[load] = pool_.Not(pool_.Eq(load, pool_.Integer(0), Facts{}));
  }
  return s.atoms.empty() ? e : pool_.Substitute(e, s, Facts{});
}

Expr Equality::Settled(Expr e, const Facts& facts) {
  const auto is_one = [](Expr extent) { return extent != nullptr && extent->is_integer(1); };
  sym::Pool::Substitution s;
  for (Expr extent : facts.extents) {
    s.indices.push_back(is_one(extent) ? pool_.Integer(0) : nullptr);
  }
  e = pool_.Substitute(e, s, facts);
  s.indices.clear();
  for (Expr load : sym::OuterLoadsOf(e)) {
    const sym::Form form = forms_.Of(load->source());
    std::vector<Expr> args(load->args().begin(), load->args().end());
    for (size_t k = 0; form.known_rank && k < args.size(); ++k) {
      if (k < form.shape.size() && is_one(form.shape[k])) args[k] = pool_.Integer(0);
    }
    s.atoms[load] = pool_.Load(load->source(), args);
  }
  return s.atoms.empty() ? e : pool_.Substitute(e, s, facts);
}

// Opposite bounds, such as 7 <= P and P <= 7, leave one number.
sym::Pool::Substitution Equality::BoundSizes(absl::Span<const Expr> parts) {
  sym::Pool::Substitution sizes;
  for (Expr part : parts) {
    if (part->kind() != Kind::kLe || part->has_index()) continue;
    const Expr zero = part->args()[0];
    const Expr opposite = pool_.Le(pool_.Neg(zero), pool_.Integer(0), Facts{});
    const bool bound = opposite->is_integer(1) || absl::c_linear_search(parts, opposite);
    if (!bound || !sym::LoadsOf(zero).empty()) continue;
    for (const sym::DimSymbol& dim : sym::DimsOf(zero)) {
      const auto linear = sym::LinearIn(pool_, zero, pool_.Dim(dim));
      if (!linear || std::abs(linear->coefficient) != 1) continue;
      const Expr size = pool_.Mul(linear->rest, pool_.Integer(-linear->coefficient));
      if (size->kind() == Kind::kInteger) sizes.dims[dim] = size;
    }
  }
  return sizes;
}

Expr Equality::Under(Expr e, Expr known, const Facts& facts) {
  const std::vector<Expr> parts = sym::ConjunctsOf(known);
  bool bounds_index = false;
  for (Expr part : parts) {
    e = pool_.Assume(e, part, true, facts);
    bounds_index = bounds_index || (part->kind() == Kind::kLe && part->has_index());
  }
  if (const auto sizes = BoundSizes(parts); !sizes.dims.empty()) {
    e = pool_.Substitute(e, sizes, facts);
  }
  if (!bounds_index) return e;
  // An index whose bounds leave one value has that value.
  sym::Pool::Substitution s;
  s.indices.resize(kMostIndices, nullptr);
  bool any = false;
  for (size_t k = 0; k < kMostIndices; ++k) {
    const Expr extent = k < facts.extents.size() ? facts.extents[k] : nullptr;
    std::vector<Expr> below = {pool_.Integer(0)}, above;  // what bounds the index
    if (extent != nullptr) above.push_back(pool_.Sub(extent, pool_.Integer(1)));
    for (Expr part : parts) {
      if (part->kind() != Kind::kLe) continue;
      const auto linear = sym::LinearIn(pool_, part->args()[0], pool_.Index(static_cast<int>(k)));
      if (linear && linear->coefficient == -1) below.push_back(linear->rest);
      if (linear && linear->coefficient == 1) above.push_back(pool_.Neg(linear->rest));
    }
    absl::c_stable_partition(below, [](Expr bound) { return bound->kind() == Kind::kInteger; });
    const auto one =
        absl::c_find_if(below, [&](Expr bound) { return absl::c_linear_search(above, bound); });
    if (one == below.end()) continue;
    s.indices[k] = *one;
    any = true;
  }
  if (!any) return e;
  e = pool_.Substitute(e, s, facts);
  for (Expr part : parts) {
    const Expr then = pool_.Substitute(part, s, facts);
    if (then->kind() != Kind::kInteger) e = pool_.Assume(e, then, true, facts);
  }
  return e;
}

// A bound counts if it is a number: a conjunct -i_k + c <= 0.
std::vector<Expr> Equality::LeastIndices(Expr known) {
  std::vector<Expr> least(kMostIndices, pool_.Integer(0));
  for (Expr part : sym::ConjunctsOf(known)) {
    if (part->kind() != Kind::kLe) continue;
    for (size_t k = 0; k < kMostIndices; ++k) {
      const auto linear = sym::LinearIn(pool_, part->args()[0], pool_.Index(static_cast<int>(k)));
      const bool bounds =
          linear && linear->coefficient == -1 && linear->rest->kind() == Kind::kInteger;
      if (bounds && linear->rest->value() > least[k]->value()) least[k] = linear->rest;
    }
  }
  return least;
}

// The candidate for a quotient is its value at the smallest indices, with elements 0 and all sizes
// large. It is used if `known` implies it.
Expr Equality::Divided(Expr e, Expr known, const Facts& facts) {
  if (premise_->is_integer(1) && known->is_integer(1)) return e;
  const Expr zero = pool_.Integer(0);
  for (const Expr division : sym::DivisionsOf(e)) {
    const Expr a = division->args()[0], b = division->args()[1];
    sym::Pool::Substitution origin;
    origin.indices = LeastIndices(known);
    for (Expr load : sym::OuterLoadsOf(a)) origin.atoms[load] = zero;
    for (const sym::DimSymbol& name : sym::DimsOf(division))
      origin.dims[name] = pool_.Integer(kSize);
    const Expr number = pool_.FloorDiv(pool_.Substitute(a, origin, facts),
                                       pool_.Substitute(b, origin, facts), facts);
    if (number->kind() != Kind::kInteger || TakesLong()) continue;
    const Expr rest = pool_.Sub(a, pool_.Mul(number, b));
    if (!Implies(known, pool_.And(pool_.Le(zero, rest, facts), pool_.Lt(rest, b, facts)), facts)) {
      continue;
    }
    sym::Pool::Substitution s;
    s.atoms[division] = number;
    return Divided(pool_.Substitute(e, s, facts), known, facts);
  }
  return e;
}

// Adds x + y <= 0 for all x <= 0 and y <= 0 of the premise, and i < C where the extent of i is at
// most C.
Expr Equality::Supposed(const Facts& facts) {
  const Expr zero = pool_.Integer(0), one = pool_.Integer(1);
  std::vector<Expr> not_positive;
  for (Expr part : sym::ConjunctsOf(premise_)) {
    if (part->kind() == Kind::kLe) not_positive.push_back(part->args()[0]);
  }
  const size_t given = not_positive.size();
  for (size_t k = 0; k < facts.extents.size(); ++k) {
    if (facts.extents[k] == nullptr || sym::LoadsOf(facts.extents[k]).empty()) continue;
    for (size_t p = 0; p < given; ++p) {
      const Expr most = pool_.Sub(facts.extents[k], not_positive[p]);
      if (!sym::LoadsOf(most).empty()) continue;
      const Expr index = pool_.Index(static_cast<int>(k));
      not_positive.push_back(pool_.Sub(pool_.Add(index, one), most));
    }
  }
  Expr all = premise_;
  for (size_t k = 0; k < not_positive.size(); ++k) {
    for (size_t m = 0; m < k; ++m) {
      all = pool_.And(all, pool_.Le(pool_.Add(not_positive[k], not_positive[m]), zero, facts));
    }
    all = pool_.And(all, pool_.Le(not_positive[k], zero, facts));
  }
  return all;
}

std::vector<Expr> Equality::Bounds(Expr predicate) {
  std::vector<Expr> bounds;
  for (Expr part : sym::ConjunctsOf(predicate)) {
    if (part->kind() != Kind::kEq) {
      bounds.push_back(part);
      continue;
    }
    const Expr x = part->args()[0], zero = pool_.Integer(0);
    bounds.push_back(pool_.Le(x, zero, Facts{}));
    bounds.push_back(pool_.Le(zero, x, Facts{}));
  }
  return bounds;
}

std::vector<Expr> Equality::Known(Expr p, const Facts& facts) {
  std::vector<Expr> known = Bounds(p);
  const std::vector<Expr> parts = sym::ConjunctsOf(p);
  known.insert(known.end(), parts.begin(), parts.end());
  for (Expr part : parts) {
    if (TakesLong()) break;
    Expr simpler = part;
    for (Expr other : parts) {
      if (other != part) simpler = pool_.Assume(simpler, other, true, facts);
    }
    if (simpler == part) continue;
    for (Expr bound : Bounds(simpler)) known.push_back(bound);
    known.push_back(simpler);
  }
  return known;
}

// Every conjunct of q has to follow from the parts of p.
bool Equality::Implies(Expr p, Expr q, const Facts& facts) {
  const std::vector<Expr> known = Known(p, facts);
  for (Expr left : Bounds(q)) {
    if (TakesLong()) return false;
    for (Expr part : known) left = pool_.Assume(left, part, true, facts);
    if (!left->is_integer(1) && pool_.Prove(left, facts) != sym::Truth::kYes) return false;
  }
  return true;
}

bool Equality::IsImpossible(Expr p, const Facts& facts) {
  for (Expr part : Known(p, facts)) {
    if (TakesLong()) return false;
    if (part->is_integer(0) || pool_.Prove(part, facts) == sym::Truth::kNo) return true;
  }
  return false;
}

}  // namespace kvlift
