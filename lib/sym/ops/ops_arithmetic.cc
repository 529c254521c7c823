// Arithmetic of two operands. Integers are exact. Float numbers are combined only where they are
// constants, selects of constants, predicates or integers, and with the rounding of their type. All
// other float arithmetic is opaque.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "sym/forms/forms_engine.h"
#include "sym/forms/keeps_value.h"
#include "sym/ops/apply_elementwise.h"

namespace kvlift::sym::internal {
namespace {

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

// Returns true if v is put together of two tensors, perhaps behind Identity nodes: selected by a
// Where, new rows padded or joined with constants, or rows scattered into a tensor.
bool IsSelection(const Graph& graph, ValueId v) {
  NodeId n = graph.producer(v);
  while (n != kNoNode && graph.Is(n, "Identity")) n = graph.producer(graph.inputs(n)[0]);
  if (n == kNoNode) return false;
  constexpr std::array kJoining = {"Where",           "Pad",          "Concat", "ScatterND",
                                   "ScatterElements", "TensorScatter"};
  return std::any_of(kJoining.begin(), kJoining.end(),
                     [&](const char* op) { return graph.Is(n, op); });
}

// Returns true if the node is a product that is added to another product, to a product of matrices
// or to a selection, or subtracted from one, or it from the node: a blend, such as
// old * (1 - hot) + new * hot, Where(hot, 0, old) + new * hot, old * (1 - hot) + Pad(new), or
// score * seen - 10000 * (1 - seen).
bool IsPartOfBlend(OpContext& c) {
  const Graph& graph = c.engine().graph();
  if (c.op() != "Mul" || c.output(0) == kNoValue) return false;
  return SomeReader(graph, c.output(0), [&](NodeId reader) {
    const auto inputs = graph.inputs(reader);
    return (graph.Is(reader, "Add") || graph.Is(reader, "Sub")) &&
           std::all_of(inputs.begin(), inputs.end(),
                       [&](ValueId v) { return IsProduct(graph, v) || IsSelection(graph, v); });
  });
}

// Returns the loads; several of one tensor become one load of any element.
std::vector<Expr> OneForEachTensor(Pool& pool, absl::Span<const Expr> loads) {
  std::vector<Expr> found;
  for (Expr load : loads) {
    const auto same = std::find_if(found.begin(), found.end(),
                                   [&](Expr e) { return e->source() == load->source(); });
    if (same == found.end()) {
      found.push_back(load);
    } else if (*same != load) {
      const auto rank = static_cast<int>(load->args().size());
      *same = pool.Load(load->source(), AllIndices(pool, rank));
    }
  }
  return found;
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
  for (Expr x : OneForEachTensor(c.pool(), taken.finite)) {
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

}  // namespace kvlift::sym::internal
