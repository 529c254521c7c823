#include "proof/lower/one_length.h"

#include <string>
#include <vector>

#include "proof/lower/contrib_writer.h"

namespace kvlift {

using onnx::NodeProto;

onnx::ModelProto WithOneLength(const onnx::ModelProto& result, const Manifest& relation) {
  onnx::ModelProto model = result;
  onnx::GraphProto* graph = model.mutable_graph();
  std::vector<NodeProto> nodes;
  for (const ManifestInput& input : relation.inputs) {
    const ControlInput* control = AsControl(input);
    if (control == nullptr || control->shape != std::vector<std::string>{"B"}) continue;
    const bool is_length =
        control->value == ControlValue::kPastLength || control->value == ControlValue::kTotalLength;
    if (!is_length) continue;
    NodeProto named;  // gives the new values their prefix
    named.add_output(input.name);
    plain::Writer w(named, graph);
    const std::string first = w.Columns(input.name, 0, 0, 1), sequences = w.Extent(input.name, 0);
    w.Node("Expand", {first, sequences});
    for (NodeProto& node : *graph->mutable_node()) {
      for (std::string& name : *node.mutable_input()) {
        if (name == input.name) name = w.Name();
      }
    }
    for (NodeProto& node : w.Take()) nodes.push_back(std::move(node));
  }
  nodes.insert(nodes.end(), graph->node().begin(), graph->node().end());
  graph->mutable_node()->Assign(nodes.begin(), nodes.end());
  return model;
}

}  // namespace kvlift
