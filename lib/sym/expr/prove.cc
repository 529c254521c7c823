// Bounds of polynomials, and the proofs, divisions and comparisons that follow from them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "sym/expr/expr.h"
#include "sym/expr/pool_impl.h"

namespace kvlift::sym {
namespace {

constexpr int kMaxDepth = 24;
constexpr int kProved = kMaxDepth + 1;
constexpr int kMaxDivisionSteps = 64;
constexpr int kMaxProofSteps = 4000;  // the cases of several selects multiply

Expr ExtentOf(const Facts& facts, Expr index) {
  const auto k = static_cast<size_t>(index->index());
  return k < facts.extents.size() ? facts.extents[k] : nullptr;
}

// Proves polynomials >= 0 by replacing one atom after the other by the bound that makes the
// polynomial smallest. No step makes the polynomial larger, so success is a proof.
class Prover {
 public:
  Prover(Pool& pool, const Facts& facts, const absl::flat_hash_map<DimSymbol, int64_t>& minima,
         const absl::flat_hash_map<DimSymbol, Expr>& maxima)
      : pool_(pool), facts_(facts), minima_(minima), maxima_(maxima) {}

  bool NonNegative(Expr e, int depth) {
    if (e->kind() == Kind::kInteger) return e->value() >= 0;
    if (e->kind() == Kind::kFloat) return e->float_value() >= 0;
    if (depth > kMaxDepth || e->size() > 2000 || ++steps_ > kMaxProofSteps || pool_.exhausted())
      return false;
    if (ObviouslyNonNegative(e)) return true;
    // Divisions lead to the same question in many ways, also cyclically.
    const auto [it, fresh] = seen_.try_emplace(e, depth);
    if (!fresh && it->second == kProved) return true;
    if (!fresh && it->second <= depth) return false;
    it->second = depth;
    const bool found = ByCases(e, depth);
    if (found) seen_[e] = kProved;
    return found;
  }

 private:
  bool ByCases(Expr e, int depth) {
    const std::vector<Expr> atoms = AtomsOf(e);
    // A division is eliminated before the indices in it, whose bounds would lose their relation to
    // it.
    for (Expr atom : atoms) {
      if (atom->kind() == Kind::kFloorDiv && Eliminate(e, atom, depth) == 1) return true;
    }
    for (Expr atom : atoms) {
      if (atom->kind() == Kind::kFloorDiv) continue;
      const int tried = Eliminate(e, atom, depth);
      if (tried >= 0) return tried == 1;
    }
    return RaiseDims(e, depth) || LowerDims(e, depth);
  }

  static std::vector<Expr> AtomsOf(Expr e) {
    std::vector<Expr> atoms;
    for (const Term& term : TermsOf(e))
      atoms.insert(atoms.end(), term.atoms.begin(), term.atoms.end());
    std::sort(atoms.begin(), atoms.end(), [](Expr a, Expr b) { return a->id() < b->id(); });
    atoms.erase(std::unique(atoms.begin(), atoms.end()), atoms.end());
    return atoms;
  }

  // Returns true if an atom is >= 0 on its own.
  bool AtomNonNegative(Expr a) {
    switch (a->kind()) {
      case Kind::kIndex:
      case Kind::kDim:
        return true;
      case Kind::kFloorDiv:
        return NonNegative(a->args()[0], kMaxDepth / 2) && NonNegative(a->args()[1], kMaxDepth / 2);
      case Kind::kSelect:
        return NonNegative(a->args()[1], kMaxDepth / 2) && NonNegative(a->args()[2], kMaxDepth / 2);
      default:
        return a->is_predicate();
    }
  }

  bool ObviouslyNonNegative(Expr e) {
    for (const Term& term : TermsOf(e)) {
      if (term.coefficient < 0) return false;
      for (Expr a : term.atoms) {
        if (!AtomNonNegative(a)) return false;
      }
    }
    return true;
  }

  // Replaces an atom by its bounds. Returns 1 if e >= 0 is proved, 0 if this way fails, -1 if the
  // atom has no usable bound.
  int Eliminate(Expr e, Expr atom, int depth) {
    if (atom->kind() == Kind::kDim || atom->kind() == Kind::kLoad || atom->kind() == Kind::kApply) {
      return -1;
    }
    Expr c = nullptr, rest = nullptr;
    if (!CollectLinear(pool_, e, atom, &c, &rest)) return -1;
    if (atom->kind() == Kind::kSelect) {
      return NonNegative(pool_.Add(rest, pool_.Mul(c, atom->args()[1])), depth + 1) &&
             NonNegative(pool_.Add(rest, pool_.Mul(c, atom->args()[2])), depth + 1);
    }
    if (atom->is_predicate()) {
      return NonNegative(rest, depth + 1) && NonNegative(pool_.Add(rest, c), depth + 1);
    }
    if (atom->kind() == Kind::kFloorDiv) return EliminateDivision(c, rest, atom, depth);
    if (atom->kind() != Kind::kIndex) return -1;
    if (NonNegative(c, depth + 1)) return NonNegative(rest, depth + 1);
    const Expr extent = ExtentOf(facts_, atom);
    if (extent == nullptr || !NonNegative(pool_.Neg(c), depth + 1)) return -1;
    const Expr last = pool_.Sub(extent, pool_.Integer(1));
    return NonNegative(pool_.Add(rest, pool_.Mul(c, last)), depth + 1);
  }

  // Replaces q = n div d by the bounds n - d + 1 <= d*q <= n, for d > 0.
  int EliminateDivision(Expr c, Expr rest, Expr atom, int depth) {
    const Expr n = atom->args()[0], d = atom->args()[1];
    if (!NonNegative(pool_.Sub(d, pool_.Integer(1)), depth + 1)) return -1;
    // An integer e is >= 0 if d*e > -d.
    const Expr slack =
        IsInteger(c) && IsInteger(rest) ? pool_.Sub(d, pool_.Integer(1)) : pool_.Integer(0);
    const Expr scaled = pool_.Add(pool_.Mul(d, rest), slack);
    if (NonNegative(pool_.Neg(c), depth + 1)) {
      return NonNegative(pool_.Add(scaled, pool_.Mul(c, n)), depth + 1) ? 1 : -1;
    }
    if (!NonNegative(c, depth + 1)) return -1;
    if (NonNegative(n, depth + 1) && NonNegative(rest, depth + 1)) return 1;
    const Expr low = pool_.Add(pool_.Sub(n, d), pool_.Integer(1));
    return NonNegative(pool_.Add(scaled, pool_.Mul(c, low)), depth + 1) ? 1 : -1;
  }

  // Returns true if e is known to be an integer; the element of a tensor need not be one.
  static bool IsInteger(Expr e) {
    if (e->kind() == Kind::kFloat) return false;
    const std::vector<Expr> atoms = AtomsOf(e);
    return std::all_of(atoms.begin(), atoms.end(), [](Expr atom) {
      return atom->kind() == Kind::kIndex || atom->kind() == Kind::kDim;
    });
  }

  // Replaces one symbol that only makes e smaller by its upper bound.
  bool RaiseDims(Expr e, int depth) {
    if (maxima_.empty()) return false;
    for (const DimSymbol& dim : DimsOf(e)) {
      const auto it = maxima_.find(dim);
      if (it == maxima_.end()) continue;
      Expr c = nullptr, rest = nullptr;
      if (!CollectLinear(pool_, e, pool_.Dim(dim), &c, &rest) || c->is_integer(0)) continue;
      if (!NonNegative(pool_.Neg(c), depth + 1)) continue;
      if (NonNegative(pool_.Add(rest, pool_.Mul(c, it->second)), depth + 1)) return true;
    }
    return false;
  }

  // Replaces each symbol by its minimum plus a new symbol >= 0, and looks at the signs. An extent
  // of an index is at least 1 wherever there is an element. Symbols inside other atoms stay.
  bool LowerDims(Expr e, int depth) {
    if (depth >= kMaxDepth) return false;
    Expr shifted = pool_.Integer(0);
    bool any = false;
    for (const Term& term : TermsOf(e)) {
      Expr product = pool_.Integer(term.coefficient);
      for (Expr atom : term.atoms) {
        const int64_t minimum = atom->kind() == Kind::kDim ? MinimumOf(atom->dim()) : 0;
        any = any || minimum > 0;
        const Expr above = minimum > 0 ? Above(atom->dim()) : atom;
        product = pool_.Mul(product, pool_.Add(above, pool_.Integer(minimum)));
      }
      shifted = pool_.Add(shifted, product);
    }
    return any && ObviouslyNonNegative(shifted);
  }

  // Returns the symbol minus its minimum, as an internal symbol.
  Expr Above(const DimSymbol& dim) {
    return pool_.Internal((dim.is_internal() ? "internal " : "declared ") + dim.name() +
                          " - minimum");
  }

  int64_t MinimumOf(const DimSymbol& dim) const {
    const auto it = minima_.find(dim);
    const int64_t minimum = it == minima_.end() ? 0 : it->second;
    return minimum == 0 && RunsBelow(dim) ? 1 : minimum;
  }

  bool RunsBelow(const DimSymbol& dim) const {
    return std::any_of(facts_.extents.begin(), facts_.extents.end(), [&](Expr extent) {
      return extent != nullptr && extent->kind() == Kind::kDim && extent->dim() == dim;
    });
  }

  Pool& pool_;
  const Facts& facts_;
  const absl::flat_hash_map<DimSymbol, int64_t>& minima_;
  const absl::flat_hash_map<DimSymbol, Expr>& maxima_;
  absl::flat_hash_map<Expr, int> seen_;  // kProved, or the depth at which it was tried
  int steps_ = 0;
};

// Removes `lead` (a multiset) from `atoms`. Returns false if it is not contained.
bool DivideMonomial(const Monomial& atoms, const Monomial& lead, Monomial* quotient) {
  *quotient = atoms;
  for (Expr a : lead) {
    const auto it = std::find(quotient->begin(), quotient->end(), a);
    if (it == quotient->end()) return false;
    quotient->erase(it);
  }
  return true;
}

Term LeadOf(Expr e) {
  const std::vector<Term> terms = TermsOf(e);
  return *std::max_element(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
    if (a.atoms.size() != b.atoms.size()) return a.atoms.size() < b.atoms.size();
    return std::lexicographical_compare(a.atoms.begin(), a.atoms.end(), b.atoms.begin(),
                                        b.atoms.end(),
                                        [](Expr x, Expr y) { return x->id() < y->id(); });
  });
}

}  // namespace

bool Pool::ProveNonNegative(Expr e, const Facts& facts) {
  if (e->kind() == Kind::kInteger) return e->value() >= 0;
  const auto key = std::pair(e, facts.extents);
  if (const auto it = impl_->non_negative.find(key); it != impl_->non_negative.end()) {
    return it->second;
  }
  const bool proved =
      Prover(*this, facts, impl_->dim_minimum, impl_->dim_maximum).NonNegative(e, 0);
  // An exhausted pool proves nothing, which says nothing about the expression.
  if (!exhausted()) impl_->non_negative[key] = proved;
  return proved;
}

Truth Pool::Prove(Expr p, const Facts& facts) {
  switch (p->kind()) {
    case Kind::kInteger:
      return p->value() != 0 ? Truth::kYes : Truth::kNo;
    case Kind::kLe: {
      const Expr e = p->args()[0];
      if (ProveNonNegative(Neg(e), facts)) return Truth::kYes;
      if (ProveNonNegative(Sub(e, Integer(1)), facts)) return Truth::kNo;
      return Truth::kUnknown;
    }
    case Kind::kEq: {
      const Expr e = p->args()[0];
      const bool low = ProveNonNegative(e, facts), high = ProveNonNegative(Neg(e), facts);
      if (low && high) return Truth::kYes;
      if (ProveNonNegative(Sub(e, Integer(1)), facts)) return Truth::kNo;
      if (ProveNonNegative(Sub(Neg(e), Integer(1)), facts)) return Truth::kNo;
      return Truth::kUnknown;
    }
    case Kind::kNot: {
      const Truth t = Prove(p->args()[0], facts);
      return t == Truth::kUnknown ? t : t == Truth::kYes ? Truth::kNo : Truth::kYes;
    }
    case Kind::kAnd: {
      Truth all = Truth::kYes;
      for (Expr arg : p->args()) {
        const Truth t = Prove(arg, facts);
        if (t == Truth::kNo) return t;
        if (t == Truth::kUnknown) all = t;
      }
      return all;
    }
    case Kind::kSelect: {
      const Truth c = Prove(p->args()[0], facts);
      if (c == Truth::kYes) return Prove(p->args()[1], facts);
      if (c == Truth::kNo) return Prove(p->args()[2], facts);
      const Truth a = Prove(p->args()[1], facts), b = Prove(p->args()[2], facts);
      return a == b ? a : Truth::kUnknown;
    }
    default:
      return Truth::kUnknown;
  }
}

namespace {

// Returns x and d / g for which floor(sum / d) is floor(x / (d / g)): the rest of the sum without
// multiples of g lies in [0, g), as 3 in (8 * i + 3) div 16. Returns nullopt if there is no such g.
std::optional<std::pair<Expr, int64_t>> WithoutRemainder(Pool& pool, Expr sum, int64_t d,
                                                         const Facts& facts) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 4;
  if (sum->kind() != Kind::kSum || d <= 1 || d > kMost) return std::nullopt;
  const auto is_small = [](const Term& term) { return std::abs(term.coefficient) <= kMost; };
  if (!std::all_of(sum->terms().begin(), sum->terms().end(), is_small)) return std::nullopt;
  for (const Term& candidate : sum->terms()) {
    const int64_t g = std::gcd(candidate.coefficient, d);
    if (candidate.atoms.empty() || g <= 1) continue;
    Expr multiple = pool.Integer(0), rest = pool.Integer(0);
    for (const Term& term : sum->terms()) {
      Expr product = pool.Integer(1);
      for (Expr atom : term.atoms) product = pool.Mul(product, atom);
      int64_t left = term.coefficient % g;
      if (left < 0) left += g;
      if (!term.atoms.empty() && left != 0) left = term.coefficient;
      multiple = pool.Add(multiple, pool.Mul(pool.Integer((term.coefficient - left) / g), product));
      rest = pool.Add(rest, pool.Mul(pool.Integer(left), product));
    }
    const bool fits = pool.ProveNonNegative(rest, facts) &&
                      pool.ProveNonNegative(pool.Sub(pool.Integer(g - 1), rest), facts);
    if (fits) return std::pair(multiple, d / g);
  }
  return std::nullopt;
}

}  // namespace

Expr Pool::FloorDiv(Expr a, Expr b, const Facts& facts) {
  if (b->is_integer(0) || a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) {
    return Apply("div", {a, b});
  }
  if (b->is_integer(1)) return a;
  if (a->is_integer(0) || a == b) return Integer(a->is_integer(0) ? 0 : 1);
  const Term lead = LeadOf(b);
  Expr quotient = Integer(0), rest = a;
  for (int step = 0; step < kMaxDivisionSteps; ++step) {
    bool progress = false;
    for (const Term& term : TermsOf(rest)) {
      Monomial left;
      if (term.coefficient == INT64_MIN) continue;  // its quotient by -1 does not fit
      const int64_t c = term.coefficient / lead.coefficient;
      if (c == 0 || !DivideMonomial(term.atoms, lead.atoms, &left)) continue;
      if (!lead.atoms.empty() && term.coefficient % lead.coefficient != 0) continue;
      Expr part = Integer(c);
      for (Expr atom : left) part = Mul(part, atom);
      quotient = Add(quotient, part);
      rest = Sub(rest, Mul(part, b));
      progress = true;
      break;
    }
    if (!progress || rest->kind() == Kind::kInteger) break;
  }
  if (rest->is_integer(0)) return quotient;
  if (rest->kind() == Kind::kInteger && b->kind() == Kind::kInteger && rest->value() != INT64_MIN) {
    const int64_t q = rest->value() / b->value(), r = rest->value() % b->value();
    const int64_t floor = q - (r != 0 && (r < 0) != (b->value() < 0) ? 1 : 0);
    return Add(quotient, Integer(floor));
  }
  if (ProveNonNegative(rest, facts) && ProveNonNegative(Sub(Sub(b, rest), Integer(1)), facts)) {
    return quotient;
  }
  // This handles -b <= rest < 0.
  if (ProveNonNegative(Sub(Neg(rest), Integer(1)), facts) &&
      ProveNonNegative(Add(rest, b), facts)) {
    return Sub(quotient, Integer(1));
  }
  if (rest->kind() == Kind::kSelect) {
    return Add(quotient, Select(rest->args()[0], FloorDiv(rest->args()[1], b, facts),
                                FloorDiv(rest->args()[2], b, facts)));
  }
  if (b->kind() == Kind::kInteger) {
    if (const auto part = WithoutRemainder(*this, rest, b->value(), facts)) {
      return Add(quotient, FloorDiv(part->first, Integer(part->second), facts));
    }
  }
  // (n div a) div b is n div (a*b) for b > 0; a division by 0 is undefined in both forms.
  if (rest->kind() == Kind::kFloorDiv && ProveNonNegative(b, facts) &&
      ProveNonNegative(rest->args()[1], facts)) {
    return Add(quotient, FloorDiv(rest->args()[0], Mul(rest->args()[1], b), facts));
  }
  Node node;
  node.kind_ = Kind::kFloorDiv;
  node.args_ = {rest, b};
  return Add(quotient, impl_->Intern(std::move(node)));
}

Expr Pool::Mod(Expr a, Expr b, const Facts& facts) {
  if (b->is_integer(0) || a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) {
    return Apply("mod", {a, b});
  }
  return Sub(a, Mul(b, FloorDiv(a, b, facts)));
}

Expr Pool::Min(Expr a, Expr b, const Facts& facts) { return Select(Le(a, b, facts), a, b); }
Expr Pool::Max(Expr a, Expr b, const Facts& facts) { return Select(Le(a, b, facts), b, a); }

}  // namespace kvlift::sym
