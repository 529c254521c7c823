// Elementwise arithmetic, comparisons and logic. Integers are exact. Float numbers are combined
// only where they are constants, selects of constants, predicates or integers, and with the
// rounding of their type. All other float arithmetic is opaque.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sym/forms/forms_engine.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::sym::internal {
namespace {

using Leaf = std::function<Expr(absl::Span<const Expr>, const Facts&)>;

// Broadcasts the inputs and applies `leaf` to their elements, below the selects of these.
void Elementwise(OpContext& c, int inputs, const Leaf& leaf) {
  if (!c.Known(inputs)) return;
  std::vector<const Shape*> shapes;
  for (int k = 0; k < inputs; ++k) shapes.push_back(&c.in(k).form.shape);
  auto out = c.Broadcast(shapes);
  if (!out) return;
  c.Set(0, *std::move(out), [&](Indices ix, const Facts& facts) -> Expr {
    std::vector<Expr> xs;
    for (int k = 0; k < inputs; ++k) {
      xs.push_back(c.AtBroadcast(c.in(k), ix, facts));
      if (xs.back() == nullptr) return nullptr;
    }
    return c.engine().Lift(std::move(xs),
                           [&](absl::Span<const Expr> leaves) { return leaf(leaves, facts); });
  });
}

bool IsWideInteger(int32_t type) {
  return type == onnx::TensorProto::INT64 || type == onnx::TensorProto::INT32;
}

bool IsTruth(Expr e) { return e->is_predicate() && e->kind() != Kind::kInteger; }

double Fold(std::string_view op, double a, double b) {
  if (op == "Add") return a + b;
  if (op == "Sub") return a - b;
  if (op == "Mul") return a * b;
  return a / b;
}

// Assumptions about data that arithmetic has made.
struct Taken {
  // Real data times a predicate becomes a select instead of an opaque value.
  bool blend = false;
  std::vector<Expr> finite;  // real data that is assumed to be finite
  // Integers that are assumed to vanish beside the lowest half-precision number.
  std::vector<Expr> small;
};

// Applies one arithmetic operator to two operands without selects. Returns null if the result is
// opaque.
class Arithmetic {
 public:
  Arithmetic(OpContext& c, std::string_view op, int32_t type, const Facts& facts, Taken* taken)
      : engine_(c.engine()), pool_(c.pool()), op_(op), type_(type), facts_(facts), taken_(taken) {}

  Expr operator()(Expr a, Expr b) {
    if (const Expr e = Neutral(a, b)) return e;
    if (IsFloatType(type_)) {
      if (const auto x = Number(a), y = Number(b); x && y) {
        return pool_.Float(RoundTo(type_, Fold(op_, *x, *y)));
      }
    }
    if (const Expr e = Truths(a, b)) return e;
    if (const Expr e = Gated(a, b)) return e;
    if (const Expr e = Absorbed(a, b)) return e;
    if (!engine_.IsIntegral(a) || !engine_.IsIntegral(b)) return nullptr;
    if (IsFloatType(type_) && op_ == "Mul") {
      if (const Expr e = MaskTimes(a, b)) return e;
    }
    return Integers(a, b);
  }

 private:
  bool Is(std::string_view op) const { return op_ == op; }

  // Handles x + 0, x - 0, x * 1 and x / 1, also for real data. A negative zero may become positive.
  Expr Neutral(Expr a, Expr b) const {
    const bool additive = Is("Add") || Is("Sub");
    if (additive && b->is_integer(0)) return a;
    if (Is("Add") && a->is_integer(0)) return b;
    if (!additive && b->is_integer(1)) return a;
    if (Is("Mul") && a->is_integer(1)) return b;
    return nullptr;
  }

  // Handles a number so large that adding any 64-bit integer to it rounds back to it, such as the
  // lowest float32 of a mask.
  Expr Absorbed(Expr a, Expr b) {
    if (!Is("Add") && !Is("Sub")) return nullptr;
    const bool wide = type_ == onnx::TensorProto::FLOAT || type_ == onnx::TensorProto::DOUBLE ||
                      type_ == onnx::TensorProto::BFLOAT16;
    const auto big = [&](Expr e) {
      const auto x = Number(e);
      return x && std::abs(*x) >= 0x1p120 && wide;
    };
    if (big(a) && engine_.IsIntegral(b)) return a;
    if (IsHalfMinimum(a) && IsMask(b)) {
      taken_->small.push_back(b);
      return a;
    }
    if (IsHalfMinimum(b) && IsMask(a) && Is("Add")) {
      taken_->small.push_back(a);
      return b;
    }
    if (!big(b) || !engine_.IsIntegral(a)) return nullptr;
    return Is("Add") ? b : pool_.Float(-*Number(b));
  }

  bool IsHalfMinimum(Expr e) const {
    return type_ == onnx::TensorProto::FLOAT16 && e->is_integer(-65504);
  }

  // Returns true if e is an integer that the host gives.
  bool IsMask(Expr e) const {
    return e->kind() == Kind::kLoad && engine_.graph().is_graph_input(e->source()) &&
           engine_.IsIntegral(e);
  }

  // Handles operands that are predicates: the result is a select over their values 1 and 0. Returns
  // null if a case has no result.
  Expr Truths(Expr a, Expr b) {
    const bool pa = IsTruth(a), pb = IsTruth(b);
    if (Is("Mul") && pa && pb) return engine_.And(a, b);
    const bool split_a = pa && (Number(b) || pb || (Is("Mul") && engine_.IsIntegral(b)));
    const bool split_b = pb && (Number(a) || (Is("Mul") && engine_.IsIntegral(a)));
    if (!split_a && !split_b) return nullptr;
    const auto with = [&](int64_t truth) {
      const Expr t = pool_.Integer(truth);
      if (Is("Mul") && truth == 0 && !Number(split_a ? b : a)) return t;
      return split_a ? (*this)(t, b) : (*this)(a, t);
    };
    const Expr yes = with(1), no = with(0);
    if (yes == nullptr || no == nullptr) return nullptr;
    return engine_.Select(split_a ? a : b, yes, no);
  }

  // Handles x * predicate for real data x: 0 where the predicate is false, if x is finite.
  Expr Gated(Expr a, Expr b) {
    if (!taken_->blend || !Is("Mul")) return nullptr;
    if (IsTruth(a)) std::swap(a, b);
    if (!IsTruth(b) || a->kind() != Kind::kLoad) return nullptr;
    taken_->finite.push_back(a);
    return engine_.Select(b, a, pool_.Integer(0));
  }

  // Handles number * (1 - x) for an integer x of the data, which is 0 or 1 in a mask: the result is
  // known for these two values, and an uninterpreted product for all others.
  Expr MaskTimes(Expr a, Expr b) {
    if (!Number(a)) std::swap(a, b);
    const auto c = Number(a);
    if (!c || b->kind() != Kind::kSum) return nullptr;
    const Expr x = pool_.Sub(pool_.Integer(1), b);
    if (x->kind() != Kind::kLoad) return nullptr;
    const Expr other = pool_.Apply("mul", {a, b});
    const Expr zero = pool_.Eq(x, pool_.Integer(0), facts_);
    const Expr one = pool_.Eq(x, pool_.Integer(1), facts_);
    const Expr none = pool_.Float(RoundTo(type_, *c * 0.0));
    return engine_.Select(one, none, engine_.Select(zero, a, other));
  }

  Expr Integers(Expr a, Expr b) {
    if (Is("Add")) return pool_.Add(a, b);
    if (a->kind() == Kind::kFloat || b->kind() == Kind::kFloat) return nullptr;
    if (Is("Sub")) return pool_.Sub(a, b);
    if (Is("Mul")) return pool_.Mul(a, b);
    return IsFloatType(type_) ? nullptr : Truncating(a, b);
  }

  // Division of integers, which rounds towards zero.
  Expr Truncating(Expr a, Expr b) {
    if (a->kind() == Kind::kInteger && b->kind() == Kind::kInteger) {
      const bool defined = b->value() != 0 &&
                           !(a->value() == std::numeric_limits<int64_t>::min() && b->value() == -1);
      return defined ? pool_.Integer(a->value() / b->value()) : nullptr;
    }
    if (a == b) return pool_.Integer(1);
    // Division by 0 is undefined, so a dimension that divides may be taken to be positive.
    if (NonNegative(pool_, a, facts_) && NonNegative(pool_, b, facts_)) {
      return pool_.FloorDiv(a, b, facts_);
    }
    const Expr floor = pool_.FloorDiv(a, b, facts_);
    if (pool_.Mul(floor, b) == a) return floor;
    return pool_.Apply("div", {a, b});
  }

  Engine& engine_;
  Pool& pool_;
  std::string_view op_;
  int32_t type_;
  const Facts& facts_;
  Taken* taken_;
};

// Returns true if `is` holds for a node that reads v, also behind Identity nodes.
template <typename Is>
bool SomeReader(const Graph& graph, ValueId v, const Is& is) {
  for (std::vector<ValueId> open = {v}; !open.empty();) {
    const ValueId read = open.back();
    open.pop_back();
    for (const Use& use : graph.uses(read)) {
      if (use.kind != Use::Kind::kNodeInput) continue;
      if (graph.Is(use.node, "Identity")) {
        open.push_back(graph.outputs(use.node)[0]);
      } else if (is(use.node)) {
        return true;
      }
    }
  }
  return false;
}

// Returns true if v is a product, or a product of matrices behind nodes that arrange its elements.
bool IsProduct(const Graph& graph, ValueId v) {
  constexpr int kMostSteps = 8;
  bool arranged = false;
  for (int k = 0; k < kMostSteps && v != kNoValue; ++k) {
    const NodeId n = graph.producer(v);
    if (n == kNoNode) return false;
    if (graph.Is(n, "MatMul") || graph.Is(n, "Einsum") || graph.Is(n, "Gemm")) return true;
    if (graph.Is(n, "Mul")) return !arranged;
    const bool arranges = graph.Is(n, "Transpose") || graph.Is(n, "Reshape") ||
                          graph.Is(n, "Squeeze") || graph.Is(n, "Unsqueeze");
    if (!arranges && !graph.Is(n, "Identity")) return false;
    arranged |= arranges;
    v = graph.inputs(n)[0];
  }
  return false;
}

// Returns true if the node is a product that is added to another product, or to a product of
// matrices: a blend, such as old * (1 - hot) + new * hot.
bool IsPartOfBlend(OpContext& c) {
  const Graph& graph = c.engine().graph();
  if (c.op() != "Mul" || c.output(0) == kNoValue) return false;
  return SomeReader(graph, c.output(0), [&](NodeId reader) {
    const auto inputs = graph.inputs(reader);
    return graph.Is(reader, "Add") && std::all_of(inputs.begin(), inputs.end(),
                                                  [&](ValueId v) { return IsProduct(graph, v); });
  });
}

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
  if (order == Order::kEqual) return pool.Eq(a, b, facts);
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

void OpArithmetic(OpContext& c) {
  const int32_t type = c.type(0);
  if (!IsWideInteger(type) && !IsFloatType(type)) {
    return Elementwise(c, 2, [](absl::Span<const Expr>, const Facts&) { return nullptr; });
  }
  const std::string_view op = c.op();
  Taken taken;
  taken.blend = IsFloatType(type) && IsPartOfBlend(c);
  Elementwise(c, 2, [&](absl::Span<const Expr> x, const Facts& facts) -> Expr {
    if (op != "Mod") {
      return c.engine().Exact(Arithmetic(c, op, type, facts, &taken)(x[0], x[1]), type, facts);
    }
    const bool integers = IsWideInteger(type) && c.engine().IsIntegral(x[0]) &&
                          c.engine().IsIntegral(x[1]) && !x[1]->is_integer(0);
    if (!integers) return nullptr;
    if (c.Int("fmod", 0) == 0) return c.pool().Mod(x[0], x[1], facts);
    const bool same = NonNegative(c.pool(), x[0], facts) && NonNegative(c.pool(), x[1], facts);
    return same ? c.pool().Mod(x[0], x[1], facts) : nullptr;
  });
  for (Expr x : taken.finite) {
    c.Assume(AssumptionReason::kFinite, c.pool().Apply("finite", {x}), "a product with 0 is 0");
  }
  constexpr int64_t kUnnoticed = 15;  // less than half of the last digit of 65504
  const Expr bound = c.pool().Integer(kUnnoticed);
  for (Expr x : taken.small) {
    const Expr low = c.pool().Le(c.pool().Neg(bound), x, Facts{});
    const Expr high = c.pool().Le(x, bound, Facts{});
    c.Assume(AssumptionReason::kSmall, c.pool().And(low, high),
             "the lowest half-precision number plus a mask");
  }
}

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
