#include "rewrite/recognise/attention/attention_search.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "ir/operators/operator_traits.h"

namespace kvlift {

bool IsStateOperator(const Graph& graph, NodeId n) {
  const std::string& op = graph.node(n).op_type();
  return op == "CausalConvWithState" || op == "LinearAttention" || op == "GatedDeltaNet";
}

size_t StateOperandOf(const Graph& graph, NodeId n) {
  return graph.node(n).op_type() == "GatedDeltaNet" ? 6 : 3;
}

namespace {

constexpr int kMaxForward = 600;
constexpr int kMaxBackward = 150;

// Returns true if a ReduceSum reads the value, also behind Identity nodes.
bool IsSummed(const Graph& graph, ValueId v) {
  for (const Use& use : graph.uses(v)) {
    if (use.kind != Use::Kind::kNodeInput) continue;
    if (graph.Is(use.node, "ReduceSum")) return true;
    if (graph.Is(use.node, "Identity") && IsSummed(graph, graph.outputs(use.node)[0])) return true;
  }
  return false;
}

// Exp(x) / ReduceSum(Exp(x)) is a softmax written out.
bool IsSoftmax(const Graph& graph, NodeId n) {
  const std::string& op = graph.node(n).op_type();
  if (op == "Exp") return IsSummed(graph, graph.outputs(n)[0]);
  if (IsStateOperator(graph, n)) return false;
  return op == "Softmax" || op == "LogSoftmax" || op == "QLinearSoftmax" ||
         op.find("Attention") != std::string::npos;
}

bool IsMatrixProduct(const Graph& graph, NodeId n) {
  const std::string& op = graph.node(n).op_type();
  return op == "MatMul" || op == "Einsum" || op == "FusedMatMul" || op == "Gemm" ||
         op == "QLinearMatMul" || op == "MatMulInteger";
}

bool IsAttentionOperator(const Graph& graph, NodeId n) {
  return graph.node(n).op_type().find("Attention") != std::string::npos;
}

// Returns true for matrix products, and for a Mul whose result is summed up.
bool MultipliesRows(const Graph& graph, NodeId n) {
  if (graph.Is(n, "Mul")) return IsSummed(graph, graph.outputs(n)[0]);
  const std::string& op = graph.node(n).op_type();
  return IsMatrixProduct(graph, n) || op.find("MatMul") != std::string::npos;
}

// Returns the first operand that is not `value`; `value` if a node multiplies it by itself. Scales
// and zero points are no operands.
ValueId OtherOperand(const Graph& graph, NodeId n, ValueId value) {
  constexpr size_t kRight = 3;  // of a QLinearMatMul
  if (graph.Is(n, "QLinearMatMul")) {
    return graph.inputs(n)[0] == value ? graph.inputs(n)[kRight] : graph.inputs(n)[0];
  }
  for (ValueId input : graph.inputs(n)) {
    if (input != kNoValue && input != value) return input;
  }
  return value;
}

// Returns true for operators that do not pass on the weights of an attention element by element:
// those that select some of them, as routers of experts do, and those that lead to other values.
bool EndsWeights(const Graph& graph, NodeId n) {
  const std::string& op = graph.node(n).op_type();
  static const auto& kEnds = *new absl::flat_hash_set<std::string>{"Add", "Sub", "TopK", "OneHot"};
  const auto is = [&](const char* part) { return op.find(part) != std::string::npos; };
  return kEnds.contains(op) || is("Gather") || is("Scatter") || is("Normalization") ||
         (MultipliesRows(graph, n) && !graph.Is(n, "Mul"));
}

// Returns true for operators that combine a value with weights or with a state of their own.
bool IsLayer(const Graph& graph, NodeId n) {
  return graph.Is(n, "Conv") || IsStateOperator(graph, n);
}

}  // namespace

NodeId SoftmaxBehind(const Graph& graph, NodeId node) {
  std::deque<NodeId> queue = {node};
  absl::flat_hash_set<NodeId> seen = {node};
  for (int k = 0; k < kMaxBackward && !queue.empty(); ++k) {
    const NodeId n = queue.front();
    queue.pop_front();
    if (n != node && IsSoftmax(graph, n)) return n;
    // Attention weights reach their product with the values without another matrix product.
    if (n != node && IsMatrixProduct(graph, n)) continue;
    for (ValueId input : graph.inputs(n)) {
      if (input == kNoValue || graph.producer(input) == kNoNode) continue;
      if (seen.insert(graph.producer(input)).second) queue.push_back(graph.producer(input));
    }
  }
  return kNoNode;
}

namespace {

// Returns true for a product of a computed value with weights.
bool Projects(const Graph& graph, NodeId n) {
  return MultipliesRows(graph, n) && graph.inputs(n).size() >= 2 &&
         IsOfConstants(graph, graph.inputs(n)[1]) && !IsOfConstants(graph, graph.inputs(n)[0]);
}

// Returns the softmax whose weights the value is, mixed over heads by no more than one product;
// kNoNode if a search of 150 nodes finds none.
NodeId WeightsBehind(const Graph& graph, ValueId value) {
  struct Reached {
    ValueId value;
    bool mixed;
  };
  std::deque<Reached> queue = {{value, false}};
  absl::flat_hash_set<ValueId> seen = {value};
  for (int k = 0; k < kMaxBackward && !queue.empty(); ++k) {
    const auto [reached, mixed] = queue.front();
    const NodeId n = graph.producer(reached);
    queue.pop_front();
    if (n == kNoNode) continue;
    if (IsSoftmax(graph, n)) {
      if (IsAttentionOperator(graph, n)) continue;
      return n;
    }
    const bool mixes = !mixed && Projects(graph, n);
    if (!mixes && (EndsWeights(graph, n) || IsLayer(graph, n))) continue;
    for (ValueId input : graph.inputs(n)) {
      if (input != kNoValue && seen.insert(input).second) queue.push_back({input, mixed || mixes});
    }
  }
  return kNoNode;
}

}  // namespace

NodeId FindSoftmax(const Graph& graph, absl::Span<const ValueId> values, int max_projections) {
  struct Reached {
    ValueId value;
    int projections;  // products with weights on the way
    bool scores;      // a product of two values of the step is on the way
  };
  std::deque<Reached> queue;
  absl::flat_hash_set<std::pair<ValueId, bool>> seen;
  for (ValueId v : values) {
    if (v != kNoValue && seen.emplace(v, false).second) queue.push_back({v, 0, false});
  }
  for (int k = 0; k < kMaxForward && !queue.empty(); ++k) {
    const Reached at = queue.front();
    queue.pop_front();
    for (const Use& use : graph.uses(at.value)) {
      if (use.kind != Use::Kind::kNodeInput) continue;
      const NodeId n = use.node;
      if (graph.Is(n, "Shape") || graph.Is(n, "Size")) continue;
      if (IsSoftmax(graph, n)) {
        if (IsAttentionOperator(graph, n) != at.scores) return n;
        continue;
      }
      Reached next = at;
      if (IsLayer(graph, n)) ++next.projections;
      if (MultipliesRows(graph, n)) {
        const ValueId other = OtherOperand(graph, n, at.value);
        if (const NodeId softmax = WeightsBehind(graph, other); softmax != kNoNode) return softmax;
        // Weights may mix the scores of heads, too.
        const bool projects = IsOfConstants(graph, other);
        if (at.scores && !projects) continue;
        next.projections += projects ? 1 : 0;
        next.scores |= !projects;
      }
      if (next.projections > max_projections) continue;
      for (ValueId output : graph.outputs(n)) {
        if (output == kNoValue || !seen.emplace(output, next.scores).second) continue;
        next.value = output;
        queue.push_back(next);
      }
    }
  }
  return kNoNode;
}

NodeId BetweenSoftmaxAndProduct(const Graph& graph, NodeId softmax) {
  constexpr int kMostNodes = 8;
  if (!graph.Is(softmax, "Softmax")) return kNoNode;
  NodeId n = softmax;
  for (int looked = 0; looked < kMostNodes; ++looked) {
    if (graph.outputs(n).empty() || graph.outputs(n)[0] == kNoValue) return kNoNode;
    const auto uses = graph.uses(graph.outputs(n)[0]);
    if (uses.empty() || uses[0].node == kNoNode) return kNoNode;
    n = uses[0].node;
    const std::string& op = graph.node(n).op_type();
    if (op == "Cast" || op == "CastLike" || op == "Identity" || op == "Dropout" ||
        op == "Reshape" || op == "Transpose" || op == "Where" || op == "Slice" || op == "IsNaN") {
      continue;  // IsNaN and Where guard the weights of rows without visible keys
    }
    if (Projects(graph, n)) continue;  // heads are mixed
    return op.find("MatMul") != std::string::npos || op == "Gemm" || op == "Einsum" ? kNoNode : n;
  }
  return kNoNode;
}

bool MayWeighHiddenKeys(const Graph& graph, NodeId softmax) {
  const NodeId n = BetweenSoftmaxAndProduct(graph, softmax);
  if (n == kNoNode) return false;
  constexpr std::string_view kKeepZero[] = {"Abs",  "Div", "Mul", "Neg", "QuantizeLinear",
                                            "Relu", "Sqrt"};
  return std::none_of(std::begin(kKeepZero), std::end(kKeepZero),
                      [&](std::string_view op) { return graph.Is(n, op); });
}

namespace {

// Returns the operand of the node that is no constant and no shape; kNoValue if it has none,
// nullopt if it has several.
std::optional<ValueId> OnlyOperand(const Graph& graph, NodeId n) {
  const std::vector<int> moved = MovedOperands(graph.node(n));
  if (moved.size() == 1) return graph.inputs(n)[moved[0]];
  ValueId only = kNoValue;
  for (ValueId v : graph.inputs(n)) {
    if (v == kNoValue || ConstantBehind(graph, v) != nullptr) continue;
    if (only != kNoValue) return std::nullopt;
    only = v;
  }
  return only;
}

}  // namespace

NodeId QuantizerOfScores(const Graph& graph, NodeId attention) {
  constexpr int kMostNodes = 16;
  const NodeId behind = SoftmaxBehind(graph, attention);
  const NodeId softmax = behind == kNoNode ? attention : behind;
  NodeId n = softmax;
  for (int k = 0; k < kMostNodes && n != kNoNode; ++k) {
    if (graph.Is(n, "QuantizeLinear")) return n;
    const bool carries = n == softmax || KeepsElementsApart(graph.node(n)) ||
                         graph.Is(n, "Dropout") || graph.Is(n, "DequantizeLinear");
    const auto next = carries ? OnlyOperand(graph, n) : std::nullopt;
    n = next.value_or(kNoValue) == kNoValue ? kNoNode : graph.producer(*next);
  }
  // A softmax of codes has quantised scores, whatever made them.
  return graph.node(softmax).op_type() == "QLinearSoftmax" ? softmax : kNoNode;
}

}  // namespace kvlift
