// Operators that move data along whole axes, or select it by index tensors.
#include <algorithm>

#include "ir/tensor_data.h"
#include "sym/expr/digits.h"
#include "sym/forms/forms_engine.h"
#include "sym/forms/pieces.h"

namespace kvlift::sym::internal {
namespace {

// An index that is taken to be >= 0 wherever `condition` holds.
struct AssumedIndex {
  Expr condition, index;
};

// Returns an index as ONNX reads it: negative values count from the end of the axis. An index that
// the host gives is taken to be >= 0 where it is read, and added to `assumed`. `condition` says
// where that is.
Expr WrapIndex(OpContext& c, Expr index, Expr extent, const Facts& facts,
               std::vector<AssumedIndex>* assumed, Expr condition = nullptr) {
  Pool& pool = c.pool();
  if (condition == nullptr) condition = pool.True();
  if (index->kind() == Kind::kInteger) {
    return index->value() < 0 ? pool.Add(extent, index) : index;
  }
  if (index->kind() == Kind::kSelect) {
    const auto q = index->args();
    const Expr yes = pool.And(condition, q[0]), no = pool.And(condition, pool.Not(q[0]));
    return c.engine().Select(q[0], WrapIndex(c, q[1], extent, facts, assumed, yes),
                             WrapIndex(c, q[2], extent, facts, assumed, no));
  }
  const Interval range = c.engine().RangeOf(index, facts);
  if (NonNegative(pool, index, facts) || range.low >= 0) return index;
  if (pool.ProveNonNegative(pool.Sub(pool.Integer(-1), index), facts) || range.high < 0) {
    return pool.Add(extent, index);
  }
  if (index->kind() == Kind::kLoad && c.engine().ConstantIsNonNegative(index->source())) {
    return index;
  }
  if (!c.engine().DependsOnData(index) || !c.engine().IsGivenByHost(index)) {
    const Expr negative = pool.Lt(index, pool.Integer(0), facts);
    return c.engine().Select(negative, pool.Add(extent, index), index);
  }
  assumed->push_back({condition, index});
  return index;
}

// Takes the indices to be >= 0 where they are read.
void AssumeInside(OpContext& c, absl::Span<const AssumedIndex> assumed, const Facts& facts,
                  std::string_view why) {
  Pool& pool = c.pool();
  for (const AssumedIndex& read : assumed) {
    if (read.condition->is_integer(1)) {
      c.AssumeNonNegative(AssumptionReason::kInside, read.index, facts, why);
      continue;
    }
    const Expr inside = pool.Le(pool.Integer(0), read.index, facts);
    const Expr given = pool.Assume(inside, read.condition, true, facts);
    if (given->is_integer(1)) continue;
    c.Assume(AssumptionReason::kInside, pool.Or(pool.Not(read.condition), given), why);
  }
}

// Returns the largest value of e over all indices; null if it cannot be determined.
Expr Largest(Pool& pool, Expr e, const Facts& facts) {
  for (size_t k = 0; k < facts.extents.size(); ++k) {
    const Expr index = pool.Index(static_cast<int>(k));
    if (!ContainsIndex(e, static_cast<int>(k))) continue;
    const auto linear = LinearIn(pool, e, index);
    if (!linear || facts.extents[k] == nullptr) return nullptr;
    e = linear->rest;
    if (linear->coefficient < 0) continue;
    const Expr last = pool.Sub(facts.extents[k], pool.Integer(1));
    e = pool.Add(e, pool.Mul(pool.Integer(linear->coefficient), last));
  }
  return e;
}

// Simplifies reads of a flattened [B, T] at b * T + t: row and column can be separated if t < T.
// This is assumed for a T that an input declares, and not for computed extents.
Expr TellRowsApart(OpContext& c, Expr e, const Facts& facts) {
  Pool& pool = c.pool();
  Pool::Substitution s;
  for (Expr division : DivisionsOf(e)) {
    const Expr n = division->args()[0], d = division->args()[1];
    const bool declared = d->kind() == Kind::kDim && c.engine().OriginOf(d->dim());
    if (!declared || !NonNegative(pool, n, facts)) continue;
    const Expr largest = Largest(pool, n, facts);
    if (largest == nullptr || !SourcesOf(largest).empty()) continue;
    // An index that runs over several rows is not a column.
    const std::vector<DimSymbol> dims = DimsOf(largest);
    const bool several = std::any_of(dims.begin(), dims.end(),
                                     [&](const DimSymbol& dim) { return ContainsDim(d, dim); });
    if (several) continue;
    c.AssumeNonNegative(AssumptionReason::kInside, pool.Sub(pool.Sub(d, largest), pool.Integer(1)),
                        Facts{}, "rows of a flattened axis");
    s.atoms[division] = pool.Integer(0);
  }
  return s.atoms.empty() ? e : pool.Substitute(e, s, facts);
}

// Returns the element of x at indices that may be selects. `assumed` has the indices that were
// taken to be >= 0.
Expr ReadAt(OpContext& c, const Value& x, std::vector<Expr> own, const Facts& facts,
            absl::Span<const AssumedIndex> assumed = {}) {
  Engine& engine = c.engine();
  const Expr e = engine.Lift(std::move(own),
                             [&](absl::Span<const Expr> at) { return engine.At(x, at, facts); });
  if (e == nullptr || engine.HasDataDependentTableRead(e)) return nullptr;
  AssumeInside(c, assumed, facts, "index");
  return TellRowsApart(c, e, facts);
}

// Sets the shape of a Concat with an operand of unknown rank: on all axes but its own, it has the
// extents of the others.
void JoinUnknown(OpContext& c) {
  for (int k = 0; k < c.num_inputs(); ++k) {
    if (!c.has(k) || !c.in(k).form.known_rank) continue;
    Shape out = c.in(k).form.shape;
    const auto axis = NormalAxis(c.Int("axis", 0), static_cast<int>(out.size()));
    if (!axis) return;
    out[*axis] = c.engine().OwnDim(c.output(0), *axis);
    return c.SetOpaque(0, std::move(out));
  }
}

}  // namespace

void OpTranspose(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& x = c.in(0);
  const int rank = x.rank();
  std::vector<int64_t> perm = IntsAttribute(c.proto(), "perm");
  if (FindAttribute(c.proto(), "perm") == nullptr) {
    for (int k = rank - 1; k >= 0; --k) perm.push_back(k);
  }
  const auto axes = NormalAxes(perm, rank);
  if (!axes || static_cast<int>(axes->size()) != rank) return;
  Shape out;
  for (int axis : *axes) out.push_back(x.dim(axis));
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) {
    std::vector<Expr> own(rank);
    for (int k = 0; k < rank; ++k) own[(*axes)[k]] = ix[k];
    return c.engine().At(x, own, facts);
  });
}

void OpConcat(OpContext& c) {
  const int n = c.num_inputs();
  if (n == 0) return;
  if (!c.Known(n)) return JoinUnknown(c);
  const int rank = c.in(0).rank();
  for (int k = 1; k < n; ++k) {
    if (c.in(k).rank() != rank) return;
  }
  const auto axis = NormalAxis(c.Int("axis", 0), rank);
  if (!axis) return;
  Pool& pool = c.pool();
  Shape out = c.in(0).form.shape;
  std::vector<Expr> ends;
  std::vector<const Value*> all;
  Expr total = pool.Integer(0);
  bool all_elements = rank == 1;
  for (int k = 0; k < n; ++k) {
    all.push_back(&c.in(k));
    for (int a = 0; a < rank; ++a) {
      if (a != *axis) out[a] = c.Unify(out[a], c.in(k).dim(a), "concatenated axis");
    }
    total = pool.Add(total, c.in(k).dim(*axis));
    ends.push_back(total);
    all_elements = all_elements && c.in(k).elements.has_value();
  }
  out[*axis] = total;
  if (all_elements && total->kind() == Kind::kInteger && total->value() <= kMaxVector) {
    std::vector<Expr> elements;
    for (int k = 0; k < n; ++k) {
      elements.insert(elements.end(), c.in(k).elements->begin(), c.in(k).elements->end());
    }
    return c.SetElements(0, false, std::move(elements));
  }
  const bool stacked = std::all_of(all.begin(), all.end(),
                                   [&](const Value* x) { return x->dim(*axis)->is_integer(1); });
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> pieces, piece_ends;
    for (int k = 0; k < n; ++k) {
      const Expr length = all[k]->dim(*axis);
      if (length->is_integer(0)) continue;
      std::vector<Expr> own(ix.begin(), ix.end());
      if (length->is_integer(1)) {
        own[*axis] = pool.Integer(0);
      } else if (k > 0) {
        own[*axis] = pool.Sub(own[*axis], ends[k - 1]);
      }
      pieces.push_back(c.engine().At(*all[k], own, facts));
      if (pieces.back() == nullptr) return nullptr;
      piece_ends.push_back(ends[k]);
    }
    if (pieces.empty()) return pool.Integer(0);
    return Piecewise(c.engine(), ix[*axis], piece_ends, pieces, stacked, facts);
  });
}

void OpSplit(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& x = c.in(0);
  const auto axis = NormalAxis(c.Int("axis", 0), x.rank());
  if (!axis) return;
  Pool& pool = c.pool();
  const int n = c.num_outputs();
  Shape sizes;
  if (c.has(1)) {
    const auto given = c.Elements(1);
    if (!given || static_cast<int>(given->size()) != n) return;
    sizes = *given;
  } else {
    if (c.Int("num_outputs", n) != n) return;
    // The parts are equal; the last one is smaller if the number of parts does not divide the axis.
    const Expr part =
        pool.FloorDiv(pool.Add(x.dim(*axis), pool.Integer(n - 1)), pool.Integer(n), Facts{});
    const Expr last = pool.Sub(x.dim(*axis), pool.Mul(pool.Integer(n - 1), part));
    if (last->kind() == Kind::kInteger && last->value() < 0) return;
    sizes.assign(n, part);
    sizes.back() = last;
  }
  Expr start = pool.Integer(0);
  for (int k = 0; k < n; ++k) {
    c.SetPart(k, x, *axis, start, sizes[k]);
    start = pool.Add(start, sizes[k]);
  }
}

void OpGather(OpContext& c) {
  if (!c.Known(2)) return;
  const Value& x = c.in(0);
  const Value& index = c.in(1);
  const auto axis = NormalAxis(c.Int("axis", 0), x.rank());
  if (!axis) return;
  const int a = *axis, r = index.rank();
  Shape out(x.form.shape.begin(), x.form.shape.begin() + a);
  out.insert(out.end(), index.form.shape.begin(), index.form.shape.end());
  out.insert(out.end(), x.form.shape.begin() + a + 1, x.form.shape.end());
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    const Expr place = c.engine().At(index, ix.subspan(a, r), facts);
    if (place == nullptr) return nullptr;
    std::vector<Expr> own(ix.begin(), ix.begin() + a);
    std::vector<AssumedIndex> assumed;
    own.push_back(WrapIndex(c, place, x.dim(a), facts, &assumed));
    own.insert(own.end(), ix.begin() + a + r, ix.end());
    return ReadAt(c, x, std::move(own), facts, assumed);
  });
}

void OpGatherND(OpContext& c) {
  if (!c.Known(2)) return;
  const Value& x = c.in(0);
  const Value& index = c.in(1);
  const int64_t batch = c.Int("batch_dims", 0);
  const int r = index.rank() - 1;
  if (r < 0 || index.dim(r)->kind() != Kind::kInteger) return;
  const int64_t width = index.dim(r)->value();
  if (batch < 0 || batch > r || width < 1 || batch + width > x.rank()) return;
  Shape out(index.form.shape.begin(), index.form.shape.end() - 1);
  for (int64_t k = 0; k < batch; ++k) {
    out[k] = c.Unify(out[k], x.dim(static_cast<int>(k)), "batch axis of GatherND");
  }
  out.insert(out.end(), x.form.shape.begin() + batch + width, x.form.shape.end());
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> own(ix.begin(), ix.begin() + batch);
    std::vector<AssumedIndex> assumed;
    for (int64_t k = 0; k < width; ++k) {
      std::vector<Expr> at(ix.begin(), ix.begin() + r);
      at.push_back(c.pool().Integer(k));
      const Expr place = c.engine().At(index, at, facts);
      if (place == nullptr) return nullptr;
      own.push_back(WrapIndex(c, place, x.dim(static_cast<int>(batch + k)), facts, &assumed));
    }
    own.insert(own.end(), ix.begin() + r, ix.end());
    return ReadAt(c, x, std::move(own), facts, assumed);
  });
}

void OpGatherElements(OpContext& c) {
  if (!c.Known(2)) return;
  const Value& x = c.in(0);
  const Value& index = c.in(1);
  const auto axis = NormalAxis(c.Int("axis", 0), x.rank());
  if (!axis || index.rank() != x.rank()) return;
  c.Set(0, index.form.shape, [&](Indices ix, const Facts& facts) -> Expr {
    const Expr place = c.engine().At(index, ix, facts);
    if (place == nullptr) return nullptr;
    std::vector<Expr> own(ix.begin(), ix.end());
    std::vector<AssumedIndex> assumed;
    own[*axis] = WrapIndex(c, place, x.dim(*axis), facts, &assumed);
    return ReadAt(c, x, std::move(own), facts, assumed);
  });
}

void OpTrilu(OpContext& c) {
  if (!c.Known(1) || c.in(0).rank() < 2) return;
  const Value& x = c.in(0);
  Pool& pool = c.pool();
  Expr k = pool.Integer(0);
  if (c.has(1)) {
    const auto given = c.Elements(1);
    if (!given || given->size() != 1) return c.SetOpaque(0, x.form.shape);
    k = given->front();
  }
  const bool upper = c.Int("upper", 1) != 0;
  const int rank = x.rank();
  c.Set(0, x.form.shape, [&](Indices ix, const Facts& facts) -> Expr {
    const Expr diagonal = pool.Add(ix[rank - 2], k);
    const Expr keep =
        upper ? pool.Le(diagonal, ix[rank - 1], facts) : pool.Le(ix[rank - 1], diagonal, facts);
    const Expr element = c.engine().At(x, ix, facts);
    return element == nullptr ? nullptr : c.engine().Select(keep, element, pool.Integer(0));
  });
}

namespace {

// Returns the values of a OneHot for "off" and "on".
std::optional<std::vector<Expr>> OffAndOn(OpContext& c) {
  const onnx::TensorProto* tensor = c.has(2) ? c.engine().graph().constant(c.input(2)) : nullptr;
  if (tensor == nullptr || !IsFloatType(tensor->data_type())) return c.Elements(2);
  const auto floats = ReadFloats(*tensor);
  if (!floats.ok()) return std::nullopt;
  std::vector<Expr> result;
  for (double x : *floats) result.push_back(c.pool().Float(x));
  return result;
}

}  // namespace

void OpOneHot(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& index = c.in(0);
  const int rank = index.rank() + 1;
  const auto depth = c.Elements(1), values = OffAndOn(c);
  const auto axis = NormalAxis(c.Int("axis", -1), rank);
  if (!axis || !depth || depth->size() != 1) return;
  Shape out = index.form.shape;
  out.insert(out.begin() + *axis, depth->front());
  if (!values || values->size() != 2) return c.SetOpaque(0, std::move(out));
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> own(ix.begin(), ix.end());
    own.erase(own.begin() + *axis);
    const Expr raw = c.engine().At(index, own, facts);
    if (raw == nullptr || !c.engine().IsIntegral(raw)) return nullptr;
    std::vector<AssumedIndex> assumed;
    const Expr place = WrapIndex(c, raw, depth->front(), facts, &assumed);
    AssumeInside(c, assumed, facts, "index of a OneHot");
    return c.engine().Select(c.pool().Eq(place, ix[*axis], facts), (*values)[1], (*values)[0]);
  });
}

void OpEyeLike(OpContext& c) {
  if (!c.Known(1) || c.in(0).rank() != 2) return;
  const Expr k = c.pool().Integer(c.Int("k", 0));
  c.Set(0, c.in(0).form.shape, [&](Indices ix, const Facts& facts) {
    return c.pool().Eq(c.pool().Add(ix[0], k), ix[1], facts);
  });
}

}  // namespace kvlift::sym::internal
