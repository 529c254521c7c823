#include "verify/layers/slice.h"

#include <algorithm>

#include "verify/mutants/mutant_maker.h"

namespace kvlift {
GraphSlice SliceOf(const Graph& graph, const std::vector<ValueId>& values,
                   const absl::flat_hash_set<ValueId>& stops) {
  std::vector<bool> taken(static_cast<size_t>(graph.num_nodes()), false);
  std::vector<NodeId> open;
  const auto take = [&](NodeId n) {
    if (n == kNoNode || taken[n]) return;
    taken[n] = true;
    open.push_back(n);
  };
  absl::flat_hash_set<ValueId> entering, inputs, of_data;
  for (ValueId v : values) take(graph.producer(v));
  while (!open.empty()) {
    const NodeId n = open.back();
    open.pop_back();
    const bool shape_only = graph.Is(n, "Shape");
    const auto read = [&](ValueId v) {
      if (v == kNoValue) return;
      if (stops.contains(v)) {
        entering.insert(v);
      } else if (graph.is_graph_input(v) && graph.constant(v) == nullptr) {
        inputs.insert(v);
        if (!shape_only) of_data.insert(v);
      } else {
        take(graph.producer(v));
      }
    };
    for (ValueId v : graph.inputs(n)) read(v);
    for (ValueId v : graph.captures(n)) read(v);
  }
  GraphSlice slice;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (!taken[n]) continue;
    slice.nodes.push_back(n);
    for (ValueId v : graph.outputs(n)) {
      if (v != kNoValue && entering.contains(v)) entering.erase(v);
    }
  }
  slice.entering.assign(entering.begin(), entering.end());
  std::sort(slice.entering.begin(), slice.entering.end());
  for (ValueId v : graph.graph_inputs()) {
    if (!inputs.contains(v)) continue;
    slice.inputs.push_back(v);
    if (!of_data.contains(v)) slice.shape_only.insert(v);
  }
  return slice;
}

std::shared_ptr<const onnx::ModelProto> BuildSlice(
    const Graph& graph, const GraphSlice& slice, const std::vector<ValueId>& outputs,
    const absl::flat_hash_map<ValueId, TensorType>& types,
    const absl::flat_hash_map<ValueId, ValueId>& renamed) {
  const std::shared_ptr<onnx::ModelProto> model = BorrowingModel(graph.shared_model());
  const onnx::ModelProto& from = graph.model();
  model->set_ir_version(from.ir_version());
  *model->mutable_opset_import() = from.opset_import();
  *model->mutable_functions() = from.functions();
  onnx::GraphProto& result = *model->mutable_graph();
  result.set_name(from.graph().name());
  absl::flat_hash_set<std::string> used;
  for (NodeId n : slice.nodes) {
    onnx::NodeProto& node = *result.add_node() = graph.node(n);
    for (size_t k = 0; k < graph.inputs(n).size(); ++k) {
      const auto other = renamed.find(graph.inputs(n)[k]);
      if (other == renamed.end()) continue;
      node.set_input(static_cast<int>(k), graph.name(other->second));
    }
    used.insert(node.input().begin(), node.input().end());
    used.insert(node.output().begin(), node.output().end());
    for (ValueId v : graph.captures(n)) used.insert(graph.name(v));
  }
  for (const auto& input : from.graph().input()) {
    if (used.contains(input.name())) *result.add_input() = input;
  }
  for (ValueId v : slice.entering) *result.add_input() = Declaration(graph.name(v), types.at(v));
  for (ValueId v : outputs) {
    const auto type = types.find(v);
    *result.add_output() =
        Declaration(graph.name(v), type == types.end() ? graph.type(v) : type->second);
  }
  for (const onnx::TensorProto& tensor : from.graph().initializer()) {
    if (!used.contains(tensor.name())) continue;
    result.mutable_initializer()->UnsafeArenaAddAllocated(const_cast<onnx::TensorProto*>(&tensor));
  }
  for (const auto& tensor : from.graph().sparse_initializer()) {
    if (used.contains(tensor.values().name())) *result.add_sparse_initializer() = tensor;
  }
  absl::flat_hash_set<std::string> declared;
  for (const auto* list : {&result.input(), &result.output()}) {
    for (const auto& info : *list) declared.insert(info.name());
  }
  for (const auto& info : from.graph().value_info()) {
    if (used.contains(info.name()) && !declared.contains(info.name())) {
      *result.add_value_info() = info;
    }
  }
  return model;
}

}  // namespace kvlift
