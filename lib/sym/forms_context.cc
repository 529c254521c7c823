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
      return true;
    case Kind::kSum:
      return std::any_of(e->terms().begin(), e->terms().end(), [&](const Term& term) {
        return std::any_of(term.atoms.begin(), term.atoms.end(), branches);
      });
    default:
      return false;
  }
}

// Dims as numbers of a step that may happen.
class Sample {
 public:
  Sample(Pool& pool, absl::Span<const Expr> of, int round) : pool_(pool) {
    int k = 0;
    const auto number = [&] { return pool_.Integer(3 + (11 * round + 7 * k++) % 29); };
    for (Expr e : of) {
      for (const DimSymbol& dim : DimsOf(e)) {
        if (!values_.dims.contains(dim)) values_.dims[dim] = number();
      }
    }
  }
  Expr At(Expr e) const { return pool_.Substitute(e, values_, Facts{}); }

 private:
  Pool& pool_;
  Pool::Substitution values_;
};

// Whether one of them has a dim that the other has not: a step may have made them equal.
bool MayBeMadeEqual(Expr a, Expr b) { return DimsOf(a) != DimsOf(b); }

// Extents that differ at run time are not an error where one of them is 1, so two may be taken as
// equal only if neither is 1 as a rule. A quotient or a minimum may well be: the columns of a mask
// from a Range whose step exceeds its limit.
bool MayBeTakenAsEqual(Pool& pool, Expr a, Expr b) {
  if (a == b) return true;
  if (!Branches(a) && !Branches(b)) return true;
  if (!SourcesOf(a).empty() || !SourcesOf(b).empty()) return true;  // as the data says
  constexpr int kRounds = 4;
  bool always = true, ever = false, one = false;
  for (int round = 0; round < kRounds; ++round) {
    const Sample sample(pool, {a, b}, round);
    const Expr x = sample.At(a), y = sample.At(b);
    if (x->kind() != Kind::kInteger || y->kind() != Kind::kInteger) return false;
    always = always && x == y;
    ever = ever || x == y;
    one = one || x->value() <= 1 || y->value() <= 1;
  }
  return always || (!one && (ever || MayBeMadeEqual(a, b)));
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

Expr OpContext::Unify(Expr a, Expr b, std::string_view why) {
  if (a == b) return a;
  const Expr equal = pool().Eq(a, b, Facts{});
  if (!equal->is_integer(1)) Assume(AssumptionReason::kEqualExtents, equal, why);
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
      if (!MayBeTakenAsEqual(pool(), result[axis], dim)) return std::nullopt;
      result[axis] = Unify(result[axis], dim, "broadcast");
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
