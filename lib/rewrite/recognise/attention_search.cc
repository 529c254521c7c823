#include "rewrite/recognise/attention_search.h"

#include <deque>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace kvlift {

bool IsStateOperator(const Graph& graph, NodeId n) {
  const std::string& op = graph.node(n).op_type();
  return op == "CausalConvWithState" || op == "LinearAttention";
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
  return op == "Softmax" || op == "LogSoftmax" || op.find("Attention") != std::string::npos;
}

// Returns true for products of two values, and for Mul, which may be part of a product that is
// written out.
bool IsProduct(const Graph& graph, NodeId n) {
  const std::string& op = graph.node(n).op_type();
  return op == "MatMul" || op == "Einsum" || op == "Mul" || op == "FusedMatMul" || op == "Gemm" ||
         op == "QLinearMatMul" || op == "MatMulInteger";
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
    if (n != node && IsProduct(graph, n) && graph.node(n).op_type() != "Mul") continue;
    for (ValueId input : graph.inputs(n)) {
      if (input == kNoValue || graph.producer(input) == kNoNode) continue;
      if (seen.insert(graph.producer(input)).second) queue.push_back(graph.producer(input));
    }
  }
  return kNoNode;
}

NodeId FindSoftmax(const Graph& graph, absl::Span<const ValueId> values, int max_products) {
  struct Reached {
    ValueId value;
    int products;  // on the way
  };
  std::deque<Reached> queue;
  absl::flat_hash_set<ValueId> seen;
  for (ValueId v : values) {
    if (v != kNoValue && seen.insert(v).second) queue.push_back({v, 0});
  }
  for (int k = 0; k < kMaxForward && !queue.empty(); ++k) {
    const Reached at = queue.front();
    queue.pop_front();
    for (const Use& use : graph.uses(at.value)) {
      if (use.kind != Use::Kind::kNodeInput) continue;
      const NodeId n = use.node;
      if (graph.Is(n, "Shape") || graph.Is(n, "Size")) continue;
      if (IsSoftmax(graph, n)) {
        const bool multiplies = graph.node(n).op_type().find("Attention") != std::string::npos;
        if (multiplies && at.products >= max_products) continue;
        return n;
      }
      int products = at.products;
      if (IsLayer(graph, n) && ++products > max_products) continue;
      if (IsProduct(graph, n)) {
        if (const NodeId softmax = SoftmaxBehind(graph, n); softmax != kNoNode) return softmax;
        if (graph.node(n).op_type() != "Mul" && ++products > max_products) continue;
      }
      for (ValueId output : graph.outputs(n)) {
        if (output != kNoValue && seen.insert(output).second) queue.push_back({output, products});
      }
    }
  }
  return kNoNode;
}

}  // namespace kvlift
