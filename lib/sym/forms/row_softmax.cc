#include "sym/forms/row_softmax.h"

#include <vector>

#include "ir/graph.h"
#include "onnx/onnx_pb.h"
#include "sym/forms/broadcast.h"
#include "sym/forms/keeps_value.h"

namespace kvlift::sym {
namespace {

// Returns the only axis that a reduction takes, by its attribute or its operand; nullopt if there
// are others or it is not known.
std::optional<int64_t> OnlyAxis(Forms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  for (const auto& attribute : graph.node(node).attribute()) {
    if (attribute.name() != "axes") continue;
    return attribute.ints_size() == 1 ? std::optional<int64_t>(attribute.ints(0)) : std::nullopt;
  }
  if (graph.inputs(node).size() < 2 || graph.inputs(node)[1] == kNoValue) return std::nullopt;
  const auto axes = forms.Elements(graph.inputs(node)[1]);
  if (!axes || axes->size() != 1 || (*axes)[0]->kind() != Kind::kInteger) return std::nullopt;
  return (*axes)[0]->value();
}

// Returns the value that `node` reduces over its last axis; kNoValue if it is not such a node.
ValueId ReducedRows(Forms& forms, NodeId node, std::string_view op) {
  const Graph& graph = forms.graph();
  if (node == kNoNode || !graph.Is(node, op) || graph.inputs(node).empty()) return kNoValue;
  const ValueId rows = BehindIdentity(graph, graph.inputs(node)[0]);
  const Form& form = forms.Of(rows);
  const auto axis = OnlyAxis(forms, node);
  if (!form.known_rank || !axis) return kNoValue;
  const auto rank = static_cast<int64_t>(form.shape.size());
  return *axis == -1 || *axis == rank - 1 ? rows : kNoValue;
}

// Returns true if `element` is the sum of the row of `rows` that holds the element at `at`.
bool IsSumOfRow(Forms& forms, Expr element, ValueId rows, absl::Span<const Expr> at) {
  if (element == nullptr || element->kind() != Kind::kLoad) return false;
  const NodeId node = forms.graph().producer(element->source());
  if (ReducedRows(forms, node, "ReduceSum") != rows) return false;
  const Form& form = forms.Of(rows);
  const bool keeps = IntAttribute(forms.graph().node(node), "keepdims", 1) != 0;
  if (at.size() != form.shape.size()) return false;
  if (element->args().size() + (keeps ? 0 : 1) != at.size()) return false;
  for (size_t k = 0; k + 1 < at.size(); ++k) {
    const bool one = form.shape[k]->is_integer(1) && element->args()[k]->is_integer(0);
    if (element->args()[k] != at[k] && !one) return false;
  }
  return true;
}

}  // namespace

ValueId WithoutMaximum(Forms& forms, ValueId value) {
  const Graph& graph = forms.graph();
  const NodeId node = graph.producer(BehindIdentity(graph, value));
  if (node == kNoNode || !graph.Is(node, "Sub") || graph.inputs(node).size() != 2) return kNoValue;
  const ValueId x = BehindIdentity(graph, graph.inputs(node)[0]);
  const NodeId reduction = graph.producer(BehindIdentity(graph, graph.inputs(node)[1]));
  if (ReducedRows(forms, reduction, "ReduceMax") != x) return kNoValue;
  return IntAttribute(graph.node(reduction), "keepdims", 1) != 0 ? x : kNoValue;
}

bool KeepsSmallWeights(int32_t type) {
  return type == onnx::TensorProto::FLOAT || type == onnx::TensorProto::DOUBLE;
}

std::optional<RowSoftmax> ReadRowSoftmax(Forms& forms, NodeId node) {
  const Graph& graph = forms.graph();
  if (graph.Is(node, "Softmax")) {
    const Form& form = forms.Of(graph.inputs(node)[0]);
    const int64_t axis = IntAttribute(graph.node(node), "axis", -1);
    const auto rank = static_cast<int64_t>(form.shape.size());
    if (axis != -1 && (!form.known_rank || axis != rank - 1)) return std::nullopt;
    return RowSoftmax{graph.inputs(node)[0], false};
  }
  if (!graph.Is(node, "Div")) return std::nullopt;
  const ValueId weights = BehindIdentity(graph, graph.inputs(node)[0]);
  const NodeId exp = graph.producer(weights);
  if (exp == kNoNode || !graph.Is(exp, "Exp")) return std::nullopt;
  const ValueId scores = graph.inputs(exp)[0];
  if (WithoutMaximum(forms, scores) == kNoValue) return std::nullopt;
  const Form form = forms.Of(weights);
  if (!form.known_rank) return std::nullopt;
  std::vector<Expr> at;
  for (size_t k = 0; k < form.shape.size(); ++k) {
    at.push_back(forms.pool().Index(static_cast<int>(k)));
  }
  const Expr sum = BroadcastAt(forms, graph.inputs(node)[1], at, Facts{form.shape});
  if (!IsSumOfRow(forms, sum, weights, at)) return std::nullopt;
  return RowSoftmax{scores, true};
}

namespace {

// Reads an element of a renormalised weight from the outside to the inside.
class RenormalisedReader {
 public:
  RenormalisedReader(Forms& forms, const Facts& facts)
      : forms_(forms), graph_(forms.graph()), pool_(forms.pool()), facts_(facts) {}

  std::optional<Renormalised> Read(Expr element) {
    Expr guard = nullptr;
    if (element->kind() == Kind::kSelect) {
      const bool zero_first = element->args()[1]->is_integer(0);
      if (!zero_first && !element->args()[2]->is_integer(0)) return std::nullopt;
      guard = zero_first ? pool_.Not(element->args()[0]) : element->args()[0];
      element = element->args()[zero_first ? 2 : 1];
    }
    if (element->kind() != Kind::kLoad) return std::nullopt;
    const NodeId n = graph_.producer(element->source());
    if (n == kNoNode || !graph_.Is(n, "Div")) return std::nullopt;
    at_.assign(element->args().begin(), element->args().end());
    rows_ = BehindIdentity(graph_, graph_.inputs(n)[0]);
    if (!KeepsSmallWeights(forms_.ElementType(rows_))) return std::nullopt;
    if (guard != nullptr && !IsPositive(guard)) return std::nullopt;
    Renormalised result;
    result.node = n;
    result.guarded = guard != nullptr;
    Expr sum = BroadcastAt(forms_, graph_.inputs(n)[1], at_, facts_);
    if (sum != nullptr && sum->kind() == Kind::kSelect) {
      const bool second = IsSum(sum->args()[2]);
      const Expr condition = second ? pool_.Not(sum->args()[0]) : sum->args()[0];
      const Expr instead = sum->args()[second ? 1 : 2];
      if (!IsPositive(condition) || !IsNonZero(instead)) return std::nullopt;
      sum = sum->args()[second ? 2 : 1];
      result.guarded = true;
    }
    if (!IsSum(sum) || !ReadMasked(&result)) return std::nullopt;
    return result;
  }

 private:
  bool IsSum(Expr e) { return IsSumOfRow(forms_, e, rows_, at_); }

  static bool IsNonZero(Expr e) {
    if (e->kind() == Kind::kFloat) return e->float_value() != 0;
    return e->kind() == Kind::kInteger && e->value() != 0;
  }

  // Returns true if the condition says that the sum of the row, which is not negative, is not 0.
  bool IsPositive(Expr condition) {
    bool not_zero = true;
    while (condition->kind() == Kind::kNot || condition->kind() == Kind::kEq) {
      condition = condition->args()[0];
      not_zero = !not_zero;
    }
    if (condition->kind() == Kind::kApply && condition->function() == "less") {
      return not_zero && condition->args()[0]->is_integer(0) && IsSum(condition->args()[1]);
    }
    if (condition->kind() != Kind::kLoad) return false;
    const NodeId n = graph_.producer(condition->source());
    if (n == kNoNode || graph_.inputs(n).size() != 2) return false;
    const Expr a = BroadcastAt(forms_, graph_.inputs(n)[0], condition->args(), facts_);
    const Expr b = BroadcastAt(forms_, graph_.inputs(n)[1], condition->args(), facts_);
    if (a == nullptr || b == nullptr) return false;
    if (graph_.Is(n, "Equal")) {
      return !not_zero && ((IsSum(a) && b->is_integer(0)) || (IsSum(b) && a->is_integer(0)));
    }
    if (!not_zero) return false;
    return (graph_.Is(n, "Greater") && IsSum(a) && b->is_integer(0)) ||
           (graph_.Is(n, "Less") && IsSum(b) && a->is_integer(0));
  }

  // Reads p * m, or Where(c, p, 0).
  bool ReadMasked(Renormalised* result) {
    const Expr masked = forms_.At(rows_, at_, facts_);
    if (masked == nullptr) return false;
    if (masked->kind() == Kind::kSelect) {
      for (int k : {1, 2}) {
        if (!masked->args()[3 - k]->is_integer(0)) continue;
        result->weight = masked->args()[k];
        result->keep = k == 1 ? masked->args()[0] : pool_.Not(masked->args()[0]);
        return true;
      }
      return false;
    }
    if (masked->kind() != Kind::kLoad) return false;
    const NodeId n = graph_.producer(masked->source());
    if (n == kNoNode || !graph_.Is(n, "Mul")) return false;
    for (int k : {1, 0}) {
      const Expr mask = BroadcastAt(forms_, graph_.inputs(n)[k], masked->args(), facts_);
      const Expr keep = mask == nullptr ? nullptr : AsPredicate(mask);
      if (keep == nullptr) continue;
      result->weight = BroadcastAt(forms_, graph_.inputs(n)[1 - k], masked->args(), facts_);
      result->keep = keep;
      return result->weight != nullptr;
    }
    return false;
  }

  // Returns a number that is 1 or 0 as a predicate; null for other numbers.
  Expr AsPredicate(Expr number) {
    if (number->is_integer(1)) return pool_.True();
    if (number->is_integer(0)) return pool_.False();
    if (number->is_predicate()) return number;
    if (number->kind() != Kind::kSelect) return nullptr;
    const Expr a = AsPredicate(number->args()[1]), b = AsPredicate(number->args()[2]);
    if (a == nullptr || b == nullptr) return nullptr;
    const Expr c = number->args()[0];
    return pool_.Or(pool_.And(c, a), pool_.And(pool_.Not(c), b));
  }

  Forms& forms_;
  const Graph& graph_;
  Pool& pool_;
  const Facts& facts_;
  ValueId rows_ = kNoValue;
  std::vector<Expr> at_;
};

}  // namespace

std::optional<Renormalised> ReadRenormalised(Forms& forms, Expr element, const Facts& facts) {
  return element == nullptr ? std::nullopt : RenormalisedReader(forms, facts).Read(element);
}

}  // namespace kvlift::sym
