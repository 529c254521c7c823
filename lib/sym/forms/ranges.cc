#include "sym/forms/ranges.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "ir/tensor_data.h"
#include "sym/expr/pool_impl.h"
#include "sym/forms/forms_engine.h"

namespace kvlift::sym::internal {
namespace {

using onnx::TensorProto;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Interval kAnything = {-kInfinity, kInfinity};

Interval Union(const Interval& a, const Interval& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

// Zero times an unknown bound is zero.
double Times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

Interval ProductOf(const Interval& a, const Interval& b) {
  const auto [low, high] = std::minmax(
      {Times(a.low, b.low), Times(a.low, b.high), Times(a.high, b.low), Times(a.high, b.high)});
  return {low, high};
}

// Operators whose results are some of the integers of their first operand.
bool Picks(std::string_view op) {
  constexpr std::string_view kNames[] = {
      "ReduceMax",      "ReduceMin", "Gather",    "GatherND",  "Slice",  "TopK",    "Reshape",
      "GatherElements", "Squeeze",   "Unsqueeze", "Transpose", "Expand", "Identity"};
  return std::find(std::begin(kNames), std::end(kNames), op) != std::end(kNames);
}

// Operators that sum their first operand, as where they count the ones of a mask.
bool Counts(std::string_view op) { return op == "CumSum" || op == "ReduceSum"; }

// Returns true if a sum of operator `node` runs along one axis only.
bool SumsOneAxis(const Graph& graph, NodeId node) {
  if (graph.Is(node, "CumSum")) return true;
  const auto inputs = graph.inputs(node);
  if (inputs.size() < 2 || inputs[1] == kNoValue) {
    return IntsAttribute(graph.node(node), "axes").size() == 1;
  }
  const TensorProto* axes = graph.constant(inputs[1]);
  const auto numbers = axes == nullptr ? absl::NotFoundError("") : ReadInts(*axes);
  return numbers.ok() && numbers->size() == 1;
}

// Operators whose results are indices or lengths, whatever they read.
bool Locates(std::string_view op) {
  constexpr std::string_view kNames[] = {"ArgMax", "ArgMin", "NonZero", "Shape", "Size"};
  return std::find(std::begin(kNames), std::end(kNames), op) != std::end(kNames);
}

Interval OfConstant(const TensorProto& tensor) {
  const auto ints = ReadInts(tensor);
  if (!ints.ok() || ints->empty()) return kAnything;
  const auto [low, high] = std::minmax_element(ints->begin(), ints->end());
  return {static_cast<double>(*low), static_cast<double>(*high)};
}

}  // namespace

Interval ExactIntegersOf(int32_t type) {
  switch (type) {
    case TensorProto::BOOL:
      return {0, 1};
    case TensorProto::INT4:
      return {-8, 7};
    case TensorProto::UINT4:
      return {0, 15};
    case TensorProto::INT8:
      return {-128, 127};
    case TensorProto::UINT8:
      return {0, 255};
    case TensorProto::INT16:
      return {-32768, 32767};
    case TensorProto::UINT16:
      return {0, 65535};
    case TensorProto::INT32:
      return {-0x1p31, 0x1p31 - 1};
    case TensorProto::UINT32:
      return {0, 0x1p32 - 1};
    case TensorProto::INT64:
      return {-0x1p62, 0x1p62};
    case TensorProto::UINT64:
      return {0, 0x1p63};
    case TensorProto::FLOAT16:
      return {-0x1p11, 0x1p11};
    case TensorProto::BFLOAT16:
      return {-0x1p8, 0x1p8};
    case TensorProto::FLOAT:
      return {-0x1p24, 0x1p24};
    case TensorProto::DOUBLE:
      return {-0x1p53, 0x1p53};
    default:
      return {0, 0};
  }
}

Interval Ranges::Of(Expr e, const Facts& facts) {
  Memo memo;
  return Visit(e, facts, &memo);
}

Interval Ranges::Visit(Expr e, const Facts& facts, Memo* memo) {
  if (const auto it = memo->find(e); it != memo->end()) return it->second;
  const Interval found = Compute(e, facts, memo);
  return (*memo)[e] = found;
}

Interval Ranges::Compute(Expr e, const Facts& facts, Memo* memo) {
  switch (e->kind()) {
    case Kind::kInteger:
      return {static_cast<double>(e->value()), static_cast<double>(e->value())};
    case Kind::kFloat:
      return {e->float_value(), e->float_value()};
    case Kind::kIndex: {
      const auto k = static_cast<size_t>(e->index());
      const Expr extent = k < facts.extents.size() ? facts.extents[k] : nullptr;
      if (extent == nullptr) return {0, most_elements_};
      return {0, std::max(0.0, Visit(extent, facts, memo).high - 1)};
    }
    case Kind::kDim:
      return {0, most_size_};
    case Kind::kLoad:
      return OfSource(e->source());
    case Kind::kFloorDiv: {
      const Interval n = Visit(e->args()[0], facts, memo), d = Visit(e->args()[1], facts, memo);
      if (d.low < 1) {
        const double most = std::max(std::abs(n.low), std::abs(n.high));
        return {-most - 1, most};
      }
      return {std::floor(n.low / (n.low < 0 ? d.low : d.high)),
              std::floor(n.high / (n.high < 0 ? d.high : d.low))};
    }
    case Kind::kLe:
    case Kind::kEq:
    case Kind::kNot:
    case Kind::kAnd:
      return {0, 1};
    case Kind::kSelect:
      return Union(Visit(e->args()[1], facts, memo), Visit(e->args()[2], facts, memo));
    case Kind::kApply:
      if (e->is_predicate()) return {0, 1};
      if (e->function() == "div" && e->args().size() == 2) {
        const Interval n = Visit(e->args()[0], facts, memo);
        const double most = std::max(std::abs(n.low), std::abs(n.high));
        return {-most, most};
      }
      return kAnything;
    case Kind::kSum:
      return OfSum(e, facts, memo);
  }
  return kAnything;
}

// A remainder n - d * (n div d) is recognised first: it is below d.
Interval Ranges::OfSum(Expr e, const Facts& facts, Memo* memo) {
  Pool& pool = engine_.pool();
  for (const Term& term : e->terms()) {
    for (Expr atom : term.atoms) {
      if (atom->kind() != Kind::kFloorDiv) continue;
      const Expr n = atom->args()[0], d = atom->args()[1];
      const Expr left = pool.Sub(e, pool.Sub(n, pool.Mul(d, atom)));
      if (ContainsNode(left, atom) || ContainsNode(n, atom)) continue;
      const Interval divisor = Visit(d, facts, memo), rest = Visit(left, facts, memo);
      if (divisor.low < 0) continue;
      return {rest.low, rest.high + std::max(0.0, divisor.high - 1)};
    }
  }
  Interval sum = {0, 0};
  for (const Term& term : e->terms()) {
    const Interval x = OfTerm(term, facts, memo);
    sum = {sum.low + x.low, sum.high + x.high};
  }
  return std::isnan(sum.low) || std::isnan(sum.high) ? kAnything : sum;
}

Interval Ranges::OfTerm(const Term& term, const Facts& facts, Memo* memo) {
  Interval product = {1, 1};
  bool extents = true;
  for (size_t k = 0; k < term.atoms.size(); ++k) {
    product = ProductOf(product, Visit(term.atoms[k], facts, memo));
    extents = extents && term.atoms[k]->kind() == Kind::kDim &&
              (k == 0 || term.atoms[k] != term.atoms[k - 1]);
  }
  if (extents) product.high = std::min(product.high, std::max(most_elements_, 1.0));
  const auto c = static_cast<double>(term.coefficient);
  return ProductOf({c, c}, product);
}

Interval Ranges::OfSource(ValueId v) {
  const auto [it, fresh] = sources_.try_emplace(v, kAnything);
  if (!fresh) return it->second;
  const Graph& graph = engine_.graph();
  const int32_t type = engine_.TypeOf(v);
  if (!IsIntegerType(type) && type != TensorProto::BOOL) return kAnything;
  const Interval all = ExactIntegersOf(type);
  const auto limited = [&](double most) {
    return Interval{std::max(all.low, -most), std::min(all.high, most)};
  };
  Interval found = type == TensorProto::INT64 ? kAnything : all;
  if (const TensorProto* tensor = graph.constant(v); tensor != nullptr) {
    found = OfConstant(*tensor);
  } else if (const NodeId n = graph.producer(v); n == kNoNode) {
    found = limited(most_size_);
  } else if (const std::string& op = graph.node(n).op_type();
             graph.Is(n, op) && !graph.inputs(n).empty() && graph.inputs(n)[0] != kNoValue) {
    const Form form = engine_.Of(graph.inputs(n)[0]).form;
    const Interval operand = form.known_rank ? Of(form.element, Facts{form.shape}) : kAnything;
    if (Locates(op) || (op == "TopK" && graph.output_index(v) == 1)) {
      found = {0, limited(most_size_).high};
    } else if (Picks(op)) {
      found = operand;
    } else if (Counts(op)) {
      found = OfCount(v, operand, limited(most_size_));
    }
  }
  return sources_[v] = found;
}

// A sum of at most `usual` in magnitude is assumed where the operand does not show it: a mask of
// the host counts its ones, but its declared type holds larger numbers.
Interval Ranges::OfCount(ValueId v, const Interval& operand, const Interval& usual) {
  const NodeId n = engine_.graph().producer(v);
  const double most = SumsOneAxis(engine_.graph(), n) ? most_size_ : most_elements_;
  const Interval sum = Union({0, 0}, ProductOf(operand, {most, most}));
  if (sum.Within(usual)) return sum;
  const Form form = engine_.Of(v).form;
  if (!operand.Within(usual) || !form.known_rank || !form.opaque ||
      !engine_.IsGivenByHost(form.element)) {
    return kAnything;
  }
  Pool& pool = engine_.pool();
  const Expr low = pool.Le(pool.Integer(static_cast<int64_t>(usual.low)), form.element, Facts{});
  const Expr high = pool.Le(form.element, pool.Integer(static_cast<int64_t>(usual.high)), Facts{});
  engine_.Assume(n, AssumptionReason::kSmall, pool.And(low, high), "a sum of integers");
  return usual;
}

}  // namespace kvlift::sym::internal
