#include "rewrite/lower/simplified_norm.h"

#include "ir/graph.h"

namespace kvlift {
namespace {

bool IsSimplifiedNorm(const onnx::NodeProto& node) {
  const bool standard = node.domain().empty() || node.domain() == "ai.onnx";
  if (!standard || node.op_type() != "SimplifiedLayerNormalization") return false;
  for (int k = 1; k < node.output_size(); ++k) {
    if (!node.output(k).empty()) return false;
  }
  return node.input_size() == 2;
}

void ReplaceIn(onnx::GraphProto* graph) {
  for (onnx::NodeProto& node : *graph->mutable_node()) {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) ReplaceIn(attribute.mutable_g());
      for (onnx::GraphProto& body : *attribute.mutable_graphs()) ReplaceIn(&body);
    }
    if (!IsSimplifiedNorm(node)) continue;
    node.set_op_type("RMSNormalization");
    while (node.output_size() > 1) node.mutable_output()->RemoveLast();
  }
}

}  // namespace

void ReplaceSimplifiedNorms(onnx::ModelProto* model) { ReplaceIn(model->mutable_graph()); }

}  // namespace kvlift
