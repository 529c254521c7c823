#include "proof/lower/one_length.h"

#include <string>
#include <vector>

#include "proof/lower/expand_contrib_ops.h"

namespace kvlift {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;

std::string AddNumber(int64_t number, GraphProto* graph) {
  auto* tensor = graph->add_initializer();
  tensor->set_name(std::string(kPlainPrefix) + "one_length/" + std::to_string(number));
  tensor->set_data_type(onnx::TensorProto::INT64);
  tensor->add_dims(1);
  tensor->add_int64_data(number);
  return tensor->name();
}

NodeProto Node(const char* op, const std::vector<std::string>& inputs, const std::string& output) {
  NodeProto node;
  node.set_op_type(op);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

}  // namespace

onnx::ModelProto WithOneLength(const onnx::ModelProto& result, const Manifest& relation) {
  onnx::ModelProto model = result;
  GraphProto* graph = model.mutable_graph();
  const std::string zero = AddNumber(0, graph), one = AddNumber(1, graph);
  std::vector<NodeProto> nodes;
  for (const ManifestInput& input : relation.inputs) {
    const ControlInput* control = AsControl(input);
    if (control == nullptr || control->shape != std::vector<std::string>{"B"}) continue;
    if (!IsControl(input, ControlValue::kPastLength) &&
        !IsControl(input, ControlValue::kTotalLength)) {
      continue;
    }
    const std::string prefix = kPlainPrefix + input.name + "/";
    const std::string shared = prefix + "shared";
    for (NodeProto& node : *graph->mutable_node()) {
      for (std::string& name : *node.mutable_input()) {
        if (name == input.name) name = shared;
      }
    }
    nodes.push_back(Node("Shape", {input.name}, prefix + "sequences"));
    nodes.push_back(Node("Slice", {input.name, zero, one}, prefix + "first"));
    nodes.push_back(Node("Expand", {prefix + "first", prefix + "sequences"}, shared));
  }
  nodes.insert(nodes.end(), graph->node().begin(), graph->node().end());
  graph->mutable_node()->Assign(nodes.begin(), nodes.end());
  return model;
}

}  // namespace kvlift
