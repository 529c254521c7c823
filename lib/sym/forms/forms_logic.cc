// Conditions, selects and constants: how the leaves of elements are combined.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

constexpr int64_t kMaxLeaves = 256;

bool IsSelect(Expr e) { return e->kind() == Kind::kSelect; }

int64_t CountLeaves(Expr e) {
  if (!IsSelect(e)) return 1;
  return std::min(kMaxLeaves + 1, CountLeaves(e->args()[1]) + CountLeaves(e->args()[2]));
}

// Simplifies a and not (a and b) to a and not b.
Expr WithoutRepeats(Pool& pool, Expr conjunction) {
  if (conjunction->kind() != Kind::kAnd) return conjunction;
  const auto conjuncts = conjunction->args();
  Expr result = pool.True();
  for (Expr conjunct : conjuncts) {
    if (conjunct->kind() == Kind::kNot && conjunct->args()[0]->kind() == Kind::kAnd) {
      Expr inner = pool.True();
      for (Expr x : conjunct->args()[0]->args()) {
        const bool repeated = std::find(conjuncts.begin(), conjuncts.end(), x) != conjuncts.end();
        if (!repeated) inner = pool.And(inner, x);
      }
      conjunct = pool.Not(inner);
    }
    result = pool.And(result, conjunct);
  }
  return result;
}

}  // namespace

Expr Engine::AsPredicate(Expr e) {
  if (e->is_predicate()) return e;
  if (e->kind() == Kind::kFloat) return pool_.True();  // NaN and the infinities count as true
  if (IsSelect(e)) {
    return Select(e->args()[0], AsPredicate(e->args()[1]), AsPredicate(e->args()[2]));
  }
  return pool_.Not(pool_.Eq(e, pool_.Integer(0), Facts{}));
}

Expr Engine::And(Expr p, Expr q) {
  constexpr size_t kMaxConjuncts = 12;
  const Expr both = WithoutRepeats(pool_, pool_.And(p, q));
  if (both->kind() != Kind::kAnd || both->args().size() > kMaxConjuncts) return both;
  const std::vector<Expr> conjuncts(both->args().begin(), both->args().end());
  std::vector<bool> implied(conjuncts.size(), false);
  const Facts facts;
  for (size_t i = 0; i < conjuncts.size(); ++i) {
    if (conjuncts[i]->kind() != Kind::kLe) continue;
    const Expr a = conjuncts[i]->args()[0];
    for (size_t j = 0; j < conjuncts.size(); ++j) {
      if (j == i || implied[i] || conjuncts[j]->kind() != Kind::kLe) continue;
      const Expr b = conjuncts[j]->args()[0];
      // The conjuncts a <= 0 and b <= 0 contradict each other if a + b >= 1.
      const Expr sum = pool_.Sub(pool_.Add(a, b), pool_.Integer(1));
      if (i < j && pool_.ProveNonNegative(sum, facts)) return pool_.False();
      implied[j] = implied[j] || pool_.ProveNonNegative(pool_.Sub(a, b), facts);
    }
  }
  Expr result = pool_.True();
  for (size_t i = 0; i < conjuncts.size(); ++i) {
    if (!implied[i]) result = pool_.And(result, conjuncts[i]);
  }
  return result;
}

Expr Engine::Or(Expr p, Expr q) { return pool_.Not(And(pool_.Not(p), pool_.Not(q))); }

// Merges two writes into one tensor with a shared condition a: a and b ? x : (a and c ? y : old) is
// a ? (b ? x : (c ? y : old)) : old. Returns null if they share no condition.
Expr Engine::BehindShared(Expr condition, Expr then, Expr otherwise) {
  const auto q = otherwise->args();
  if (q[2]->kind() != Kind::kLoad) return nullptr;
  const std::vector<Expr> a = ConjunctsOf(condition), b = ConjunctsOf(q[0]);
  Expr shared = pool_.True(), first = pool_.True(), second = pool_.True();
  for (Expr x : a) {
    Expr* side = std::find(b.begin(), b.end(), x) != b.end() ? &shared : &first;
    *side = pool_.And(*side, x);
  }
  for (Expr x : b) {
    if (std::find(a.begin(), a.end(), x) == a.end()) second = pool_.And(second, x);
  }
  if (shared->is_integer(1) || first->is_integer(1)) return nullptr;
  return pool_.Select(shared, Select(first, then, Select(second, q[1], q[2])), q[2]);
}

Expr Engine::Select(Expr condition, Expr then, Expr otherwise) {
  const Expr c = AsPredicate(condition);
  if (c->is_integer(1) || then == otherwise) return then;
  if (c->is_integer(0)) return otherwise;
  const Expr not_c = pool_.Not(c);
  if (then->is_predicate() && otherwise->is_predicate()) {
    if (then->is_integer(1)) return Or(c, otherwise);
    if (otherwise->is_integer(1)) return Or(not_c, then);
    return Or(And(c, then), And(not_c, otherwise));
  }
  if (IsSelect(then)) {
    const auto q = then->args();
    if (q[2] == otherwise) return Select(And(c, q[0]), q[1], otherwise);
    if (q[1] == otherwise) return Select(And(c, pool_.Not(q[0])), q[2], otherwise);
  }
  if (IsSelect(otherwise)) {
    const auto q = otherwise->args();
    if (q[1] == then) return Select(Or(c, q[0]), then, q[2]);
    if (q[2] == then) return Select(And(not_c, q[0]), q[1], then);
    if (const Expr e = BehindShared(c, then, otherwise)) return e;
  }
  return pool_.Select(c, then, otherwise);
}

Expr Engine::Given(Expr e, Expr condition, bool truth) {
  if (!IsSelect(e)) return e;
  const Expr c = e->args()[0], then = Given(e->args()[1], condition, truth),
             otherwise = Given(e->args()[2], condition, truth);
  if (c == condition) return truth ? then : otherwise;
  if (c == pool_.Not(condition)) return truth ? otherwise : then;
  const bool same = then == e->args()[1] && otherwise == e->args()[2];
  return same ? e : pool_.Select(c, then, otherwise);
}

Expr Engine::Lift(std::vector<Expr> xs, const std::function<Expr(absl::Span<const Expr>)>& fn) {
  if (const Expr e = LiftBy(xs, fn, Decided::kSameConditions)) return e;
  const auto selects = std::count_if(xs.begin(), xs.end(), [](Expr x) { return IsSelect(x); });
  return selects < 2 ? nullptr : LiftBy(std::move(xs), fn, Decided::kImpliedConditions);
}

Expr Engine::LiftBy(std::vector<Expr> xs, const std::function<Expr(absl::Span<const Expr>)>& fn,
                    Decided decided) {
  int64_t leaves = 1;
  for (Expr x : xs) leaves = std::min(kMaxLeaves + 1, leaves * CountLeaves(x));
  if (leaves > kMaxLeaves) return nullptr;
  for (size_t k = 0; k < xs.size(); ++k) {
    if (!IsSelect(xs[k])) continue;
    const Expr condition = xs[k]->args()[0];
    const auto branch = [&](bool truth) {
      std::vector<Expr> taken = xs;
      taken[k] = xs[k]->args()[truth ? 1 : 2];
      for (size_t j = k; j < xs.size(); ++j) {
        taken[j] = decided == Decided::kSameConditions
                       ? Given(taken[j], condition, truth)
                       : pool_.Assume(taken[j], condition, truth, Facts{});
      }
      return LiftBy(std::move(taken), fn, decided);
    };
    const Expr a = branch(true);
    const Expr b = a == nullptr ? nullptr : branch(false);
    return b == nullptr ? nullptr : Select(condition, a, b);
  }
  return fn(xs);
}

bool Engine::IsIntegral(Expr e) {
  switch (e->kind()) {
    case Kind::kFloat:
      return false;
    case Kind::kLoad: {
      const int32_t type = TypeOf(e->source());
      return IsIntegerType(type) || type == onnx::TensorProto::BOOL;
    }
    case Kind::kSelect:
      return IsIntegral(e->args()[1]) && IsIntegral(e->args()[2]);
    case Kind::kSum:
      for (const Term& term : e->terms()) {
        for (Expr atom : term.atoms) {
          if (!IsIntegral(atom)) return false;
        }
      }
      return true;
    case Kind::kApply:
      return e->function() == "trunc" || e->function() == "div";
    default:
      return true;
  }
}

Expr Engine::Exact(Expr e, int32_t type, const Facts& facts) {
  if (e == nullptr) return nullptr;
  if (IsSelect(e)) {
    const bool both =
        Exact(e->args()[1], type, facts) != nullptr && Exact(e->args()[2], type, facts) != nullptr;
    return both ? e : nullptr;
  }
  const bool real = e->kind() == Kind::kFloat || e->kind() == Kind::kLoad || !IsIntegral(e) ||
                    (e->kind() == Kind::kInteger && IsFloatType(type));
  if (real || e->is_predicate()) return e;
  return RangeOf(e, facts).Within(ExactIntegersOf(type)) ? e : nullptr;
}

Expr Engine::StridedLength(Expr length, int64_t step) {
  if (step == 1) return length;
  const auto stride = static_cast<double>(step);
  const double high = RangeOf(length, Facts{}).high;
  if (high + stride > ExactIntegersOf(onnx::TensorProto::INT64).high) return nullptr;
  return pool_.FloorDiv(pool_.Add(length, pool_.Integer(step - 1)), pool_.Integer(step), Facts{});
}

bool Engine::DependsOnData(Expr e) {
  const std::vector<ValueId> sources = SourcesOf(e);
  return std::any_of(sources.begin(), sources.end(),
                     [&](ValueId v) { return graph_.constant(v) == nullptr; });
}

bool Engine::IsGivenByHost(Expr e) {
  const auto all = [this](const auto& parts) {
    return std::all_of(parts.begin(), parts.end(), [this](Expr x) { return IsGivenByHost(x); });
  };
  if (!DependsOnData(e)) return true;
  switch (e->kind()) {
    case Kind::kLoad:
      return all(e->args()) && IsGivenByHost(e->source());
    case Kind::kFloorDiv:
      return all(e->args());
    case Kind::kApply:
      return e->function() == "div" && all(e->args());
    case Kind::kSum:
      return std::all_of(e->terms().begin(), e->terms().end(),
                         [&](const Term& term) { return all(term.atoms); });
    case Kind::kSelect:
      return IsBound(e) && all(e->args().subspan(1));
    default:
      return false;
  }
}

bool Engine::IsBound(Expr select) {
  const auto arms = select->args().subspan(1);
  const bool constants = !DependsOnData(arms[0]) && !DependsOnData(arms[1]);
  return !constants && Compares(select->args()[0]);
}

bool Engine::Compares(Expr condition) {
  switch (condition->kind()) {
    case Kind::kLe:
      return IsGivenByHost(condition->args()[0]);
    case Kind::kNot:
    case Kind::kAnd:
      return std::all_of(condition->args().begin(), condition->args().end(),
                         [this](Expr part) { return Compares(part); });
    default:
      return false;
  }
}

bool Engine::IsGivenByHost(ValueId source) {
  const auto [it, fresh] = of_host_.try_emplace(source, graph_.is_graph_input(source));
  if (!fresh || it->second) return it->second;
  const NodeId n = graph_.producer(source);
  if (n == kNoNode) return false;
  if (graph_.Is(n, "Cast")) {  // of a mask of floats: forms look through casts between integers
    const Expr cast = Of(graph_.inputs(n)[0]).form.element;
    const bool mask = cast != nullptr && cast->kind() == Kind::kLoad &&
                      graph_.is_graph_input(cast->source()) && IsCountOrMask(cast->source());
    return of_host_[source] = mask;
  }
  const bool sums = graph_.Is(n, "CumSum") || graph_.Is(n, "ReduceSum");
  if (!sums && !graph_.Is(n, "ReduceMax") && !graph_.Is(n, "ReduceMin")) return false;
  const Form operand = Of(graph_.inputs(n)[0]).form;
  if (!operand.known_rank || !DependsOnData(operand.element)) return false;
  // A sum of conditions counts, such as the tokens that a mask leaves.
  const bool counts = sums && operand.element->is_predicate();
  std::vector<ValueId> read;
  if (counts) read = SourcesOf(operand.element);
  const bool given =
      counts ? std::all_of(read.begin(), read.end(), [this](ValueId v) { return IsGivenByHost(v); })
             : IsGivenByHost(operand.element);
  return of_host_[source] = given;
}

bool Engine::HasDataDependentTableRead(Expr e) {
  if (e->kind() == Kind::kLoad && graph_.constant(e->source()) != nullptr &&
      IsFloatType(TypeOf(e->source()))) {
    for (Expr arg : e->args()) {
      if (DependsOnData(arg)) return true;
    }
  }
  for (Expr arg : e->args()) {
    if (HasDataDependentTableRead(arg)) return true;
  }
  for (const Term& term : e->terms()) {
    for (Expr atom : term.atoms) {
      if (HasDataDependentTableRead(atom)) return true;
    }
  }
  return false;
}

std::optional<double> Number(Expr e) {
  if (e->kind() == Kind::kInteger) return static_cast<double>(e->value());
  if (e->kind() == Kind::kFloat) return e->float_value();
  return std::nullopt;
}

bool NonNegative(Pool& pool, Expr e, const Facts& facts) {
  if (e->kind() == Kind::kInteger) return e->value() >= 0;
  if (e->kind() == Kind::kSelect) {
    return NonNegative(pool, e->args()[1], facts) && NonNegative(pool, e->args()[2], facts);
  }
  return e->is_predicate() || pool.ProveNonNegative(e, facts);
}

std::optional<int> NormalAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) return std::nullopt;
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::optional<std::vector<int>> NormalAxes(absl::Span<const int64_t> axes, int rank) {
  std::vector<int> result;
  for (int64_t axis : axes) {
    const std::optional<int> normal = NormalAxis(axis, rank);
    if (!normal || std::find(result.begin(), result.end(), *normal) != result.end()) {
      return std::nullopt;
    }
    result.push_back(*normal);
  }
  return result;
}

Facts FactsOf(const Shape& shape) { return Facts{shape}; }

std::vector<Expr> AllIndices(Pool& pool, int rank) {
  std::vector<Expr> result;
  for (int k = 0; k < rank; ++k) result.push_back(pool.Index(k));
  return result;
}

Expr Product(Pool& pool, absl::Span<const Expr> factors) {
  Expr result = pool.Integer(1);
  for (Expr factor : factors) result = pool.Mul(result, factor);
  return result;
}

}  // namespace kvlift::sym::internal
