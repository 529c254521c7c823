#include "onnxio/bytes/tensors.h"

#include <vector>

namespace kvlift {
namespace {

class Walker {
 public:
  explicit Walker(const std::function<void(const onnx::TensorProto&)>& visit) : visit_(visit) {}

  void Walk(const onnx::ModelProto& model) {
    open_.push_back(&model.graph());
    for (const auto& training : model.training_info()) {
      if (training.has_initialization()) open_.push_back(&training.initialization());
      if (training.has_algorithm()) open_.push_back(&training.algorithm());
    }
    for (const auto& function : model.functions()) {
      for (const auto& attribute : function.attribute_proto()) VisitAttribute(attribute);
      for (const auto& node : function.node()) VisitNode(node);
    }
    while (!open_.empty()) {
      const onnx::GraphProto* graph = open_.back();
      open_.pop_back();
      for (const auto& tensor : graph->initializer()) visit_(tensor);
      for (const auto& tensor : graph->sparse_initializer()) VisitSparse(tensor);
      for (const auto& node : graph->node()) VisitNode(node);
    }
  }

 private:
  void VisitSparse(const onnx::SparseTensorProto& tensor) {
    if (tensor.has_values()) visit_(tensor.values());
    if (tensor.has_indices()) visit_(tensor.indices());
  }

  void VisitNode(const onnx::NodeProto& node) {
    for (const auto& attribute : node.attribute()) VisitAttribute(attribute);
  }

  void VisitAttribute(const onnx::AttributeProto& attribute) {
    if (attribute.has_t()) visit_(attribute.t());
    for (const auto& tensor : attribute.tensors()) visit_(tensor);
    if (attribute.has_sparse_tensor()) VisitSparse(attribute.sparse_tensor());
    for (const auto& tensor : attribute.sparse_tensors()) VisitSparse(tensor);
    if (attribute.has_g()) open_.push_back(&attribute.g());
    for (const auto& graph : attribute.graphs()) open_.push_back(&graph);
  }

  const std::function<void(const onnx::TensorProto&)>& visit_;
  std::vector<const onnx::GraphProto*> open_;
};

}  // namespace

void ForEachTensor(const onnx::ModelProto& model,
                   const std::function<void(const onnx::TensorProto&)>& visit) {
  Walker(visit).Walk(model);
}

void ForEachMutableTensor(onnx::ModelProto& model,
                          const std::function<void(onnx::TensorProto&)>& visit) {
  // The model is not const, so the tensors in it are not const either.
  ForEachTensor(model, [&](const onnx::TensorProto& tensor) {
    visit(const_cast<onnx::TensorProto&>(tensor));
  });
}

}  // namespace kvlift
