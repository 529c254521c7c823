#include "sym/ops/one_hot.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sym/forms/scatter_inverse.h"

namespace kvlift::sym::internal {
namespace {

bool IsNumber(Expr e, double number) {
  const auto value = Number(e);
  return value && *value == number;
}

// Returns the condition under which the element is 1, if it is 0 otherwise; null for others.
Expr WhenOne(Pool& pool, Expr element) {
  if (element->kind() == Kind::kSelect) {
    const auto q = element->args();
    if (IsNumber(q[1], 0) && IsNumber(q[2], 1)) return pool.Not(q[0]);
    return IsNumber(q[1], 1) && IsNumber(q[2], 0) ? q[0] : nullptr;
  }
  return element->is_predicate() && element->kind() != Kind::kInteger ? element : nullptr;
}

// Solves the equation difference == 0 for an index; null if it is not linear in it.
Expr Solved(Pool& pool, Expr difference, int index) {
  const auto linear = LinearIn(pool, difference, pool.Index(index));
  if (!linear || std::abs(linear->coefficient) != 1 || ContainsIndex(linear->rest, index)) {
    return nullptr;
  }
  return linear->coefficient == 1 ? pool.Neg(linear->rest) : linear->rest;
}

std::optional<PlaceOfOne> SolveEquation(OpContext& c, Expr difference, const Shape& result,
                                        Expr extent) {
  Pool& pool = c.pool();
  if (const Expr place = Solved(pool, difference, kUpdateBase)) {
    const Facts facts = FactsOf(result);
    const Expr inside =
        pool.And(pool.Le(pool.Integer(0), place, facts), pool.Lt(place, extent, facts));
    return PlaceOfOne{place, inside};
  }
  for (size_t axis = 0; axis < result.size(); ++axis) {
    const int row = static_cast<int>(axis);
    const Expr written = Solved(pool, difference, row);
    if (written == nullptr) continue;
    // A row outside the result is not written, where a scatter would count it from the end.
    auto inverse = InvertPlaces(c, result, {extent}, {{row, written, /*digit=*/true}});
    if (inverse) return PlaceOfOne{inverse->update_index[0], inverse->condition};
  }
  return std::nullopt;
}

}  // namespace

std::optional<PlaceOfOne> FindPlaceOfOne(OpContext& c, Expr element, const Shape& result,
                                         Expr extent) {
  Pool& pool = c.pool();
  const Expr when = element == nullptr ? nullptr : WhenOne(pool, element);
  if (when == nullptr || result.size() > kMaxScatterRank) return std::nullopt;
  if (extent->is_integer(1)) {
    Pool::Substitution first;
    first.indices.assign(kUpdateBase + 1, nullptr);
    first.indices.back() = pool.Integer(0);
    return PlaceOfOne{pool.Integer(0), pool.Substitute(when, first, FactsOf(result))};
  }
  Expr equation = nullptr;
  std::vector<Expr> others;
  for (Expr part : ConjunctsOf(when)) {
    const bool solvable =
        equation == nullptr && part->kind() == Kind::kEq && ContainsIndex(part, kUpdateBase);
    if (solvable) {
      equation = part;
    } else {
      others.push_back(part);
    }
  }
  if (equation == nullptr) return std::nullopt;
  auto found = SolveEquation(c, equation->args()[0], result, extent);
  if (!found) return std::nullopt;
  Pool::Substitution s;
  s.indices.assign(kUpdateBase + 1, nullptr);
  s.indices.back() = found->place;
  for (Expr part : others) {
    found->condition = c.engine().And(found->condition, pool.Substitute(part, s, FactsOf(result)));
  }
  return found;
}

Expr OneWhereZero(Pool& pool, Expr element) {
  const Expr when = element == nullptr ? nullptr : WhenOne(pool, element);
  return when == nullptr ? nullptr : pool.Not(when);
}

bool SetRowsOfOneHot(OpContext& c, const Shape& shape, Expr extent, const OperandIndices& indices) {
  Pool& pool = c.pool();
  for (const int hot : {0, 1}) {
    const Value& other = c.in(1 - hot);
    Facts facts = FactsOf(shape);
    facts.extents.resize(kUpdateBase + 1, nullptr);
    facts.extents.back() = extent;
    const Expr element = c.engine().At(c.in(hot), indices(hot, pool.Index(kUpdateBase)), facts);
    const auto found = FindPlaceOfOne(c, element, shape, extent);
    const bool moves = found && (found->place->has_index() || found->condition->has_index());
    if (!moves) continue;
    const Expr picked = c.engine().At(other, indices(1 - hot, found->place), FactsOf(shape));
    // An embedding reads a table, and stays a product.
    if (picked == nullptr || c.engine().HasDataDependentTableRead(picked)) continue;
    const Expr e = c.engine().Select(found->condition, picked, pool.Integer(0));
    const Expr all =
        c.engine().At(other, AllIndices(pool, other.rank()), FactsOf(other.form.shape));
    c.Assume(AssumptionReason::kFinite, pool.Apply("finite", {all}), "a product with 0 is 0");
    c.Set(0, shape, [&](Indices ix, const Facts& known) {
      Pool::Substitution s;
      s.indices.assign(ix.begin(), ix.end());
      return pool.Substitute(e, s, known);
    });
    return true;
  }
  return false;
}

bool SetRowsOfOneHotMatMul(OpContext& c, const Shape& shape) {
  constexpr int kMatrix = 2;
  if (c.in(0).rank() < kMatrix || c.in(1).rank() < kMatrix) return false;
  const int rank = static_cast<int>(shape.size());
  const auto indices = [&](int operand, Expr along) {
    const Value& x = c.in(operand);
    std::vector<Expr> own;
    for (int axis = 0; axis < x.rank(); ++axis) {
      const bool one = x.dim(axis)->is_integer(1);
      own.push_back(one ? c.pool().Integer(0) : c.pool().Index(rank - x.rank() + axis));
    }
    own[x.rank() - 1 - operand] = along;
    return own;
  };
  return SetRowsOfOneHot(c, shape, c.in(0).dim(c.in(0).rank() - 1), indices);
}

bool SetRowsOfOneHotGemm(OpContext& c, const Shape& shape) {
  if (c.op() != "Gemm" || c.has(2) || FloatAttribute(c.proto(), "alpha", 1.0f) != 1.0f)
    return false;
  const bool turned[] = {c.Int("transA", 0) != 0, c.Int("transB", 0) != 0};
  const auto indices = [&](int operand, Expr along) {
    const Expr own = c.pool().Index(operand);
    const bool along_first = turned[operand] == (operand == 0);
    return along_first ? std::vector<Expr>{along, own} : std::vector<Expr>{own, along};
  };
  return SetRowsOfOneHot(c, shape, c.in(0).dim(turned[0] ? 0 : 1), indices);
}

}  // namespace kvlift::sym::internal
