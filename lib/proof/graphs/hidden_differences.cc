#include "proof/graphs/hidden_differences.h"

#include <string_view>
#include <vector>

#include "ir/operators/operator_traits.h"
#include "ir/types.h"

namespace kvlift {
namespace {

// Returns true if each element of an integer tensor is an element of an input of the model.
bool IsChosenByHost(const GraphPair& pair, ValueId indices) {
  sym::Forms& forms = pair.forms();
  const sym::Form& form = forms.Of(indices);
  if (!form.known_rank) return false;
  std::vector<sym::Expr> at;
  for (size_t k = 0; k < form.shape.size(); ++k) {
    at.push_back(forms.pool().Index(static_cast<int>(k)));
  }
  const sym::Expr e = forms.At(indices, at, sym::Facts{form.shape});
  return e->kind() == sym::Kind::kLoad && pair.graph().producer(e->source()) == kNoNode;
}

}  // namespace

bool MayHideNumbers(const onnx::NodeProto& node) {
  static const auto& kNames = *new absl::flat_hash_set<std::string_view>{
      "Compress", "MaxPool", "Pad", "ReduceMax", "ReduceMin", "TopK"};
  const ElementwiseOperator* elementwise = FindElementwise(node);
  return (elementwise != nullptr && elementwise->hides_numbers) || kNames.contains(node.op_type());
}

bool MayLeaveRowsUnread(const GraphPair& pair, NodeId node) {
  const std::string& op = pair.graph().node(node).op_type();
  if (op == "Gather") return !IsChosenByHost(pair, pair.graph().inputs(node)[1]);
  return op == "GatherElements" || op == "GatherND" || op == "Slice" || op == "Split";
}

absl::flat_hash_set<NodeId> NodesThatShowIn(const GraphPair& pair, ValueId output) {
  const Graph& graph = pair.graph();
  absl::flat_hash_set<NodeId> shown;
  std::vector<ValueId> open = {output};
  while (!open.empty()) {
    const ValueId value = open.back();
    open.pop_back();
    if (value == kNoValue || !IsFloatType(pair.forms().ElementType(value))) continue;
    const NodeId n = graph.producer(value);
    if (n == kNoNode || !pair.IsInAfter(n) || !shown.insert(n).second) continue;
    if (MayHideNumbers(graph.node(n))) continue;
    for (ValueId input : graph.inputs(n)) open.push_back(input);
  }
  return shown;
}

}  // namespace kvlift
