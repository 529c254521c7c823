// Predicates and selects.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "sym/expr/expr.h"
#include "sym/expr/pool_impl.h"

namespace kvlift::sym {
namespace {

constexpr int64_t kMaxAssumedSize = 4000;

std::optional<double> NumberOf(Expr e) {
  if (e->kind() == Kind::kFloat) return e->float_value();
  if (e->kind() == Kind::kInteger) return static_cast<double>(e->value());
  return std::nullopt;
}

// Returns true for a huge constant plus an integer (a sum with a Float has only integers besides):
// such a sum equals no 64-bit integer.
bool IsBeyondIntegers(Expr e) {
  if (e->kind() != Kind::kApply || e->function() != "add") return false;
  constexpr double kBeyond = 36893488147419103232.0;  // 2^65
  return std::any_of(e->args().begin(), e->args().end(), [](Expr arg) {
    return arg->kind() == Kind::kFloat && std::fabs(arg->float_value()) >= kBeyond;
  });
}

int64_t FloorOf(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

// Returns a common divisor of the coefficients of all terms with atoms; 0 if there are no such
// terms.
int64_t ContentOf(Expr e) {
  int64_t g = 0;
  for (const Term& term : TermsOf(e)) {
    if (term.coefficient == INT64_MIN) return 1;  // its absolute value does not fit into int64
    if (term.atoms.empty()) continue;
    g = std::gcd(g, term.coefficient);
  }
  return g;
}

Expr Divided(Pool& pool, Expr e, int64_t g) {
  Expr sum = pool.Integer(0);
  for (const Term& term : TermsOf(e)) {
    Expr product = pool.Integer(term.coefficient / g);
    for (Expr a : term.atoms) product = pool.Mul(product, a);
    sum = pool.Add(sum, product);
  }
  return sum;
}

// A select or predicate that occurs linearly at the top of e: its condition, and e in both cases.
struct Cases {
  Expr condition, then, otherwise;
};
std::optional<Cases> SplitCases(Pool& pool, Expr e) {
  for (const Term& term : TermsOf(e)) {
    for (Expr atom : term.atoms) {
      const bool select = atom->kind() == Kind::kSelect;
      if (!select && !atom->is_predicate()) continue;
      Expr c = nullptr, rest = nullptr;
      if (!CollectLinear(pool, e, atom, &c, &rest)) continue;
      const Expr a = select ? atom->args()[1] : pool.Integer(1);
      const Expr b = select ? atom->args()[2] : pool.Integer(0);
      if (a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) continue;
      return Cases{select ? atom->args()[0] : atom, pool.Add(rest, pool.Mul(c, a)),
                   pool.Add(rest, pool.Mul(c, b))};
    }
  }
  return std::nullopt;
}

}  // namespace

Expr Pool::Le(Expr a, Expr b, const Facts& facts) {
  if (a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) {
    const auto x = NumberOf(a), y = NumberOf(b);
    if (x && y) return Integer(*x <= *y ? 1 : 0);
    for (Expr e : {a, b}) {
      if (e->kind() != Kind::kSelect) continue;
      const Expr other = e == a ? b : a;
      const auto side = [&](Expr x2) {
        return e == a ? Le(x2, other, facts) : Le(other, x2, facts);
      };
      return Select(e->args()[0], side(e->args()[1]), side(e->args()[2]));
    }
    return Apply("less", {a, b, Integer(1)});
  }
  Expr p = Sub(a, b);
  if (p->kind() == Kind::kFloat) return Integer(p->float_value() <= 0 ? 1 : 0);
  if (p->kind() == Kind::kInteger) return Integer(p->value() <= 0 ? 1 : 0);
  const auto key = std::pair(p, facts.extents);
  if (const auto it = impl_->at_most_zero.find(key); it != impl_->at_most_zero.end()) {
    return it->second;
  }
  const Expr result = AtMostZero(p, facts);
  if (!exhausted()) impl_->at_most_zero[key] = result;
  return result;
}

// Returns the normal form of p <= 0, where p is neither a number nor a sum of numbers.
Expr Pool::AtMostZero(Expr p, const Facts& facts) {
  if (ProveNonNegative(Neg(p), facts)) return True();
  if (ProveNonNegative(Sub(p, Integer(1)), facts)) return False();
  if (const auto cases = exhausted() ? std::nullopt : SplitCases(*this, p)) {
    const Expr x = Le(cases->then, Integer(0), facts), y = Le(cases->otherwise, Integer(0), facts);
    if (x->kind() == Kind::kInteger || y->kind() == Kind::kInteger) {
      return Select(cases->condition, x, y);
    }
  }
  if (const int64_t g = ContentOf(p); g > 1) {
    // g*q + c <= 0 exactly if q <= floor(-c / g).
    const auto [q, c] = SplitConstant(*this, p);
    p = Sub(Divided(*this, q, g), Integer(FloorOf(-c, g)));
  }
  Node node;
  node.kind_ = Kind::kLe;
  node.args_ = {p};
  return impl_->Intern(std::move(node));
}

Expr Pool::Lt(Expr a, Expr b, const Facts& facts) {
  if (a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) {
    const auto x = NumberOf(a), y = NumberOf(b);
    if (x && y) return Integer(*x < *y ? 1 : 0);  // false if one of them is NaN
    return Not(Le(b, a, facts));
  }
  return Le(Add(a, Integer(1)), b, facts);
}

namespace {

// Returns i == n - 1 as i > n - 2 for an index i of an axis of n elements, so that a choice by
// Equal has the form of one by Concat. p is i - c, or -i + c. Returns null if it is anything else.
Expr AtEndOfAxis(Pool& pool, Expr p, const Facts& facts) {
  for (const Term& term : TermsOf(p)) {
    if (term.atoms.size() != 1 || term.atoms[0]->kind() != Kind::kIndex) continue;
    const Expr index = term.atoms[0];
    const auto linear = LinearIn(pool, p, index);
    if (!linear || std::abs(linear->coefficient) != 1) return nullptr;
    if (linear->rest->kind() != Kind::kInteger) return nullptr;
    const int64_t place = -linear->coefficient * linear->rest->value();
    const auto k = static_cast<size_t>(index->index());
    const Expr extent = k < facts.extents.size() ? facts.extents[k] : nullptr;
    if (extent == nullptr || !extent->is_integer(place + 1)) return nullptr;
    return pool.Not(pool.Le(index, pool.Integer(place - 1), Facts{}));
  }
  return nullptr;
}

}  // namespace

Expr Pool::Eq(Expr a, Expr b, const Facts& facts) {
  if ((IsBeyondIntegers(a) && b->kind() == Kind::kInteger) ||
      (IsBeyondIntegers(b) && a->kind() == Kind::kInteger)) {
    return False();
  }
  if (a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) {
    const auto x = NumberOf(a), y = NumberOf(b);
    if (x && y) return Integer(*x == *y ? 1 : 0);
    for (Expr e : {a, b}) {
      if (e->kind() != Kind::kSelect) continue;
      const Expr other = e == a ? b : a;
      return Select(e->args()[0], Eq(e->args()[1], other, facts), Eq(e->args()[2], other, facts));
    }
    return Apply("same", {a, b});
  }
  Expr p = Sub(a, b);
  if (p->kind() == Kind::kInteger) return Integer(p->value() == 0 ? 1 : 0);
  if (p->kind() == Kind::kFloat) return Integer(p->float_value() == 0 ? 1 : 0);
  if (ProveNonNegative(Sub(p, Integer(1)), facts) ||
      ProveNonNegative(Sub(Neg(p), Integer(1)), facts)) {
    return False();
  }
  if (const auto cases = SplitCases(*this, p)) {
    const Expr x = Eq(cases->then, Integer(0), facts), y = Eq(cases->otherwise, Integer(0), facts);
    if (x->kind() == Kind::kInteger || y->kind() == Kind::kInteger) {
      return Select(cases->condition, x, y);
    }
  }
  if (const int64_t g = ContentOf(p); g > 1) {
    const auto [q, c] = SplitConstant(*this, p);
    if (c % g != 0) return False();
    p = Divided(*this, p, g);
  }
  if (TermsOf(p).back().coefficient < 0) p = Neg(p);
  if (const Expr end = AtEndOfAxis(*this, p, facts); end != nullptr) return end;
  Node node;
  node.kind_ = Kind::kEq;
  node.args_ = {p};
  return impl_->Intern(std::move(node));
}

Expr Pool::Not(Expr p) {
  if (p->kind() == Kind::kInteger) return Integer(p->value() == 0 ? 1 : 0);
  if (p->kind() == Kind::kNot) return p->args()[0];
  if (p->kind() == Kind::kLe) {
    return Le(Integer(1), p->args()[0], Facts{});
  }
  if (p->kind() == Kind::kSelect) {
    return Select(p->args()[0], Not(p->args()[1]), Not(p->args()[2]));
  }
  Node node;
  node.kind_ = Kind::kNot;
  node.args_ = {p};
  return impl_->Intern(std::move(node));
}

namespace {

// Returns true if x <= 0 and y != 0 exclude each other: x is never negative, and y is 0 where x is.
bool ExcludesZero(Pool& pool, Expr below, Expr other) {
  if (below->kind() != Kind::kLe || other->kind() != Kind::kNot) return false;
  const Expr equal = other->args()[0], x = below->args()[0];
  if (equal->kind() != Kind::kEq || !pool.ProveNonNegative(x, Facts{})) return false;
  const Expr y = equal->args()[0];
  if (y == x || y == pool.Neg(x)) return true;
  if (x->kind() != Kind::kDim) return false;
  Pool::Substitution zero;
  zero.dims[x->dim()] = pool.Integer(0);
  return pool.Substitute(y, zero, Facts{})->is_integer(0);
}

// Adds q to a conjunction in which no member implies another one. Returns false if the conjunction
// is then false.
bool AddConjunct(Pool& pool, std::vector<Expr>* all, Expr q) {
  for (auto it = all->begin(); it != all->end();) {
    if (*it == q) return true;
    if (*it == pool.Not(q)) return false;
    if (ExcludesZero(pool, *it, q) || ExcludesZero(pool, q, *it)) return false;
    if ((*it)->kind() == Kind::kLe && q->kind() == Kind::kLe) {
      const Expr x = (*it)->args()[0], y = q->args()[0];
      // x >= y everywhere, so x <= 0 implies y <= 0.
      if (pool.ProveNonNegative(pool.Sub(x, y), Facts{})) return true;
      if (pool.ProveNonNegative(pool.Sub(pool.Add(x, y), pool.Integer(1)), Facts{})) return false;
      if (pool.ProveNonNegative(pool.Sub(y, x), Facts{})) {
        it = all->erase(it);
        continue;
      }
    }
    ++it;
  }
  all->push_back(q);
  return true;
}

}  // namespace

Expr Pool::And(Expr p, Expr q) {
  if (p->is_integer(0) || q->is_integer(0)) return False();
  if (p->kind() == Kind::kInteger) return q;
  if (q->kind() == Kind::kInteger) return p;
  std::vector<Expr> all;
  for (Expr side : {p, q}) {
    for (Expr part : ConjunctsOf(side)) {
      if (!AddConjunct(*this, &all, part)) return False();
    }
  }
  std::sort(all.begin(), all.end(), [](Expr a, Expr b) { return a->id() < b->id(); });
  if (all.size() == 1) return all[0];
  Node node;
  node.kind_ = Kind::kAnd;
  node.args_ = std::move(all);
  return impl_->Intern(std::move(node));
}

Expr Pool::Or(Expr p, Expr q) {
  if (p->is_integer(1) || q->is_integer(1)) return True();
  if (p->is_integer(0) || p == q) return q;
  if (q->is_integer(0)) return p;
  // Shared conjuncts are factored out; p or (p and r) becomes p.
  std::vector<Expr> a = ConjunctsOf(p), b = ConjunctsOf(q);
  Expr shared = True(), left = True(), right = True();
  for (Expr x : a) {
    if (std::find(b.begin(), b.end(), x) != b.end()) {
      shared = And(shared, x);
    } else {
      left = And(left, x);
    }
  }
  for (Expr y : b) {
    if (std::find(a.begin(), a.end(), y) == a.end()) right = And(right, y);
  }
  if (!shared->is_integer(1)) return And(shared, Or(left, right));
  return Not(And(Not(p), Not(q)));
}

namespace {

// Returns e where the condition holds: a load that the condition fixes to one number is replaced by
// it, as in x == 1 ? 1 - x : y.
Expr WithPinnedLoads(Pool& pool, Expr e, Expr condition) {
  if (e->args().empty() && e->terms().empty()) return e;
  for (Expr part : ConjunctsOf(condition)) {
    if (part->kind() != Kind::kEq) continue;
    const Expr zero = part->args()[0];
    for (const Term& term : TermsOf(zero)) {
      if (term.atoms.size() != 1 || term.atoms[0]->kind() != Kind::kLoad) continue;
      const auto linear = LinearIn(pool, zero, term.atoms[0]);
      if (!linear || std::abs(linear->coefficient) != 1) continue;
      if (linear->rest->kind() != Kind::kInteger) continue;
      Pool::Substitution s;
      s.atoms[term.atoms[0]] = pool.Mul(linear->rest, pool.Integer(-linear->coefficient));
      e = pool.Substitute(e, s, Facts{});
    }
  }
  return e;
}

}  // namespace

namespace {

// Returns true for i >= e with the highest index i. A select then asks i < e instead, so that equal
// selects have one form.
bool IsLowerBound(Expr c) {
  if (c->kind() != Kind::kLe) return false;
  int highest = -1;
  int64_t coefficient = 0;
  for (const Term& term : TermsOf(c->args()[0])) {
    if (term.atoms.size() != 1 || term.atoms[0]->kind() != Kind::kIndex) continue;
    if (term.atoms[0]->index() < highest) continue;
    highest = term.atoms[0]->index();
    coefficient = term.coefficient;
  }
  return coefficient < 0;
}

bool IsSize(Expr e) {
  return e->kind() == Kind::kDim || e->kind() == Kind::kSum || e->kind() == Kind::kInteger;
}

// Returns x if c is x <= 0 and a and b are sizes that are equal where x is `at`; null otherwise.
Expr EqualWhere(Pool& pool, Expr c, Expr a, Expr b, int64_t at) {
  if (c->kind() != Kind::kLe || !IsSize(a) || !IsSize(b) || !IsSize(c->args()[0])) return nullptr;
  const Expr x = c->args()[0], beyond = pool.Sub(x, pool.Integer(at));
  const Expr difference = pool.Sub(b, a);
  return difference == beyond || difference == pool.Neg(beyond) ? x : nullptr;
}

}  // namespace

Expr Pool::Select(Expr c, Expr a, Expr b) {
  if (c->kind() == Kind::kInteger) return c->value() != 0 ? a : b;
  if (c->kind() == Kind::kNot) return Select(c->args()[0], b, a);
  if (a == b) return a;
  a = WithPinnedLoads(*this, Assume(a, c, true, Facts{}), c);
  b = Assume(b, c, false, Facts{});
  if (a == b) return a;
  const bool pa = a->is_predicate(), pb = b->is_predicate();
  if (pa && pb) {
    if (a->is_integer(1)) return Or(c, b);
    if (b->is_integer(0)) return And(c, a);
    if (a->is_integer(0)) return And(Not(c), b);
    if (b->is_integer(1)) return Or(Not(c), a);
  }
  if (a->kind() == Kind::kSelect) {
    const Expr d = a->args()[0], x = a->args()[1], y = a->args()[2];
    if (y == b) return Select(And(c, d), x, b);
    if (x == b) return Select(And(c, Not(d)), y, b);
  }
  if (b->kind() == Kind::kSelect) {
    const Expr d = b->args()[0], x = b->args()[1], y = b->args()[2];
    if (x == a) return Select(Or(c, d), a, y);
    if (y == a) return Select(And(Not(c), d), x, a);
  }
  if (IsLowerBound(c)) {
    c = Not(c);
    std::swap(a, b);
  }
  // max(x, 0) is x if x is never negative: where x is 0, both numbers are equal.
  if (const Expr x = EqualWhere(*this, c, a, b, 0); x != nullptr && ProveNonNegative(x, Facts{})) {
    return b;
  }
  if (const Expr x = EqualWhere(*this, c, a, b, 1);
      x != nullptr && ProveNonNegative(Sub(Integer(1), x), Facts{})) {
    return a;
  }
  Node node;
  node.kind_ = Kind::kSelect;
  node.args_ = {c, a, b};
  return impl_->Intern(std::move(node));
}

Expr Pool::Lift(absl::Span<const Expr> xs, const std::function<Expr(absl::Span<const Expr>)>& fn) {
  for (size_t k = 0; k < xs.size(); ++k) {
    if (xs[k]->kind() != Kind::kSelect) continue;
    std::vector<Expr> left(xs.begin(), xs.end()), right = left;
    left[k] = xs[k]->args()[1];
    right[k] = xs[k]->args()[2];
    return Select(xs[k]->args()[0], Lift(left, fn), Lift(right, fn));
  }
  return fn(xs);
}

namespace {

// Replaces predicates that follow from, or contradict, known predicates.
class Assumer {
 public:
  Assumer(Pool& pool, std::vector<Expr> known, const Facts& facts)
      : pool_(pool), known_(std::move(known)), facts_(facts) {}

  Expr Visit(Expr e) {
    if (!e->has_condition()) return e;
    if (const auto it = memo_.find(e); it != memo_.end()) return it->second;
    const Expr result = Rewrite(e);
    memo_[e] = result;
    return result;
  }

 private:
  Expr Rewrite(Expr e) {
    switch (e->kind()) {
      case Kind::kLe:
      case Kind::kEq:
        return Decide(e);
      case Kind::kNot:
        return pool_.Not(Visit(e->args()[0]));
      case Kind::kAnd: {
        Expr all = pool_.True();
        for (Expr arg : e->args()) all = pool_.And(all, Visit(arg));
        return all;
      }
      case Kind::kSelect: {
        const Expr c = Visit(e->args()[0]), a = Visit(e->args()[1]), b = Visit(e->args()[2]);
        if (c == e->args()[0] && a == e->args()[1] && b == e->args()[2]) return e;
        return pool_.Select(c, a, b);
      }
      case Kind::kSum: {
        Expr sum = pool_.Integer(0);
        for (const Term& term : e->terms()) {
          Expr product = pool_.Integer(term.coefficient);
          for (Expr a : term.atoms) product = pool_.Mul(product, Visit(a));
          sum = pool_.Add(sum, product);
        }
        return sum;
      }
      case Kind::kLoad: {
        std::vector<Expr> args;
        for (Expr arg : e->args()) args.push_back(Visit(arg));
        return pool_.Load(e->source(), args);
      }
      default:
        return e;
    }
  }

  Expr Decide(Expr q) {
    for (Expr k : known_) {
      if (k == q) return pool_.True();
      if (k == pool_.Not(q)) return pool_.False();
      if (k->kind() != Kind::kLe || q->kind() != Kind::kLe) continue;
      const Expr x = k->args()[0], y = q->args()[0];
      if (pool_.ProveNonNegative(pool_.Sub(x, y), facts_)) return pool_.True();
      if (pool_.ProveNonNegative(pool_.Sub(pool_.Add(x, y), pool_.Integer(1)), facts_)) {
        return pool_.False();
      }
    }
    // A number in the comparison may be selected by a condition that is decided.
    const Expr before = q->args()[0], after = Visit(before);
    if (after == before) return q;
    const Expr zero = pool_.Integer(0);
    return q->kind() == Kind::kLe ? pool_.Le(after, zero, facts_) : pool_.Eq(after, zero, facts_);
  }

  Pool& pool_;
  std::vector<Expr> known_;
  const Facts& facts_;
  absl::flat_hash_map<Expr, Expr> memo_;
};

}  // namespace

Expr Pool::Assume(Expr e, Expr condition, bool truth, const Facts& facts) {
  if (!e->has_condition() || e->size() > kMaxAssumedSize) return e;
  std::vector<Expr> known;
  if (truth) {
    known = ConjunctsOf(condition);
  } else if (condition->kind() != Kind::kAnd) {
    known = ConjunctsOf(Not(condition));
  } else {
    known = {Not(condition)};
  }
  return Assumer(*this, std::move(known), facts).Visit(e);
}

}  // namespace kvlift::sym
