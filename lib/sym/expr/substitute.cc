#include <algorithm>

#include "sym/expr/expr.h"
#include "sym/expr/pool_impl.h"

namespace kvlift::sym {
namespace {

// Rebuilds an expression bottom-up with replaced leaves. One memo table per call keeps shared
// subexpressions shared.
class Substituter {
 public:
  Substituter(Pool& pool, const Pool::Substitution& s, const Facts& facts)
      : pool_(pool), s_(s), facts_(facts) {}

  Expr Visit(Expr e) {
    if (e->kind() == Kind::kInteger || e->kind() == Kind::kFloat) return e;
    if (const auto it = memo_.find(e); it != memo_.end()) return it->second;
    const Expr result = Rebuild(e);
    memo_[e] = result;
    return result;
  }

 private:
  Expr Rebuild(Expr e) {
    if (const auto it = s_.atoms.find(e); it != s_.atoms.end()) return it->second;
    switch (e->kind()) {
      case Kind::kIndex: {
        const auto k = static_cast<size_t>(e->index());
        return k < s_.indices.size() && s_.indices[k] != nullptr ? s_.indices[k] : e;
      }
      case Kind::kDim: {
        const auto it = s_.dims.find(e->dim());
        return it == s_.dims.end() || it->second == nullptr ? e : it->second;
      }
      case Kind::kLoad: {
        const std::vector<Expr> args = Args(e);
        return pool_.Load(e->source(), args);
      }
      case Kind::kApply: {
        if (e->args().empty()) return e;
        return Apply(e->function(), Args(e));
      }
      case Kind::kFloorDiv:
        return pool_.FloorDiv(Visit(e->args()[0]), Visit(e->args()[1]), facts_);
      case Kind::kLe:
        return pool_.Le(Visit(e->args()[0]), pool_.Integer(0), facts_);
      case Kind::kEq:
        return pool_.Eq(Visit(e->args()[0]), pool_.Integer(0), facts_);
      case Kind::kNot:
        return pool_.Not(Visit(e->args()[0]));
      case Kind::kAnd: {
        Expr all = pool_.True();
        for (Expr arg : e->args()) all = pool_.And(all, Visit(arg));
        return all;
      }
      case Kind::kSelect: {
        const Expr c = Visit(e->args()[0]);
        if (c->kind() == Kind::kInteger) return Visit(e->args()[c->value() != 0 ? 1 : 2]);
        return pool_.Select(c, Visit(e->args()[1]), Visit(e->args()[2]));
      }
      case Kind::kSum:
        return Sum(e);
      default:
        return e;
    }
  }

  // A "div" (integer Div, which rounds towards zero) whose operands turn out to be non-negative
  // becomes a floor division.
  Expr Apply(const std::string& function, const std::vector<Expr>& args) {
    const bool floors = function == "div" && args.size() == 2 &&
                        pool_.ProveNonNegative(args[0], facts_) &&
                        pool_.ProveNonNegative(pool_.Sub(args[1], pool_.Integer(1)), facts_);
    return floors ? pool_.FloorDiv(args[0], args[1], facts_) : pool_.Apply(function, args);
  }

  std::vector<Expr> Args(Expr e) {
    std::vector<Expr> args;
    for (Expr arg : e->args()) args.push_back(Visit(arg));
    return args;
  }

  Expr Sum(Expr e) {
    Expr sum = pool_.Integer(0);
    for (const Term& term : e->terms()) {
      Expr product = pool_.Integer(term.coefficient);
      for (Expr a : term.atoms) product = pool_.Mul(product, Visit(a));
      sum = pool_.Add(sum, product);
    }
    return sum;
  }

  Pool& pool_;
  const Pool::Substitution& s_;
  const Facts& facts_;
  absl::flat_hash_map<Expr, Expr> memo_;
};

}  // namespace

Expr Pool::Substitute(Expr e, const Substitution& s, const Facts& facts) {
  return Substituter(*this, s, facts).Visit(e);
}

}  // namespace kvlift::sym
