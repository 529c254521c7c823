// Decides which extents of operands that broadcast may be treated as equal.
#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "ir/operators/operator_traits.h"
#include "ir/types.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// Returns true for a sum with a negative term, such as T - P.
bool Subtracts(Expr e) {
  return e->kind() == Kind::kSum &&
         std::any_of(e->terms().begin(), e->terms().end(),
                     [](const Term& term) { return term.coefficient < 0 && !term.atoms.empty(); });
}

// Ranks forms of a dimension: constants first, then sums of declared symbols, symbols, differences
// of them, and internal symbols and data last.
int Preference(const Pool&, Expr e) {
  if (e->kind() == Kind::kInteger) return 100;
  if (!SourcesOf(e).empty()) return 0;
  int score = Subtracts(e) ? 15 : e->kind() == Kind::kSum ? 30 : e->kind() == Kind::kDim ? 20 : 10;
  for (const DimSymbol& dim : DimsOf(e)) {
    if (dim.is_internal()) score -= 12;
  }
  return score;
}

// Returns true if e may be 1 in one step and larger in another for other reasons than the sizes of
// inputs: a quotient or a minimum, such as the columns of a mask from a Range whose step exceeds
// its limit.
bool Branches(Expr e) {
  const auto branches = [](Expr x) { return Branches(x); };
  switch (e->kind()) {
    case Kind::kFloorDiv:
    case Kind::kSelect:
    case Kind::kApply:
    case Kind::kLe:  // predicates are 0 or 1
    case Kind::kEq:
    case Kind::kNot:
    case Kind::kAnd:
      return true;
    case Kind::kSum:
      return std::any_of(e->terms().begin(), e->terms().end(), [&](const Term& term) {
        return std::any_of(term.atoms.begin(), term.atoms.end(), branches);
      });
    default:
      return false;
  }
}

// Returns a condition or predicate at the top of e; null if there is none.
Expr AskedBy(Expr e) {
  if (e->kind() == Kind::kSelect) return e->args()[0];
  for (const Term& term : e->terms()) {
    for (Expr atom : term.atoms) {
      if (atom->kind() == Kind::kSelect) return atom->args()[0];
      if (atom->is_predicate()) return atom;
    }
  }
  return nullptr;
}

// Returns true if e is 0 in every case of the conditions at its top. `bounds` are the sums that are
// at most 0 in this case.
bool IsZeroInAllCases(Pool& pool, Expr e, const std::vector<Expr>& bounds = {}, int depth = 0) {
  if (e->kind() == Kind::kInteger) return e->value() == 0;
  constexpr int kMostConditions = 6;
  const Expr condition = AskedBy(e);
  if (condition == nullptr) {
    // Two minima of a and b may choose by a <= b and by b <= a: where both hold, a - b is 0.
    return absl::c_linear_search(bounds, e) && absl::c_linear_search(bounds, pool.Neg(e));
  }
  if (depth >= kMostConditions) return false;
  for (const bool truth : {true, false}) {
    std::vector<Expr> own = bounds;
    for (Expr part : ConjunctsOf(truth ? condition : pool.Not(condition))) {
      if (part->kind() == Kind::kLe) own.push_back(part->args()[0]);
    }
    const Expr then = pool.Assume(e, condition, truth, Facts{});
    if (!IsZeroInAllCases(pool, then, own, depth + 1)) return false;
  }
  return true;
}

// Returns the symbol that `size` is, if `other` does not depend on it: the length of an axis that
// an input declares, or that only data determines.
std::optional<DimSymbol> FreeAxis(Expr size, Expr other) {
  if (size->kind() != Kind::kDim || ContainsDim(other, size->dim())) return std::nullopt;
  return size->dim();
}

// Returns the length of an axis, declared by a mask or another integer input, with which the two
// extents are equal for all other sizes: `other`, the divisor of a quotient in `own` or a symbol in
// it, their product with `other`, or what a sum lacks to be `other`. Returns nullopt if no such
// length makes them equal.
std::optional<std::pair<DimSymbol, Expr>> MadeEqualByHost(Engine& engine, Expr own, Expr other) {
  Pool& pool = engine.pool();
  std::vector<Expr> lengths = {other};
  for (Expr division : DivisionsOf(own)) {
    const Expr divisor = division->args()[1];
    lengths.push_back(divisor);
    lengths.push_back(pool.Mul(divisor, other));
    for (const DimSymbol& factor : DimsOf(divisor)) lengths.push_back(pool.Dim(factor));
  }
  for (const DimSymbol& dim : DimsOf(own)) {
    if (!engine.OriginOf(dim) || ContainsDim(other, dim)) continue;
    if (!engine.IsOnlyOfIntegers(dim) && own->kind() != Kind::kFloorDiv) continue;
    std::vector<Expr> all = lengths;
    const auto linear = LinearIn(pool, own, pool.Dim(dim));
    if (linear && linear->coefficient == 1) all.push_back(pool.Sub(other, linear->rest));
    for (Expr length : all) {
      if (ContainsDim(length, dim)) continue;
      Pool::Substitution s;
      s.dims[dim] = length;
      if (IsZeroInAllCases(pool, pool.Sub(pool.Substitute(own, s, Facts{}), other))) {
        return std::pair(dim, length);
      }
    }
  }
  return std::nullopt;
}

// Returns true if some node compares the value or casts it to integers or bools, behind nodes that
// move elements, as those that read a mask of floats do, and if all its other readers ask for its
// shape.
bool IsReadAsMask(const Graph& graph, ValueId input) {
  constexpr size_t kMostMoved = 16;
  std::vector<ValueId> open = {input};
  bool asked = false;
  for (size_t k = 0; k < open.size(); ++k) {
    for (const Use& use : graph.uses(open[k])) {
      if (use.kind != Use::Kind::kNodeInput) return false;
      if (graph.Is(use.node, "Shape")) continue;
      const onnx::NodeProto& node = graph.node(use.node);
      const auto to = static_cast<int32_t>(IntAttribute(node, "to", onnx::TensorProto::FLOAT));
      if (IsComparison(node.op_type()) || (graph.Is(use.node, "Cast") && !IsFloatType(to))) {
        asked = true;
        continue;
      }
      if (MovedOperands(node).empty() || open.size() >= kMostMoved) return false;
      open.push_back(graph.outputs(use.node)[0]);
    }
  }
  return asked;
}

}  // namespace

Expr Engine::WithTakenLengths(Expr e) {
  for (bool changed = true; changed && !taken_.empty();) {
    Pool::Substitution s;
    for (const DimSymbol& dim : DimsOf(e)) {
      if (const auto found = taken_.find(dim); found != taken_.end()) s.dims[dim] = found->second;
    }
    changed = !s.dims.empty();
    if (changed) e = pool_.Substitute(e, s, Facts{});
  }
  return e;
}

bool Engine::IsCountOrMask(ValueId input) const {
  const int32_t type = graph_.type(input).elem_type;
  return type == onnx::TensorProto::BOOL || IsIntegerType(type) || IsReadAsMask(graph_, input);
}

bool Engine::IsOnlyOfIntegers(const DimSymbol& axis) const {
  return origins_.contains(axis) && !dims_of_reals_.contains(axis);
}

bool Engine::IsCompared(NodeId node) const {
  const auto n = static_cast<size_t>(node);
  return n < options_.compared.size() && options_.compared[n];
}

// Extents that differ at run time are legal where one of them is 1. An extent that may become 1 by
// itself is therefore treated as equal to another one only if the two are provably equal, or if the
// host chooses the length of an axis, which it does once for all broadcasts.
bool Engine::MayBeTakenAsEqual(NodeId node, Expr a, Expr b) {
  if (a == b || IsZeroInAllCases(pool_, pool_.Sub(a, b))) return true;
  const bool compared = IsCompared(node);
  Expr x = WithTakenLengths(a), y = WithTakenLengths(b);
  if (IsZeroInAllCases(pool_, pool_.Sub(x, y))) return true;
  if (compared) {
    if (!Branches(a) && !Branches(b)) {
      if (const auto axis = FreeAxis(x, y)) {
        taken_[*axis] = y;
      } else if (const auto other = FreeAxis(y, x)) {
        taken_[*other] = x;
      }
      return true;
    }
    x = a;
    y = b;
  }
  const auto take = [&](const DimSymbol& axis, Expr length) {
    // A length from data may be the number of tokens that a host gives, but neither a number of
    // sequences nor of rows of real numbers.
    if (Branches(length) || (DependsOnData(length) && !IsOnlyOfIntegers(axis))) return false;
    if (!compared) taken_[axis] = length;
    return true;
  };
  if (const auto axis = FreeAxis(x, y); axis && !Subtracts(y)) return take(*axis, y);
  if (const auto axis = FreeAxis(y, x); axis && !Subtracts(x)) return take(*axis, x);
  if (const auto made = MadeEqualByHost(*this, x, y)) return take(made->first, made->second);
  if (const auto made = MadeEqualByHost(*this, y, x)) return take(made->first, made->second);
  if (const auto axis = FreeAxis(x, y)) return take(*axis, y);
  if (const auto axis = FreeAxis(y, x)) return take(*axis, x);
  return false;
}

Expr OpContext::Unify(Expr a, Expr b, std::string_view why, AssumptionReason reason) {
  a = engine_.clipped().Simplified(a);
  b = engine_.clipped().Simplified(b);
  if (a == b) return a;
  const Expr equal = pool().Eq(a, b, Facts{});
  const bool shown = equal->is_integer(1) || IsZeroInAllCases(pool(), pool().Sub(a, b));
  if (!shown && reason == AssumptionReason::kEqualExtents) {
    if (const Expr bound = engine_.clipped().BoundOfEqual(a, b); bound != nullptr) {
      Assume(AssumptionReason::kInside, bound, why);
      return engine_.clipped().Simplified(a);
    }
  }
  if (!shown) Assume(reason, equal, why);
  const int pa = Preference(pool(), a), pb = Preference(pool(), b);
  if (pa != pb) return pa > pb ? a : b;
  return a->id() < b->id() ? a : b;
}

void OpContext::TakeBounds(absl::Span<const Shape* const> shapes) {
  for (const Shape* one : shapes) {
    for (const Shape* other : shapes) {
      for (size_t k = 1; one != other && k <= std::min(one->size(), other->size()); ++k) {
        const Expr bound = engine_.clipped().BoundOfBroadcast((*one)[one->size() - k],
                                                              (*other)[other->size() - k]);
        if (bound == nullptr) continue;
        Assume(AssumptionReason::kInside, bound, "end of a table");
      }
    }
  }
}

bool OpContext::IsThisOrOne(Expr x, Expr y) {
  // Which branch stands for y == 1 depends on the order of the operands.
  const Expr one = pool().Integer(1);
  return x->kind() == Kind::kSelect &&
         (x == pool().Max(one, y, Facts{}) || x == pool().Max(y, one, Facts{}));
}

Expr OpContext::CountOfLast(Expr x) {
  const Expr one = pool().Integer(1);
  std::vector<Expr> parts = {x}, counts;  // counts: what y may be
  if (x->kind() == Kind::kSelect) {
    parts.insert(parts.end(), x->args().begin() + 1, x->args().end());
    counts.assign(parts.begin() + 1, parts.end());
  }
  // The last row of L, x[-1:], has L - max(L - 1, 0) elements.
  for (Expr part : parts) {
    for (const Term& term : part->terms()) {
      if (term.atoms.size() != 1 || term.atoms[0]->kind() != Kind::kSelect) continue;
      const Expr select = pool().Mul(pool().Integer(term.coefficient), term.atoms[0]);
      counts.push_back(pool().Sub(part, select));
    }
  }
  for (Expr y : counts) {
    if (y->kind() == Kind::kInteger) continue;
    // A length below 0, which the shape of a result cannot have, counts as 0.
    for (Expr length : {y, pool().Max(y, pool().Integer(0), Facts{})}) {
      if (IsZeroInAllCases(pool(), pool().Sub(x, pool().Min(one, length, Facts{})))) return y;
    }
  }
  return nullptr;
}

void OpContext::TakeAsNotEmpty(absl::Span<const Shape* const> shapes) {
  const auto inputs = engine_.graph().inputs(node_);
  const auto is_constant = [&](const Shape* shape) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (inputs[k] == kNoValue || &in(static_cast<int>(k)).form.shape != shape) continue;
      return engine_.graph().constant(inputs[k]) != nullptr;
    }
    return true;
  };
  const Expr one = pool().Integer(1);
  for (const Shape* shape : shapes) {
    for (size_t k = 1; k <= shape->size(); ++k) {
      const Expr extent = engine_.clipped().Simplified((*shape)[shape->size() - k]);
      const Expr count = CountOfLast(extent);
      if (count == nullptr) continue;
      const bool meets_one = absl::c_any_of(shapes, [&](const Shape* other) {
        return k <= other->size() && (*other)[other->size() - k] == one && !is_constant(other);
      });
      if (!meets_one) continue;
      AssumeNonNegative(AssumptionReason::kNotEmpty, pool().Sub(count, one), Facts{}, "broadcast");
      ones_.push_back(extent);
    }
  }
}

std::optional<Shape> OpContext::Broadcast(absl::Span<const Shape* const> shapes) {
  size_t rank = 0;
  for (const Shape* shape : shapes) rank = std::max(rank, shape->size());
  TakeBounds(shapes);
  TakeAsNotEmpty(shapes);
  Shape result(rank, pool().Integer(1));
  for (size_t axis = 0; axis < rank; ++axis) {
    for (const Shape* shape : shapes) {
      if (axis + shape->size() < rank) continue;
      const Expr dim = engine_.clipped().Simplified((*shape)[axis + shape->size() - rank]);
      if (dim->is_integer(1) || absl::c_linear_search(ones_, dim)) continue;
      if (result[axis]->is_integer(1)) {
        result[axis] = dim;
        continue;
      }
      if (IsThisOrOne(result[axis], dim)) {
        result[axis] = dim;
        continue;
      }
      if (IsThisOrOne(dim, result[axis])) continue;
      const bool constants =
          dim->kind() == Kind::kInteger && result[axis]->kind() == Kind::kInteger;
      if (constants && dim != result[axis]) return std::nullopt;
      if (!engine_.MayBeTakenAsEqual(node_, result[axis], dim)) return std::nullopt;
      result[axis] = Unify(result[axis], dim, "broadcast", AssumptionReason::kBroadcast);
    }
  }
  return result;
}

}  // namespace kvlift::sym::internal
