// Elementwise comparisons, logic, casts and operators of one operand.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sym/forms/forms_engine.h"
#include "sym/forms/keeps_value.h"
#include "sym/ops/apply_elementwise.h"

namespace kvlift::sym::internal {

namespace {

enum class Order { kLess, kLessEqual, kEqual };

bool Holds(Order order, double a, double b) {
  switch (order) {
    case Order::kLess:
      return a < b;
    case Order::kLessEqual:
      return a <= b;
    case Order::kEqual:
      return a == b;
  }
  return false;
}

Expr Compare(OpContext& c, Order order, Expr a, Expr b, const Facts& facts);

// Compares an integer with a number that is not an integer.
Expr CompareFraction(OpContext& c, Order order, Expr a, Expr b, const Facts& facts) {
  Pool& pool = c.pool();
  const bool left = a->kind() == Kind::kFloat;
  const double x = left ? a->float_value() : b->float_value();
  if (order == Order::kEqual || std::isnan(x)) return pool.False();
  if (std::abs(x) > 9e18) {
    const bool holds = left ? x < 0 : x > 0;
    return holds ? pool.True() : pool.False();
  }
  // No integer equals x, so < and <= have the same result.
  if (left) {
    const Expr low = pool.Integer(static_cast<int64_t>(std::ceil(x)));
    return pool.Le(low, b, facts);
  }
  return pool.Le(a, pool.Integer(static_cast<int64_t>(std::floor(x))), facts);
}

Expr Compare(OpContext& c, Order order, Expr a, Expr b, const Facts& facts) {
  Engine& engine = c.engine();
  Pool& pool = c.pool();
  if (const auto x = Number(a), y = Number(b); x && y) {
    if (a->kind() == Kind::kInteger && b->kind() == Kind::kInteger) {
      const int64_t i = a->value(), j = b->value();
      const bool holds = order == Order::kEqual ? i == j : order == Order::kLess ? i < j : i <= j;
      return pool.Integer(holds);
    }
    return pool.Integer(Holds(order, *x, *y));
  }
  if (IsTruth(a) && (Number(b) || IsTruth(b))) {
    const Expr yes = Compare(c, order, pool.Integer(1), b, facts);
    const Expr no = Compare(c, order, pool.Integer(0), b, facts);
    return engine.Select(a, yes, no);
  }
  if (IsTruth(b) && Number(a)) {
    const Expr yes = Compare(c, order, a, pool.Integer(1), facts);
    const Expr no = Compare(c, order, a, pool.Integer(0), facts);
    return engine.Select(b, yes, no);
  }
  if (!engine.IsIntegral(a) || !engine.IsIntegral(b)) {
    const bool fraction_a = a->kind() == Kind::kFloat && engine.IsIntegral(b);
    const bool fraction_b = b->kind() == Kind::kFloat && engine.IsIntegral(a);
    if (fraction_a || fraction_b) return CompareFraction(c, order, a, b, facts);
    const bool number = a->kind() == Kind::kInteger || b->kind() == Kind::kInteger;
    const bool load = a->kind() == Kind::kLoad || b->kind() == Kind::kLoad;
    // Real data may be compared with an integer for equality only, which needs no order of the
    // reals.
    if (order == Order::kEqual && number && load) return pool.Eq(a, b, facts);
    return nullptr;
  }
  if (order == Order::kEqual) {
    // An extent is not the -1 that stands for one to be inferred.
    const auto is_below = [&](Expr number, Expr x) {
      return number->kind() == Kind::kInteger && number->value() < 0 &&
             engine.IsNonNegative(x, facts);
    };
    if (is_below(a, b) || is_below(b, a)) return pool.False();
    return pool.Eq(a, b, facts);
  }
  return order == Order::kLess ? pool.Lt(a, b, facts) : pool.Le(a, b, facts);
}

Expr Trunc(Expr x, Pool& pool) {
  const auto number = Number(x);
  if (!number) return pool.Apply("trunc", {x});
  if (std::isnan(*number) || std::abs(*number) > 9.2e18) return nullptr;
  return pool.Integer(static_cast<int64_t>(std::trunc(*number)));
}

bool HoldsNumbers(int32_t float_type) {
  return float_type == onnx::TensorProto::FLOAT16 || float_type == onnx::TensorProto::BFLOAT16 ||
         float_type == onnx::TensorProto::FLOAT || float_type == onnx::TensorProto::DOUBLE;
}

// Returns true if the cast keeps the value of real data: the type that the data was computed in or
// whose numbers it holds, or the type that it has now, fits into the result's.
bool KeepsReal(Engine& engine, Expr x, int32_t from, int32_t to) {
  if (CastFidelity(from, to) == Fidelity::kExact) return true;
  return x->kind() == Kind::kLoad &&
         CastFidelity(engine.NumbersOf(x->source()).type, to) == Fidelity::kExact;
}

// Returns x, an integer that the host gives, with the assumption that it is small enough for the
// float type `to`. Returns null for other expressions.
Expr SmallEnough(OpContext& c, Expr x, int32_t to) {
  const bool given = x->kind() == Kind::kLoad && c.engine().graph().is_graph_input(x->source());
  if (!given || !IsFloatType(to)) return nullptr;
  Pool& pool = c.pool();
  const Expr most = pool.Integer(static_cast<int64_t>(ExactIntegersOf(to).high));
  const Expr low = pool.Le(pool.Neg(most), x, Facts{}), high = pool.Le(x, most, Facts{});
  c.Assume(AssumptionReason::kSmall, pool.And(low, high), "an integer in half precision");
  return x;
}

Expr CastLeaf(OpContext& c, Expr x, int32_t from, int32_t to, const Facts& facts) {
  Engine& engine = c.engine();
  Pool& pool = c.pool();
  if (to == onnx::TensorProto::BOOL) return engine.AsPredicate(x);
  if (from == onnx::TensorProto::BOOL) x = engine.AsPredicate(x);
  const bool to_real = IsFloatType(to);
  if (to_real ? !HoldsNumbers(to) : !IsIntegerType(to)) return nullptr;
  if (const auto number = Number(x); number && to_real) return pool.Float(RoundTo(to, *number));
  if (!engine.IsIntegral(x)) {
    if (to_real) return KeepsReal(engine, x, from, to) ? x : nullptr;
    // A constant is truncated. What other numbers become beyond the range is undefined, so data is
    // only converted to the widest type.
    if (!Number(x) && to != onnx::TensorProto::INT64) return nullptr;
    x = Trunc(x, pool);
    if (x == nullptr || x->kind() != Kind::kInteger) return x;
  }
  const bool fits = x->is_predicate() || engine.RangeOf(x, facts).Within(ExactIntegersOf(to));
  return fits ? x : SmallEnough(c, x, to);
}

}  // namespace
void OpCompare(OpContext& c) {
  const std::string& op = c.op();
  const bool swapped = op.substr(0, 7) == "Greater";
  const Order order = op == "Equal"                             ? Order::kEqual
                      : op.find("OrEqual") != std::string::npos ? Order::kLessEqual
                                                                : Order::kLess;
  Elementwise(c, 2, [&](absl::Span<const Expr> x, const Facts& facts) {
    return Compare(c, order, x[swapped ? 1 : 0], x[swapped ? 0 : 1], facts);
  });
}

void OpLogic(OpContext& c) {
  Elementwise(c, 2, [&](absl::Span<const Expr> x, const Facts&) {
    const Expr p = c.engine().AsPredicate(x[0]), q = c.engine().AsPredicate(x[1]);
    if (c.op() == "And") return c.engine().And(p, q);
    if (c.op() == "Or") return c.engine().Or(p, q);
    return c.engine().Select(p, c.pool().Not(q), q);
  });
}

void OpNot(OpContext& c) {
  Elementwise(c, 1, [&](absl::Span<const Expr> x, const Facts&) {
    return c.pool().Not(c.engine().AsPredicate(x[0]));
  });
}

void OpWhere(OpContext& c) {
  if (!c.Known(3)) return;
  const Shape* const shapes[] = {&c.in(0).form.shape, &c.in(1).form.shape, &c.in(2).form.shape};
  auto out = c.Broadcast(shapes);
  if (!out) return;
  c.Set(0, *std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    Expr x[3];
    for (int k = 0; k < 3; ++k) {
      x[k] = c.AtBroadcast(c.in(k), ix, facts);
      if (x[k] == nullptr) return nullptr;
    }
    return c.engine().Select(x[0], x[1], x[2]);
  });
}

void OpCast(OpContext& c) {
  if (!c.Known(1) || c.output(0) == kNoValue) return;
  const int32_t from = c.type(0), to = c.engine().TypeOf(c.output(0));
  if (from == to && from != 0) return c.Copy(0, 0);
  Elementwise(c, 1, [&](absl::Span<const Expr> x, const Facts& facts) {
    return CastLeaf(c, x[0], from, to, facts);
  });
}

void OpNegate(OpContext& c) {
  const int32_t type = c.type(0);
  Elementwise(c, 1, [&](absl::Span<const Expr> x, const Facts& facts) -> Expr {
    Pool& pool = c.pool();
    Engine& engine = c.engine();
    const auto number = Number(x[0]);
    if (!IsWideInteger(type) && !IsFloatType(type)) return nullptr;
    const std::string& op = c.op();
    if (op == "Neg") {
      if (x[0]->kind() == Kind::kInteger) return engine.Exact(pool.Neg(x[0]), type, facts);
      if (number) return pool.Float(-*number);
      if (IsTruth(x[0])) return engine.Select(x[0], pool.Integer(-1), pool.Integer(0));
      return engine.IsIntegral(x[0]) ? engine.Exact(pool.Neg(x[0]), type, facts) : nullptr;
    }
    if (op == "Abs") {
      if (x[0]->kind() == Kind::kInteger) return x[0]->value() < 0 ? pool.Neg(x[0]) : x[0];
      if (number) return pool.Float(std::abs(*number));
      if (!engine.IsIntegral(x[0])) return nullptr;
      if (NonNegative(pool, x[0], facts)) return x[0];
      return engine.Exact(pool.Max(x[0], pool.Neg(x[0]), facts), type, facts);
    }
    if (op == "Sign") {
      if (number) return pool.Integer((*number > 0) - (*number < 0));
      if (!engine.IsIntegral(x[0])) return nullptr;
      const Expr zero = pool.Integer(0);
      return engine.Select(pool.Lt(zero, x[0], facts), pool.Integer(1),
                           engine.Select(pool.Lt(x[0], zero, facts), pool.Integer(-1), zero));
    }
    // The operator is Floor, Ceil or Round.
    return engine.IsIntegral(x[0]) ? x[0] : nullptr;
  });
}

// The logarithms of 0 and 1 are exact in every type; those of other numbers are opaque.
void OpLog(OpContext& c) {
  Elementwise(c, 1, [&](absl::Span<const Expr> x, const Facts&) -> Expr {
    const Expr low = c.pool().Float(-std::numeric_limits<double>::infinity());
    const Expr zero = c.pool().Integer(0);
    if (IsTruth(x[0])) return c.engine().Select(x[0], zero, low);
    if (x[0]->is_integer(0)) return low;
    return x[0]->is_integer(1) ? zero : nullptr;
  });
}

namespace {

Expr MinOrMax(OpContext& c, bool max, Expr a, Expr b, const Facts& facts) {
  const auto x = Number(a), y = Number(b);
  if (x && y) {
    if (std::isnan(*x) || std::isnan(*y)) return std::isnan(*x) ? a : b;
    return (max ? *x >= *y : *x <= *y) ? a : b;
  }
  if (x || y) {
    // A bound beyond all numbers that the other operand can be, such as 10^9 for a position.
    const Interval left = c.engine().RangeOf(a, facts), right = c.engine().RangeOf(b, facts);
    if (left.high < right.low) return max ? b : a;
    if (right.high < left.low) return max ? a : b;
  }
  const Expr a_first = Compare(c, Order::kLessEqual, a, b, facts);
  if (a_first == nullptr) return nullptr;
  return max ? c.engine().Select(a_first, b, a) : c.engine().Select(a_first, a, b);
}

}  // namespace

void OpMinMax(OpContext& c) {
  const int n = c.num_inputs();
  if (n == 0) return;
  const bool max = c.op() == "Max";
  Elementwise(c, n, [&](absl::Span<const Expr> x, const Facts& facts) {
    Expr result = x[0];
    for (size_t k = 1; k < x.size() && result != nullptr; ++k) {
      result = c.engine().Lift({result, x[k]}, [&](absl::Span<const Expr> y) {
        return MinOrMax(c, max, y[0], y[1], facts);
      });
    }
    return result;
  });
}

void OpClip(OpContext& c) {
  if (!c.Known(1)) return;
  Expr bounds[2] = {nullptr, nullptr};
  for (int k = 0; k < 2; ++k) {
    if (!c.has(k + 1)) continue;
    const auto value = c.Elements(k + 1);
    if (!value || value->size() != 1) return c.SetOpaque(0, c.in(0).form.shape);
    bounds[k] = value->front();
  }
  Elementwise(c, 1, [&](absl::Span<const Expr> x, const Facts& facts) {
    Expr result = x[0];
    for (int k = 0; k < 2 && result != nullptr; ++k) {
      if (bounds[k] == nullptr) continue;
      result = c.engine().Lift({result, bounds[k]}, [&](absl::Span<const Expr> y) {
        return MinOrMax(c, k == 0, y[0], y[1], facts);
      });
    }
    return result;
  });
}

}  // namespace kvlift::sym::internal
