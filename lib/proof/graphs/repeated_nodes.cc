#include "proof/graphs/repeated_nodes.h"

#include <algorithm>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "ir/operators/operator_changes.h"
#include "ir/operators/operator_traits.h"
#include "ir/tensor_data.h"
#include "sym/forms/keeps_value.h"

namespace kvlift {
namespace {

// The most elements of constants that are compared with one another.
constexpr int64_t kMostElements = 64;

// The largest number of nodes with the same operands that a node is compared with.
constexpr size_t kMostCompared = 16;

// Returns true if the operator text determines the results: ONNX's own operators but the random
// ones.
bool IsDetermined(const onnx::NodeProto& node) {
  return IsDefaultDomain(node.domain()) && !IsRandomOperator(node);
}

// Returns the operand that a node hands on in its own type; kNoValue if there is none.
ValueId HandedOn(const GraphPair& pair, NodeId n) {
  sym::Forms& forms = pair.forms();
  const ValueId operand = sym::ExactOperand(forms, n);
  if (operand == kNoValue) return kNoValue;
  const bool same = forms.ElementType(operand) == forms.ElementType(pair.graph().outputs(n)[0]);
  return same ? operand : kNoValue;
}

}  // namespace

void RepeatedNodes::FindEqualConstants(const GraphPair& pair) {
  const Graph& graph = pair.graph();
  absl::flat_hash_map<std::string, ValueId> by_bytes;
  for (ValueId v = 0; v < graph.num_values(); ++v) {
    const onnx::TensorProto* const tensor = graph.constant(v);
    if (tensor == nullptr || pair.IsValueInAfter(v)) continue;
    const auto count = NumElements(*tensor);
    if (!count.ok() || *count > kMostElements) continue;
    const auto bytes = InlineBytes(*tensor);
    if (!bytes.ok()) continue;
    const std::string key =
        fmt::format("{} {}: {}", tensor->data_type(), fmt::join(tensor->dims(), ","), *bytes);
    const auto [it, fresh] = by_bytes.try_emplace(key, v);
    if (!fresh) first_[v] = it->second;
  }
}

RepeatedNodes::RepeatedNodes(const GraphPair& pair) {
  FindEqualConstants(pair);
  const Graph& graph = pair.graph();
  absl::flat_hash_map<std::string, std::vector<NodeId>> by_operands;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const onnx::NodeProto& node = graph.node(n);
    if (pair.IsInAfter(n) || graph.outputs(n).empty() || !IsDetermined(node)) continue;
    if (graph.inputs(n).empty()) continue;  // constants are compared by their bytes
    if (const ValueId operand = HandedOn(pair, n); operand != kNoValue) {
      first_[graph.outputs(n)[0]] = FirstOf(operand);
      continue;
    }
    std::string key = fmt::format("{} {}", node.op_type(), graph.outputs(n).size());
    for (ValueId input : graph.inputs(n)) key += fmt::format(" {}", FirstOf(input));
    std::vector<NodeId>& alike = by_operands[key];
    const int64_t opset = pair.OpsetOf(n);
    const auto first = std::find_if(alike.begin(), alike.end(), [&](NodeId other) {
      return SameAttributes(graph.node(other), node, {}, opset, opset);
    });
    if (first == alike.end()) {
      if (alike.size() < kMostCompared) alike.push_back(n);
      continue;
    }
    for (size_t k = 0; k < graph.outputs(n).size(); ++k) {
      const ValueId mine = graph.outputs(n)[k], earlier = graph.outputs(*first)[k];
      if (mine != kNoValue && earlier != kNoValue) first_[mine] = earlier;
    }
  }
}

}  // namespace kvlift
