// Reductions, CumSum and Einsum. Their elements are known only where they move data or count
// elements.
#include <algorithm>
#include <cmath>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "ir/operators/einsum_equation.h"
#include "sym/forms/forms_engine.h"
#include "sym/forms/scatter_inverse.h"
#include "sym/ops/one_hot.h"

namespace kvlift::sym::internal {
namespace {

bool IsReduced(absl::Span<const int> axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

Shape Reduced(Pool& pool, const Shape& shape, absl::Span<const int> axes, bool keep) {
  Shape out;
  for (int k = 0; k < static_cast<int>(shape.size()); ++k) {
    if (!IsReduced(axes, k)) {
      out.push_back(shape[k]);
    } else if (keep) {
      out.push_back(pool.Integer(1));
    }
  }
  return out;
}

// Sets the product, sum or extremum of a small integer vector, as in arithmetic on shapes. Returns
// false if the input is not such a vector.
bool ReduceVector(OpContext& c) {
  const Value& x = c.in(0);
  const bool integers = x.type == onnx::TensorProto::INT64 || x.type == onnx::TensorProto::INT32;
  const std::string& op = c.op();
  if (!integers || x.rank() != 1 || !x.elements || x.elements->empty()) return false;
  if (op != "ReduceProd" && op != "ReduceSum" && op != "ReduceMax" && op != "ReduceMin")
    return false;
  Pool& pool = c.pool();
  Expr result = x.elements->front();
  for (size_t k = 1; k < x.elements->size(); ++k) {
    const std::vector<Expr> pair{result, (*x.elements)[k]};
    result = c.engine().Lift(pair, [&](absl::Span<const Expr> y) -> Expr {
      if (op == "ReduceProd") return pool.Mul(y[0], y[1]);
      if (op == "ReduceSum") return pool.Add(y[0], y[1]);
      if (op == "ReduceMax") return pool.Max(y[0], y[1], Facts{});
      if (op == "ReduceMin") return pool.Min(y[0], y[1], Facts{});
      return nullptr;
    });
    result = c.engine().Exact(result, x.type, Facts{});
    if (result == nullptr) return false;
  }
  c.SetElements(0, c.Int("keepdims", 1) == 0, {result});
  return true;
}

// The indices of reduced axes are numbered from here on.
constexpr int kReducedBase = kUpdateBase;

// Returns (a*0 + b) + (a*1 + b) + ..., with n summands.
Expr SumOf(Pool& pool, int64_t a, Expr b, Expr n) {
  const Expr pairs = pool.Mul(n, pool.Sub(n, pool.Integer(1)));
  // One of n and n - 1 is even.
  const Expr half = pool.FloorDiv(pool.Mul(pool.Integer(a), pairs), pool.Integer(2), Facts{});
  return pool.Add(half, pool.Mul(n, b));
}

bool CountsExactly(int32_t type) {
  return type == onnx::TensorProto::INT64 || type == onnx::TensorProto::INT32 ||
         type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE;
}

// Returns true if machine arithmetic adds that many of these numbers without rounding and without
// overflow.
bool SumIsExact(OpContext& c, Expr e, Expr extent, const Facts& facts) {
  if (!c.engine().IsIntegral(e)) return false;
  const Interval x = c.engine().RangeOf(e, facts), n = c.engine().RangeOf(extent, Facts{});
  const double most = std::max(std::abs(x.low), std::abs(x.high)) * std::max(n.high, 1.0);
  return Interval{-most, most}.Within(ExactIntegersOf(c.type(0)));
}

// Returns e reduced over 0 <= index < extent; null if that has no closed form.
Expr ReduceOne(OpContext& c, const std::string& op, Expr e, int index, Expr extent,
               const Facts& facts) {
  Pool& pool = c.pool();
  Engine& engine = c.engine();
  if (e->kind() == Kind::kSelect && !ContainsIndex(e->args()[0], index)) {
    const Expr yes = ReduceOne(c, op, e->args()[1], index, extent, facts);
    const Expr no = yes == nullptr ? nullptr : ReduceOne(c, op, e->args()[2], index, extent, facts);
    return no == nullptr ? nullptr : engine.Select(e->args()[0], yes, no);
  }
  const bool extremum = op == "ReduceMax" || op == "ReduceMin";
  if (extremum || op == "ReduceMean") {
    const Expr last = pool.Sub(extent, pool.Integer(1));
    const bool same = !ContainsIndex(e, index);
    const auto linear =
        engine.IsIntegral(e) ? LinearIn(pool, e, pool.Index(index)) : std::optional<Linear>();
    if (!same && (!extremum || !linear)) return nullptr;
    if (op == "ReduceMean" && !SumIsExact(c, e, extent, facts)) return nullptr;
    c.AssumeNonNegative(AssumptionReason::kNotEmpty, last, Facts{}, "length of a reduced axis");
    if (same) return e;
    const bool at_last = (linear->coefficient > 0) == (op == "ReduceMax");
    const Expr far = pool.Mul(pool.Integer(linear->coefficient), last);
    return at_last ? pool.Add(linear->rest, far) : linear->rest;
  }
  if (op != "ReduceSum" || !CountsExactly(c.type(0)) || !SumIsExact(c, e, extent, facts)) {
    return nullptr;
  }
  if (e->is_predicate() && e->kind() != Kind::kInteger) return nullptr;
  const auto linear = LinearIn(pool, e, pool.Index(index));
  return linear ? SumOf(pool, linear->coefficient, linear->rest, extent) : nullptr;
}

// Returns the reduction of an element over Index(kUpdateBase), if the tensor or its complement is
// one-hot along that axis. The sum and the maximum of a one-hot tensor are 1 where it holds a 1.
// The minimum and the product of the complement are 1 where the one-hot tensor holds none. Returns
// null if neither tensor is one-hot, or if another operator reduces it. `out` is the shape of the
// result.
Expr ReducedOneHot(OpContext& c, Expr element, const Shape& out, Expr extent) {
  const std::string& op = c.op();
  const bool any = (op == "ReduceSum" && CountsExactly(c.type(0))) || op == "ReduceMax";
  const bool none = op == "ReduceMin" || op == "ReduceProd";
  if (!any && !none) return nullptr;
  if (none) element = OneWhereZero(c.pool(), element);
  const auto found = FindPlaceOfOne(c, element, out, extent);
  if (!found) return nullptr;
  if (op == "ReduceMax" || op == "ReduceMin") {
    c.AssumeNonNegative(AssumptionReason::kNotEmpty, c.pool().Sub(extent, c.pool().Integer(1)),
                        Facts{}, "length of a reduced axis");
  }
  return any ? found->condition : c.pool().Not(found->condition);
}

}  // namespace

// The axes are input 1 or an attribute. Without them all axes are reduced, or no axis with
// noop_with_empty_axes.
void OpReduce(OpContext& c) {
  if (!c.Known(1)) return;
  const Shape& shape = c.in(0).form.shape;
  const int rank = static_cast<int>(shape.size());
  std::vector<int64_t> axes = IntsAttribute(c.proto(), "axes");
  if (c.has(1)) {
    const auto given = c.ConstantInts(1);
    if (!given) return;
    axes = *given;
  }
  if (axes.empty()) {
    if (c.Int("noop_with_empty_axes", 0) != 0) return c.SetOpaque(0, shape);
    for (int k = 0; k < rank; ++k) axes.push_back(k);
  }
  const auto normal = NormalAxes(axes, rank);
  if (!normal) return;
  if (ReduceVector(c)) return;
  Shape out = Reduced(c.pool(), shape, *normal, c.Int("keepdims", 1) != 0);
  const std::string& op = c.op();
  const bool keep = c.Int("keepdims", 1) != 0;
  c.Set(0, out, [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> own;
    size_t next = 0;
    for (int k = 0; k < rank; ++k) {
      const bool reduced = IsReduced(*normal, k);
      if (!reduced) {
        own.push_back(ix[next]);
      } else {
        own.push_back(c.pool().Integer(0));
        if (!shape[k]->is_integer(1)) own.back() = c.pool().Index(kReducedBase + k);
      }
      if (!reduced || keep) ++next;
    }
    Facts all = facts;
    all.extents.resize(kReducedBase + rank, nullptr);
    for (int axis : *normal) all.extents[kReducedBase + axis] = shape[axis];
    Expr e = c.engine().At(c.in(0), own, all);
    if (normal->size() == 1 && e != nullptr) {
      Pool::Substitution s;
      s.indices.assign(kReducedBase + rank, nullptr);
      s.indices[kReducedBase + normal->front()] = c.pool().Index(kUpdateBase);
      const Expr row = c.pool().Substitute(e, s, all);
      if (const Expr any = ReducedOneHot(c, row, out, shape[normal->front()])) return any;
    }
    if (!std::all_of(normal->begin(), normal->end(),
                     [&](int axis) { return shape[axis]->is_integer(1); })) {
      for (int axis : *normal) {
        if (e == nullptr || shape[axis]->is_integer(1)) continue;
        e = ReduceOne(c, op, e, kReducedBase + axis, shape[axis], all);
      }
      return e;
    }
    // A reduction over axes of extent 1 changes nothing.
    const bool plain = op == "ReduceSum" || op == "ReduceMean" || op == "ReduceMax" ||
                       op == "ReduceMin" || op == "ReduceProd";
    return plain ? e : nullptr;
  });
}

void OpGlobalPool(OpContext& c) {
  if (!c.Known(1)) return;
  Shape shape = c.in(0).form.shape;
  for (size_t k = 2; k < shape.size(); ++k) shape[k] = c.pool().Integer(1);
  c.SetOpaque(0, std::move(shape));
}

// CumSum has a closed form for elements a * i + b along the axis. Other sums are opaque.
void OpCumSum(OpContext& c) {
  if (!c.Known(1)) return;
  const Value& x = c.in(0);
  const auto given = c.ConstantInts(1);
  const auto axis =
      given && given->size() == 1 ? NormalAxis(given->front(), x.rank()) : std::nullopt;
  if (!axis || !CountsExactly(c.type(0))) return c.SetOpaque(0, x.form.shape);
  const bool exclusive = c.Int("exclusive", 0) != 0, reverse = c.Int("reverse", 0) != 0;
  Pool& pool = c.pool();
  c.Set(0, x.form.shape, [&](Indices ix, const Facts& facts) -> Expr {
    const Expr element = c.engine().At(x, AllIndices(pool, x.rank()), FactsOf(x.form.shape));
    const bool usable = c.engine().IsIntegral(element) && element->kind() != Kind::kSelect &&
                        (!element->is_predicate() || element->kind() == Kind::kInteger);
    const auto linear =
        usable ? LinearIn(pool, element, pool.Index(*axis)) : std::optional<Linear>();
    if (!linear || !SumIsExact(c, element, x.dim(*axis), FactsOf(x.form.shape))) return nullptr;
    std::vector<Expr> own(ix.begin(), ix.end());
    own[*axis] = nullptr;
    Pool::Substitution s;
    s.indices = own;
    const Expr rest = pool.Substitute(linear->rest, s, facts);
    // How many of the first elements are summed or, in reverse, left out of the sum.
    const Expr count = pool.Add(ix[*axis], pool.Integer(exclusive == reverse ? 1 : 0));
    const Expr sum = SumOf(pool, linear->coefficient, rest, count);
    return reverse ? pool.Sub(SumOf(pool, linear->coefficient, rest, x.dim(*axis)), sum) : sum;
  });
}

void OpArgReduce(OpContext& c) {
  if (!c.Known(1)) return;
  const Shape& shape = c.in(0).form.shape;
  const auto axis = NormalAxis(c.Int("axis", 0), static_cast<int>(shape.size()));
  if (!axis) return;
  c.SetOpaque(0, Reduced(c.pool(), shape, {&*axis, 1}, c.Int("keepdims", 1) != 0));
}

namespace {

bool IsPermutation(std::string from, std::string to) {
  std::sort(from.begin(), from.end());
  std::sort(to.begin(), to.end());
  return from == to && std::adjacent_find(from.begin(), from.end()) == from.end();
}

}  // namespace

namespace {

// Calls SetRowsOfOneHot for an Einsum of two operands that sums over one label.
bool SetRowsOfOneHotEinsum(OpContext& c, absl::Span<const std::string> terms,
                           const std::string& result, const Shape& shape) {
  std::string summed;
  for (char label : terms[0]) {
    const bool both = terms[1].find(label) != std::string::npos;
    if (result.find(label) == std::string::npos && !both) return false;
    if (result.find(label) == std::string::npos) summed += label;
  }
  const bool once = std::all_of(terms.begin(), terms.end(), [](std::string term) {
    std::sort(term.begin(), term.end());
    return std::adjacent_find(term.begin(), term.end()) == term.end();
  });
  const auto is_known = [&](char label) {
    return label == summed[0] || result.find(label) != std::string::npos;
  };
  if (summed.size() != 1 || !once || !std::all_of(terms[1].begin(), terms[1].end(), is_known)) {
    return false;
  }
  const auto indices = [&](int operand, Expr along) {
    std::vector<Expr> own;
    for (char label : terms[operand]) {
      const bool one = c.in(operand).dim(static_cast<int>(own.size()))->is_integer(1);
      const auto place = static_cast<int>(result.find(label));
      own.push_back(label == summed[0] ? along : one ? c.pool().Integer(0) : c.pool().Index(place));
    }
    return own;
  };
  const Expr extent = c.in(0).dim(static_cast<int>(terms[0].find(summed[0])));
  return SetRowsOfOneHot(c, shape, extent, indices);
}

}  // namespace

void OpEinsum(OpContext& c) {
  const int n = c.num_inputs();
  if (n == 0 || !c.Known(n)) return;
  std::vector<size_t> ranks;
  ranks.reserve(static_cast<size_t>(n));
  for (int k = 0; k < n; ++k) ranks.push_back(c.in(k).form.shape.size());
  const auto equation = ReadEinsumEquation(StringAttribute(c.proto(), "equation", ""), ranks);
  if (!equation) return;
  const std::vector<std::string>& terms = equation->operands;
  absl::flat_hash_map<char, Expr> dims;
  for (int k = 0; k < n; ++k) {
    const Shape& shape = c.in(k).form.shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const auto [it, fresh] = dims.try_emplace(terms[k][axis], shape[axis]);
      if (fresh || shape[axis]->is_integer(1)) continue;
      it->second =
          it->second->is_integer(1) ? shape[axis] : c.Unify(it->second, shape[axis], "Einsum");
    }
  }
  Shape out;
  for (char label : equation->result) {
    const auto it = dims.find(label);
    if (it == dims.end()) return;
    out.push_back(it->second);
  }
  if (n == 1 && IsPermutation(terms[0], equation->result)) {
    const std::string& labels = equation->result;
    return c.Set(0, std::move(out), [&](Indices ix, const Facts& facts) {
      std::vector<Expr> own;
      for (char label : terms[0]) own.push_back(ix[labels.find(label)]);
      return c.engine().At(c.in(0), own, facts);
    });
  }
  if (n == 2 && SetRowsOfOneHotEinsum(c, terms, equation->result, out)) return;
  c.SetOpaque(0, std::move(out));
}

}  // namespace kvlift::sym::internal
