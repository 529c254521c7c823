#include "sym/expr/expr.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/hash/hash.h"
#include "sym/expr/pool_impl.h"

namespace kvlift::sym {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 40;
constexpr size_t kMaxTerms = 4096;
int64_t max_steps = 5'000'000;  // NOLINT: set before graphs are read

bool ById(Expr a, Expr b) { return a->id() < b->id(); }

bool SameTerms(absl::Span<const Term> a, absl::Span<const Term> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Term& x, const Term& y) {
    return x.coefficient == y.coefficient && x.atoms == y.atoms;
  });
}

bool SameBits(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

bool Node::is_predicate() const {
  switch (kind_) {
    case Kind::kLe:
    case Kind::kEq:
    case Kind::kNot:
    case Kind::kAnd:
      return true;
    case Kind::kInteger:
      return value_ == 0 || value_ == 1;
    case Kind::kApply:
      return text_ == "isnan" || text_ == "isinf" || text_ == "less" || text_ == "finite";
    default:
      return false;
  }
}

Pool::Pool() : impl_(std::make_unique<Impl>()) {}
Pool::~Pool() = default;

int64_t Pool::num_nodes() const { return static_cast<int64_t>(impl_->nodes.size()); }

int64_t Pool::num_steps() const { return impl_->steps; }

bool Pool::exhausted() const { return impl_->steps > max_steps; }

void SetMaxSteps(int64_t steps) { max_steps = steps; }
int64_t MaxSteps() { return max_steps; }

Expr Pool::Impl::Intern(Node node) {
  ++steps;
  size_t hash = absl::HashOf(static_cast<int>(node.kind_), node.value_, node.text_, node.dim_);
  if (!std::isnan(node.float_)) hash = absl::HashOf(hash, node.float_);
  for (Expr arg : node.args_) hash = absl::HashOf(hash, arg->id());
  for (const Term& term : node.terms_) {
    hash = absl::HashOf(hash, term.coefficient);
    for (Expr atom : term.atoms) hash = absl::HashOf(hash, atom->id());
  }
  auto& bucket = by_hash[hash];
  for (Expr e : bucket) {
    if (e->kind_ == node.kind_ && e->value_ == node.value_ && SameBits(e->float_, node.float_) &&
        e->text_ == node.text_ && e->dim_ == node.dim_ && e->args_ == node.args_ &&
        SameTerms(e->terms_, node.terms_)) {
      return e;
    }
  }
  node.id_ = nodes.size();
  const auto absorb = [&node](Expr part) {
    node.size_ = std::min(kMaxSize, node.size_ + part->size_);
    node.index_mask_ |= part->index_mask_;
    node.has_condition_ |= part->has_condition_;
  };
  for (Expr arg : node.args_) absorb(arg);
  for (const Term& term : node.terms_) {
    for (Expr atom : term.atoms) absorb(atom);
  }
  node.has_condition_ |=
      node.kind_ == Kind::kLe || node.kind_ == Kind::kEq || node.kind_ == Kind::kSelect;
  if (node.kind_ == Kind::kIndex) node.index_mask_ = 1u << std::min<int64_t>(node.value_, 31);
  nodes.push_back(std::move(node));
  bucket.push_back(&nodes.back());
  return bucket.back();
}

Expr Pool::Impl::Overflow() {
  Node node;
  node.kind_ = Kind::kApply;
  node.text_ = "overflow";
  node.value_ = ++overflows;  // distinct, so that it equals no other
  return Intern(std::move(node));
}

Expr Pool::Integer(int64_t v) {
  constexpr int64_t kFew = std::tuple_size_v<decltype(impl_->few_integers)>;
  Expr* const known = v >= 0 && v < kFew ? &impl_->few_integers[static_cast<size_t>(v)] : nullptr;
  if (known != nullptr && *known != nullptr) return *known;
  Node node;
  node.kind_ = Kind::kInteger;
  node.value_ = v;
  const Expr e = impl_->Intern(std::move(node));
  if (known != nullptr) *known = e;
  return e;
}

Expr Pool::Float(double v) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (std::isfinite(v) && std::trunc(v) == v && std::fabs(v) <= kExact) {
    return Integer(static_cast<int64_t>(v));
  }
  Node node;
  node.kind_ = Kind::kFloat;
  node.float_ = v;
  return impl_->Intern(std::move(node));
}

Expr Pool::Index(int k) {
  Node node;
  node.kind_ = Kind::kIndex;
  node.value_ = k;
  return impl_->Intern(std::move(node));
}

Expr Pool::Dim(const DimSymbol& symbol, int64_t min) {
  int64_t& known = impl_->dim_minimum[symbol];
  if (min > known) {
    known = min;
    impl_->non_negative.clear();
    impl_->at_most_zero.clear();
  }
  Node node;
  node.kind_ = Kind::kDim;
  node.dim_ = symbol;
  return impl_->Intern(std::move(node));
}

Expr Pool::Dim(std::string_view declared, int64_t min) {
  return Dim(DimSymbol::Declared(declared), min);
}

Expr Pool::Internal(std::string_view name, int64_t min) {
  return Dim(DimSymbol::Internal(name), min);
}

void Pool::Bound(const DimSymbol& symbol, Expr most) {
  impl_->dim_maximum[symbol] = most;
  impl_->non_negative.clear();
  impl_->at_most_zero.clear();
}

Expr Pool::Load(ValueId source, absl::Span<const Expr> args) {
  Node node;
  node.kind_ = Kind::kLoad;
  node.value_ = source;
  node.args_.assign(args.begin(), args.end());
  return impl_->Intern(std::move(node));
}

Expr Pool::Apply(std::string_view function, absl::Span<const Expr> args) {
  Node node;
  node.kind_ = Kind::kApply;
  node.text_ = std::string(function);
  node.args_.assign(args.begin(), args.end());
  return impl_->Intern(std::move(node));
}

std::vector<Term> TermsOf(Expr e) {
  if (e->kind() == Kind::kSum) return {e->terms().begin(), e->terms().end()};
  if (e->kind() == Kind::kInteger) {
    return e->value() == 0 ? std::vector<Term>() : std::vector<Term>{{e->value(), {}}};
  }
  return {{1, {e}}};
}

bool AddTerm(Polynomial* p, Monomial atoms, int64_t coefficient) {
  int64_t& known = (*p)[std::move(atoms)];
  return !__builtin_add_overflow(known, coefficient, &known);
}

namespace {

bool InOrder(const Term& a, const Term& b) {
  return std::lexicographical_compare(a.atoms.begin(), a.atoms.end(), b.atoms.begin(),
                                      b.atoms.end(), ById);
}

// The terms of an expression, as TermsOf, but without copying those of a sum.
class Terms {
 public:
  explicit Terms(Expr e) {
    if (e->kind() == Kind::kSum) {
      all_ = e->terms();
    } else if (!e->is_integer(0)) {
      own_ = e->kind() == Kind::kInteger ? Term{e->value(), {}} : Term{1, {e}};
      all_ = absl::MakeConstSpan(&own_, 1);
    }
  }
  Terms(const Terms&) = delete;
  Terms& operator=(const Terms&) = delete;

  absl::Span<const Term> all() const { return all_; }

 private:
  Term own_;
  absl::Span<const Term> all_;
};

}  // namespace

Expr Pool::Impl::FromPolynomial(const Polynomial& p) {
  std::vector<Term> terms;
  for (const auto& [atoms, coefficient] : p) {
    if (coefficient != 0) terms.push_back({coefficient, atoms});
  }
  std::sort(terms.begin(), terms.end(), InOrder);
  return FromTerms(std::move(terms));
}

Expr Pool::Impl::FromTerms(std::vector<Term> terms) {
  if (terms.size() > kMaxTerms) return Overflow();
  Node node;
  if (terms.empty() || (terms.size() == 1 && terms[0].atoms.empty())) {
    node.kind_ = Kind::kInteger;
    node.value_ = terms.empty() ? 0 : terms[0].coefficient;
    return Intern(std::move(node));
  }
  if (terms.size() == 1 && terms[0].coefficient == 1 && terms[0].atoms.size() == 1) {
    return terms[0].atoms[0];
  }
  node.kind_ = Kind::kSum;
  node.terms_ = std::move(terms);
  return Intern(std::move(node));
}

Expr Pool::Impl::Combine(Expr a, Expr b, int64_t factor) {
  const Terms left(a), right(b);
  const auto xs = left.all(), ys = right.all();
  std::vector<Term> terms;
  terms.reserve(xs.size() + ys.size());
  size_t i = 0, j = 0;
  while (i < xs.size() || j < ys.size()) {
    if (j == ys.size() || (i < xs.size() && InOrder(xs[i], ys[j]))) {
      terms.push_back(xs[i++]);
      continue;
    }
    int64_t c = 0;
    if (__builtin_mul_overflow(ys[j].coefficient, factor, &c)) return Overflow();
    const bool both = i < xs.size() && !InOrder(ys[j], xs[i]);
    if (both && __builtin_add_overflow(c, xs[i].coefficient, &c)) return Overflow();
    if (c != 0) terms.push_back({c, ys[j].atoms});
    ++j;
    if (both) ++i;
  }
  return FromTerms(std::move(terms));
}

Expr Pool::Add(Expr a, Expr b) {
  if (a->is_integer(0)) return b;
  if (b->is_integer(0)) return a;
  if (a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) {
    const auto number = [](Expr e, double* v) {
      if (e->kind() == Kind::kFloat) *v = e->float_value();
      if (e->kind() == Kind::kInteger) *v = static_cast<double>(e->value());
      return e->kind() == Kind::kFloat || e->kind() == Kind::kInteger;
    };
    double x = 0, y = 0;
    if (number(a, &x) && number(b, &y)) return Float(x + y);
    return Apply("add", {a, b});
  }
  return WithoutSelectsThatCancel(impl_->Combine(a, b, 1));
}

Expr Pool::Sub(Expr a, Expr b) {
  if (a == b && a->kind() != Kind::kFloat) return Integer(0);
  if (a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) return Add(a, Neg(b));
  return WithoutSelectsThatCancel(impl_->Combine(a, b, -1));
}

Expr Pool::Neg(Expr a) {
  if (a->kind() == Kind::kFloat) return Float(-a->float_value());
  return impl_->Combine(Integer(0), a, -1);
}

Expr Pool::Mul(Expr a, Expr b) {
  if (a->is_integer(1)) return b;
  if (b->is_integer(1)) return a;
  if (a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) {
    if (a->kind() == Kind::kFloat && b->kind() == Kind::kFloat) {
      return Float(a->float_value() * b->float_value());
    }
    const Expr real = a->kind() == Kind::kFloat ? a : b, other = real == a ? b : a;
    if (other->kind() == Kind::kInteger) {
      return Float(real->float_value() * static_cast<double>(other->value()));
    }
    return Apply("mul", {a, b});
  }
  if (a->is_integer(0) || b->is_integer(0)) return Integer(0);
  if (a->kind() == Kind::kInteger) return impl_->Combine(Integer(0), b, a->value());
  if (b->kind() == Kind::kInteger) return impl_->Combine(Integer(0), a, b->value());
  Polynomial p;
  for (const Term& x : TermsOf(a)) {
    for (const Term& y : TermsOf(b)) {
      Monomial atoms = x.atoms;
      atoms.insert(atoms.end(), y.atoms.begin(), y.atoms.end());
      std::sort(atoms.begin(), atoms.end(), ById);
      // A predicate is 0 or 1, so its square is itself.
      atoms.erase(std::unique(atoms.begin(), atoms.end(),
                              [](Expr m, Expr n) { return m == n && m->is_predicate(); }),
                  atoms.end());
      int64_t c = 0;
      if (__builtin_mul_overflow(x.coefficient, y.coefficient, &c) ||
          !AddTerm(&p, std::move(atoms), c)) {
        return impl_->Overflow();
      }
    }
  }
  return impl_->FromPolynomial(p);
}

namespace {

template <typename Visit>
bool AnyNode(Expr e, absl::flat_hash_map<Expr, bool>* seen, const Visit& visit) {
  if (visit(e)) return true;
  if (e->args().empty() && e->terms().empty()) return false;
  if (!seen->try_emplace(e, true).second) return false;
  for (Expr arg : e->args()) {
    if (AnyNode(arg, seen, visit)) return true;
  }
  for (const Term& term : e->terms()) {
    for (Expr atom : term.atoms) {
      if (AnyNode(atom, seen, visit)) return true;
    }
  }
  return false;
}

template <typename Visit>
bool AnyNode(Expr e, const Visit& visit) {
  absl::flat_hash_map<Expr, bool> seen;
  return AnyNode(e, &seen, visit);
}

void CollectOuterLoads(Expr e, std::vector<Expr>* loads) {
  if (e->kind() == Kind::kLoad) {
    loads->push_back(e);
    return;
  }
  for (Expr arg : e->args()) CollectOuterLoads(arg, loads);
  for (const Term& term : e->terms()) {
    for (Expr atom : term.atoms) CollectOuterLoads(atom, loads);
  }
}

// Returns each expression once, in the order of first occurrence.
std::vector<Expr> Distinct(std::vector<Expr> all) {
  std::vector<Expr> kept;
  for (Expr e : all) {
    if (std::find(kept.begin(), kept.end(), e) == kept.end()) kept.push_back(e);
  }
  return kept;
}

}  // namespace

bool ContainsNode(Expr e, Expr part) {
  return AnyNode(e, [part](Expr x) { return x == part; });
}

bool ContainsIndex(Expr e, int k) {
  constexpr int kLastBit = 31;
  if ((e->index_mask() >> std::min(k, kLastBit) & 1U) == 0) return false;
  if (k < kLastBit) return true;
  return AnyNode(e, [k](Expr x) { return x->kind() == Kind::kIndex && x->index() == k; });
}

bool ContainsDim(Expr e, const DimSymbol& symbol) {
  return AnyNode(e, [&](Expr x) { return x->kind() == Kind::kDim && x->dim() == symbol; });
}

std::vector<DimSymbol> DimsOf(Expr e) {
  std::vector<DimSymbol> dims;
  AnyNode(e, [&dims](Expr x) {
    if (x->kind() == Kind::kDim) dims.push_back(x->dim());
    return false;
  });
  std::sort(dims.begin(), dims.end());
  dims.erase(std::unique(dims.begin(), dims.end()), dims.end());
  return dims;
}

std::vector<ValueId> SourcesOf(Expr e) {
  std::vector<ValueId> sources;
  AnyNode(e, [&sources](Expr x) {
    if (x->kind() == Kind::kLoad) sources.push_back(x->source());
    return false;
  });
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  return sources;
}

std::vector<Expr> LoadsOf(Expr e) {
  std::vector<Expr> loads;
  AnyNode(e, [&loads](Expr x) {
    if (x->kind() == Kind::kLoad) loads.push_back(x);
    return false;
  });
  return Distinct(std::move(loads));
}

std::vector<Expr> DivisionsOf(Expr e) {
  std::vector<Expr> divisions;
  AnyNode(e, [&divisions](Expr x) {
    if (x->kind() == Kind::kFloorDiv) divisions.push_back(x);
    return false;
  });
  return Distinct(std::move(divisions));
}

std::vector<Expr> OuterLoadsOf(Expr e) {
  std::vector<Expr> loads;
  CollectOuterLoads(e, &loads);
  return Distinct(std::move(loads));
}

std::vector<Expr> ConjunctsOf(Expr predicate) {
  if (predicate->is_integer(1)) return {};
  if (predicate->kind() != Kind::kAnd) return {predicate};
  return {predicate->args().begin(), predicate->args().end()};
}

std::pair<Expr, int64_t> SplitConstant(Pool& pool, Expr e) {
  if (e->kind() == Kind::kInteger) return {pool.Integer(0), e->value()};
  if (e->kind() != Kind::kSum) return {e, 0};
  for (const Term& term : e->terms()) {
    if (term.atoms.empty()) return {pool.Sub(e, pool.Integer(term.coefficient)), term.coefficient};
  }
  return {e, 0};
}

bool CollectLinear(Pool& pool, Expr e, Expr atom, Expr* coefficient, Expr* rest) {
  *coefficient = pool.Integer(0);
  *rest = pool.Integer(0);
  for (const Term& term : TermsOf(e)) {
    const auto count = std::count(term.atoms.begin(), term.atoms.end(), atom);
    if (count > 1) return false;
    Expr product = pool.Integer(term.coefficient);
    for (Expr a : term.atoms) {
      if (a != atom) product = pool.Mul(product, a);
    }
    Expr* side = count == 1 ? coefficient : rest;
    *side = pool.Add(*side, product);
  }
  return true;
}

std::optional<Linear> LinearIn(Pool& pool, Expr e, Expr atom) {
  Expr coefficient = nullptr, rest = nullptr;
  if (!CollectLinear(pool, e, atom, &coefficient, &rest)) return std::nullopt;
  if (coefficient->kind() != Kind::kInteger || ContainsNode(rest, atom)) return std::nullopt;
  return Linear{coefficient->value(), rest};
}

}  // namespace kvlift::sym
