// Operators that compute shapes, and operators that only reshape.
#include <algorithm>
#include <limits>

#include "ir/tensor_data.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

// A run of input axes that holds the same elements as a run of output axes.
struct Block {
  int in_begin, in_end, out_begin, out_end;
};

// Splits two shapes of equal size into blocks of equal size, from the front and as finely as
// possible. The last block has what cannot be split.
std::vector<Block> SplitBlocks(Pool& pool, const Shape& in, const Shape& out) {
  std::vector<Block> blocks;
  const int n = static_cast<int>(in.size()), m = static_cast<int>(out.size());
  int a = 0, b = 0;
  while (a < n || b < m) {
    Block best{a, n, b, m};
    int best_cost = n - a + m - b + 1;
    Expr left = pool.Integer(1);
    for (int x = a; x <= n; ++x) {
      if (x > a) left = pool.Mul(left, in[x - 1]);
      Expr right = pool.Integer(1);
      for (int y = b; y <= m; ++y) {
        if (y > b) right = pool.Mul(right, out[y - 1]);
        const int cost = x - a + y - b;
        if (cost == 0 || left != right || cost >= best_cost) continue;
        best = {a, x, b, y};
        best_cost = cost;
      }
    }
    blocks.push_back(best);
    a = best.in_end;
    b = best.out_end;
  }
  return blocks;
}

// Returns the indices of the input for the output indices ix.
std::vector<Expr> MapBlocks(Pool& pool, absl::Span<const Block> blocks, const Shape& in,
                            const Shape& out, Indices ix, const Facts& facts) {
  std::vector<Expr> result(in.size(), pool.Integer(0));
  for (const Block& block : blocks) {
    if (block.in_end - block.in_begin == 1 && block.out_end - block.out_begin == 1) {
      result[block.in_begin] = ix[block.out_begin];
      continue;
    }
    Expr flat = pool.Integer(0);
    for (int k = block.out_begin; k < block.out_end; ++k) {
      if (!out[k]->is_integer(1)) flat = pool.Add(pool.Mul(flat, out[k]), ix[k]);
    }
    int first = block.in_begin;
    while (first < block.in_end && in[first]->is_integer(1)) ++first;
    for (int k = block.in_end - 1; k > first; --k) {
      if (in[k]->is_integer(1)) continue;
      result[k] = pool.Mod(flat, in[k], facts);
      flat = pool.FloorDiv(flat, in[k], facts);
    }
    if (first < block.in_end) result[first] = flat;
  }
  return result;
}

void SetReshaped(OpContext& c, Shape out) {
  const Value& x = c.in(0);
  const Shape& in = x.form.shape;
  Pool& pool = c.pool();
  const Expr before = Product(pool, in), after = Product(pool, out);
  if (before->kind() == Kind::kInteger && after->kind() == Kind::kInteger && before != after) {
    return;
  }
  c.Unify(before, after, "number of elements");
  const std::vector<Block> blocks = SplitBlocks(pool, in, out);
  c.Set(0, out, [&](Indices ix, const Facts& facts) {
    return c.engine().At(x, MapBlocks(pool, blocks, in, out, ix, facts), facts);
  });
  if (x.elements && out.size() == 1 && out[0]->kind() == Kind::kInteger) {
    c.engine().KeepElements(c.output(0), *x.elements);
  }
}

}  // namespace

void OpIdentity(OpContext& c) { c.Copy(0, 0); }

void OpShape(OpContext& c) {
  if (!c.Known(1)) return;
  const Shape& shape = c.in(0).form.shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  const auto clamp = [&](int64_t k) { return std::clamp<int64_t>(k < 0 ? k + rank : k, 0, rank); };
  const int64_t begin = clamp(c.Int("start", 0)), end = clamp(c.Int("end", rank));
  if (begin >= end) return c.SetElements(0, false, {});
  c.SetElements(0, false, Shape(shape.begin() + begin, shape.begin() + end));
}

void OpSize(OpContext& c) {
  if (c.Known(1)) c.SetElements(0, true, {Product(c.pool(), c.in(0).form.shape)});
}

void OpReshape(OpContext& c) {
  if (!c.Known(1)) return;
  const auto spec = c.Elements(1);
  if (!spec) return;
  Pool& pool = c.pool();
  const Shape& in = c.in(0).form.shape;
  Shape out = *spec;
  std::optional<size_t> open;
  const bool allow_zero = c.Int("allowzero", 0) != 0;
  for (size_t k = 0; k < out.size(); ++k) {
    if (out[k]->kind() != Kind::kInteger) {
      // A computed size of 0 stands for the input's own extent, just as a constant 0 does.
      if (allow_zero || (k < in.size() && out[k] == in[k])) continue;
      c.AssumeNonNegative(AssumptionReason::kNotEmpty, pool.Sub(out[k], pool.Integer(1)), Facts{},
                          "size in a Reshape");
      continue;
    }
    if (out[k]->value() == 0 && !allow_zero) {
      if (k >= in.size()) return;
      out[k] = in[k];
    } else if (out[k]->value() == -1) {
      if (open) return;
      open = k;
    } else if (out[k]->value() < 0) {
      return;
    }
  }
  if (open) {
    out[*open] = pool.Integer(1);
    const Expr rest = Product(pool, out), total = Product(pool, in);
    if (rest->is_integer(0)) return;
    if (total->kind() == Kind::kInteger && rest->kind() == Kind::kInteger &&
        total->value() % rest->value() != 0) {
      return;
    }
    // A dimension on both sides cancels, even where it may be 0.
    out[*open] = total == rest ? pool.Integer(1) : pool.FloorDiv(total, rest, Facts{});
  }
  SetReshaped(c, std::move(out));
}

void OpFlatten(OpContext& c) {
  if (!c.Known(1)) return;
  const Shape& in = c.in(0).form.shape;
  const int64_t rank = static_cast<int64_t>(in.size());
  int64_t axis = c.Int("axis", 1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank) return;
  const absl::Span<const Expr> all(in);
  SetReshaped(c, {Product(c.pool(), all.subspan(0, axis)), Product(c.pool(), all.subspan(axis))});
}

void OpSqueeze(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& x = c.in(0);
  std::vector<int> dropped;
  if (c.has(1)) {
    const auto axes = c.ConstantInts(1);
    if (!axes) return;
    const auto normal = NormalAxes(*axes, x.rank());
    if (!normal) return;
    dropped = *normal;
    for (int axis : dropped) c.Unify(x.dim(axis), c.pool().Integer(1), "squeezed axis");
  } else {
    for (int k = 0; k < x.rank(); ++k) {
      // A symbolic dimension may be 1, so the rank of the result is unknown.
      if (x.dim(k)->kind() != Kind::kInteger) return;
      if (x.dim(k)->is_integer(1)) dropped.push_back(k);
    }
  }
  std::vector<bool> keep(x.rank(), true);
  for (int axis : dropped) keep[axis] = false;
  Shape out;
  for (int k = 0; k < x.rank(); ++k) {
    if (keep[k]) out.push_back(x.dim(k));
  }
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) {
    std::vector<Expr> own;
    own.reserve(static_cast<size_t>(x.rank()));
    size_t next = 0;
    for (int k = 0; k < x.rank(); ++k) own.push_back(keep[k] ? ix[next++] : c.pool().Integer(0));
    return c.engine().At(x, own, facts);
  });
}

void OpUnsqueeze(OpContext& c) {
  if (!c.Known(1)) return;
  const auto axes = c.ConstantInts(1);
  if (!axes) return;
  const Value& x = c.in(0);
  const int rank = x.rank() + static_cast<int>(axes->size());
  const auto added = NormalAxes(*axes, rank);
  if (!added) return;
  std::vector<bool> fresh(rank, false);
  for (int axis : *added) fresh[axis] = true;
  Shape out;
  for (int k = 0, next = 0; k < rank; ++k) {
    out.push_back(fresh[k] ? c.pool().Integer(1) : x.dim(next++));
  }
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) {
    std::vector<Expr> own;
    for (int k = 0; k < rank; ++k) {
      if (!fresh[k]) own.push_back(ix[k]);
    }
    return c.engine().At(x, own, facts);
  });
}

void OpExpand(OpContext& c) {
  if (!c.Known(1)) return;
  const auto target = c.Elements(1);
  if (!target) return;
  const Value& x = c.in(0);
  const Shape* const shapes[] = {&x.form.shape, &*target};
  auto out = c.Broadcast(shapes);
  if (!out) return;
  c.Set(0, *std::move(out),
        [&](Indices ix, const Facts& facts) { return c.AtBroadcast(x, ix, facts); });
}

void OpTile(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& x = c.in(0);
  const auto repeats = c.Elements(1);
  if (!repeats || static_cast<int>(repeats->size()) != x.rank()) return;
  Shape out;
  for (int k = 0; k < x.rank(); ++k) out.push_back(c.pool().Mul(x.dim(k), (*repeats)[k]));
  c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) {
    std::vector<Expr> own;
    for (int k = 0; k < x.rank(); ++k) {
      const bool once = (*repeats)[k]->is_integer(1);
      own.push_back(x.dim(k)->is_integer(1) ? c.pool().Integer(0)
                    : once                  ? ix[k]
                                            : c.pool().Mod(ix[k], x.dim(k), facts));
    }
    return c.engine().At(x, own, facts);
  });
}

void OpConstantOfShape(OpContext& c) {
  auto shape = c.Elements(0);
  if (!shape) return;
  Expr value = c.pool().Integer(0);
  if (const onnx::AttributeProto* attribute = FindAttribute(c.proto(), "value")) {
    const onnx::TensorProto& tensor = attribute->t();
    const auto count = NumElements(tensor);
    value = count.ok() && *count == 1 ? ConstantPattern(c.engine(), tensor) : nullptr;
  }
  c.Set(0, *std::move(shape), [&](Indices, const Facts&) { return value; });
}

void OpRange(OpContext& c) {
  Pool& pool = c.pool();
  const auto start = c.Elements(0), limit = c.Elements(1), delta = c.Elements(2);
  const bool scalars = start && limit && delta && start->size() == 1 && limit->size() == 1 &&
                       delta->size() == 1 && c.output(0) != kNoValue;
  const Expr step = scalars ? delta->front() : nullptr;
  const bool usable = scalars && step->kind() == Kind::kInteger && step->value() != 0 &&
                      step->value() != std::numeric_limits<int64_t>::min() &&
                      c.engine().IsIntegral(start->front()) &&
                      c.engine().IsIntegral(limit->front()) &&
                      c.engine().Exact(start->front(), c.type(0), Facts{}) != nullptr &&
                      c.engine().Exact(limit->front(), c.type(0), Facts{}) != nullptr;
  if (!usable) {
    if (c.output(0) != kNoValue) c.SetOpaque(0, {c.engine().OwnDim(c.output(0), 0)});
    return;
  }
  const int64_t stride = step->value();
  Expr span = pool.Sub(limit->front(), start->front());
  if (stride < 0) span = pool.Neg(span);
  const int64_t size = stride < 0 ? -stride : stride;
  // A length that the host gives is assumed not to be negative.
  Expr length = span;
  if (c.engine().DependsOnData(span) && c.engine().IsGivenByHost(span)) {
    c.AssumeNonNegative(AssumptionReason::kInside, span, Facts{}, "length of a Range");
  } else if (!c.engine().IsNonNegative(span, Facts{})) {
    length = pool.Max(span, pool.Integer(0), Facts{});
  }
  length = c.engine().StridedLength(length, size);
  if (length == nullptr) {
    c.SetOpaque(0, {c.engine().OwnDim(c.output(0), 0)});
    return;
  }
  c.Set(0, {length},
        [&](Indices ix, const Facts&) { return pool.Add(start->front(), pool.Mul(step, ix[0])); });
}

}  // namespace kvlift::sym::internal
