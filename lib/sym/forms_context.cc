// What operators' functions ask of their node: inputs, broadcasting, assumptions.
#include <algorithm>

#include "sym/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// Of two dims that are equal at run time: constants first, then what is built from declared dims,
// own symbols of inputs and data last.
int Preference(const Pool&, Expr e) {
  if (e->kind() == Kind::kInteger) return 100;
  if (!SourcesOf(e).empty()) return 0;
  int score = e->kind() == Kind::kSum ? 30 : e->kind() == Kind::kDim ? 20 : 10;
  for (const DimSymbol& dim : DimsOf(e)) {
    if (dim.is_internal()) score -= 12;
  }
  return score;
}

bool Branches(Expr e) {
  const auto branches = [](Expr x) { return Branches(x); };
  switch (e->kind()) {
    case Kind::kFloorDiv:
    case Kind::kSelect:
    case Kind::kApply:
    case Kind::kLe:  // truth values: 0 or 1
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

// A condition that e asks anywhere at its top; null if there is none.
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

// e is 0 in every case of the conditions that it asks.
bool IsZeroInAllCases(Pool& pool, Expr e, int depth) {
  if (e->kind() == Kind::kInteger) return e->value() == 0;
  constexpr int kMostConditions = 6;
  const Expr condition = AskedBy(e);
  if (condition == nullptr || depth >= kMostConditions) return false;
  return IsZeroInAllCases(pool, pool.Assume(e, condition, true, Facts{}), depth + 1) &&
         IsZeroInAllCases(pool, pool.Assume(e, condition, false, Facts{}), depth + 1);
}

// Whether some length of an axis that a mask or another integer input declares makes the two equal,
// whatever all other sizes are: as long as `other`, or as what a quotient in `own` is divided by.
bool IsMadeEqualByHost(Engine& engine, Expr own, Expr other) {
  Pool& pool = engine.pool();
  std::vector<Expr> lengths = {other};
  for (Expr division : DivisionsOf(own)) lengths.push_back(division->args()[1]);
  for (const DimSymbol& dim : DimsOf(own)) {
    const auto origin = engine.OriginOf(dim);
    if (!origin || ContainsDim(other, dim)) continue;
    const int32_t type = engine.graph().type(origin->input).elem_type;
    if (!IsIntegerType(type) && type != onnx::TensorProto::BOOL && own->kind() != Kind::kFloorDiv) {
      continue;
    }
    for (Expr length : lengths) {
      if (ContainsDim(length, dim)) continue;
      Pool::Substitution s;
      s.dims[dim] = length;
      if (IsZeroInAllCases(pool, pool.Sub(pool.Substitute(own, s, Facts{}), other), 0)) return true;
    }
  }
  return false;
}

// Extents that differ at run time are not an error where one of them is 1, so two may be taken as
// equal only if both are sums and products of sizes: what an input declares, or a number that the
// host gives. A quotient or a minimum may well be 1: the columns of a mask from a Range whose step
// exceeds its limit. Only an axis of a length of its own that an input declares may be as long.
bool MayBeTakenAsEqual(Engine& engine, Expr a, Expr b) {
  if (a == b || (!Branches(a) && !Branches(b))) return true;
  const auto is_free = [&](Expr size, Expr other) {
    return size->kind() == Kind::kDim && engine.OriginOf(size->dim()) &&
           !ContainsDim(other, size->dim());
  };
  return is_free(a, b) || is_free(b, a) ||
         IsZeroInAllCases(engine.pool(), engine.pool().Sub(a, b), 0) ||
         IsMadeEqualByHost(engine, a, b) || IsMadeEqualByHost(engine, b, a);
}

}  // namespace

bool OpContext::Known(int n) {
  for (int k = 0; k < n; ++k) {
    if (!has(k) || !in(k).form.known_rank) return false;
  }
  return true;
}

std::optional<std::vector<Expr>> OpContext::Elements(int input) {
  if (!has(input)) return std::nullopt;
  return engine_.Elements(in(input));
}

std::optional<std::vector<int64_t>> OpContext::ConstantInts(int input) {
  const auto elements = Elements(input);
  if (!elements) return std::nullopt;
  std::vector<int64_t> result;
  for (Expr e : *elements) {
    if (e->kind() != Kind::kInteger) return std::nullopt;
    result.push_back(e->value());
  }
  return result;
}

void OpContext::Set(int output, Shape shape, const ElementFn& fn) {
  engine_.Set(this->output(output), std::move(shape), fn);
}

void OpContext::SetElements(int output, bool scalar, std::vector<Expr> elements) {
  engine_.SetElements(this->output(output), scalar, std::move(elements));
}

void OpContext::SetOpaque(int output, Shape shape) {
  engine_.SetOpaque(this->output(output), std::move(shape));
}

void OpContext::Copy(int output, int input) {
  if (!has(input) || !in(input).form.known_rank) return;
  const Value& value = in(input);
  const auto elements = value.elements;
  Set(output, value.form.shape,
      [&](Indices ix, const Facts& facts) { return engine_.At(value, ix, facts); });
  if (elements) engine_.KeepElements(this->output(output), *elements);
}

Expr OpContext::Unify(Expr a, Expr b, std::string_view why, AssumptionReason reason) {
  if (a == b) return a;
  const Expr equal = pool().Eq(a, b, Facts{});
  const bool shown = equal->is_integer(1) || IsZeroInAllCases(pool(), pool().Sub(a, b), 0);
  if (!shown) Assume(reason, equal, why);
  const int pa = Preference(pool(), a), pb = Preference(pool(), b);
  if (pa != pb) return pa > pb ? a : b;
  return a->id() < b->id() ? a : b;
}

std::optional<Shape> OpContext::Broadcast(absl::Span<const Shape* const> shapes) {
  size_t rank = 0;
  for (const Shape* shape : shapes) rank = std::max(rank, shape->size());
  Shape result(rank, pool().Integer(1));
  for (size_t axis = 0; axis < rank; ++axis) {
    for (const Shape* shape : shapes) {
      if (axis + shape->size() < rank) continue;
      const Expr dim = (*shape)[axis + shape->size() - rank];
      if (dim->is_integer(1)) continue;
      if (result[axis]->is_integer(1)) {
        result[axis] = dim;
        continue;
      }
      const bool constants =
          dim->kind() == Kind::kInteger && result[axis]->kind() == Kind::kInteger;
      if (constants && dim != result[axis]) return std::nullopt;
      if (!MayBeTakenAsEqual(engine_, result[axis], dim)) return std::nullopt;
      result[axis] = Unify(result[axis], dim, "broadcast", AssumptionReason::kBroadcast);
    }
  }
  return result;
}

Expr OpContext::AtBroadcast(const Value& value, Indices indices, const Facts& facts) {
  const int offset = static_cast<int>(indices.size()) - value.rank();
  std::vector<Expr> own;
  for (int k = 0; k < value.rank(); ++k) {
    own.push_back(value.dim(k)->is_integer(1) ? pool().Integer(0) : indices[offset + k]);
  }
  return engine_.At(value, own, facts);
}

}  // namespace kvlift::sym::internal
