#include "verify/mutants/mutant_maker.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "exec/memory/tensor.h"
#include "fmt/format.h"
#include "ir/node_builder.h"
#include "verify/inputs/stimulus.h"

namespace kvlift {

using onnx::NodeProto;

ValueId MutantMaker::Input(NodeId n, int k) const {
  return k < static_cast<int>(graph_.inputs(n).size()) ? graph_.inputs(n)[k] : kNoValue;
}

std::string MutantMaker::Name(NodeId n, int k) const {
  const ValueId v = Input(n, k);
  return v == kNoValue ? std::string() : graph_.name(v);
}

void MutantMaker::Add(const std::string& name, const std::vector<onnx::TensorProto>& constants,
                      const Edit& edit) {
  Mutant mutant;
  mutant.name = name;
  mutant.group = group_;
  mutant.constants = constants;
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    NodeProto node = graph_.node(n);
    std::vector<NodeProto> before;
    after_.clear();
    edit(n, &node, &before);
    std::move(before.begin(), before.end(), std::back_inserter(mutant.nodes));
    mutant.nodes.push_back(std::move(node));
    std::move(after_.begin(), after_.end(), std::back_inserter(mutant.nodes));
  }
  mutants_.push_back(std::move(mutant));
}

void MutantMaker::AddModel(const std::string& name, std::function<void(onnx::ModelProto*)> finish) {
  Add(name, {}, [](NodeId, NodeProto*, auto*) {});
  mutants_.back().finish = std::move(finish);
}

std::shared_ptr<onnx::ModelProto> BorrowingModel(std::shared_ptr<const void> owner) {
  return {new onnx::ModelProto, [owner = std::move(owner)](onnx::ModelProto* model) {
            auto* list = model->mutable_graph()->mutable_initializer();
            while (!list->empty()) list->UnsafeArenaReleaseLast();
            delete model;
          }};
}

std::shared_ptr<const onnx::ModelProto> BuildMutant(const Graph& graph, const Mutant& mutant) {
  const onnx::ModelProto& from = graph.model();
  const std::shared_ptr<onnx::ModelProto> model = BorrowingModel(graph.shared_model());
  model->set_ir_version(from.ir_version());
  *model->mutable_opset_import() = from.opset_import();
  *model->mutable_functions() = from.functions();
  *model->mutable_metadata_props() = from.metadata_props();
  const onnx::GraphProto& source = from.graph();
  onnx::GraphProto& target = *model->mutable_graph();
  target.set_name(source.name());
  *target.mutable_input() = source.input();
  *target.mutable_output() = source.output();
  *target.mutable_sparse_initializer() = source.sparse_initializer();
  *target.mutable_quantization_annotation() = source.quantization_annotation();
  for (const onnx::NodeProto& node : mutant.nodes) *target.add_node() = node;
  for (const onnx::TensorProto& tensor : source.initializer()) {
    target.mutable_initializer()->UnsafeArenaAddAllocated(const_cast<onnx::TensorProto*>(&tensor));
  }
  for (const onnx::TensorProto& tensor : mutant.constants) {
    target.mutable_initializer()->UnsafeArenaAddAllocated(const_cast<onnx::TensorProto*>(&tensor));
  }
  if (mutant.finish) mutant.finish(model.get());
  return model;
}

NodeProto MutantMaker::Make(const std::string& op, const std::vector<std::string>& inputs,
                            const std::string& output) {
  NodeProto node;
  node.set_op_type(op);
  node.set_name(output);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

NodeProto MutantMaker::Make(const std::string& op, const std::vector<std::string>& inputs,
                            const std::string& output,
                            const std::vector<onnx::AttributeProto>& attributes) {
  NodeProto node = Make(op, inputs, output);
  for (const onnx::AttributeProto& attribute : attributes) *node.add_attribute() = attribute;
  return node;
}

onnx::TensorProto MutantMaker::Ints(const std::string& name, const std::vector<int64_t>& values) {
  onnx::TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (int64_t v : values) tensor.add_int64_data(v);
  return tensor;
}

onnx::TensorProto MutantMaker::Scalar(const std::string& name, int32_t type, double value) {
  exec::Tensor number(type, {});
  StoreDouble(number.view(), 0, value);
  onnx::TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(type);
  tensor.set_raw_data(number.data(), static_cast<size_t>(number.view().bytes()));
  return tensor;
}

onnx::AttributeProto MutantMaker::IntAttr(const std::string& name, int64_t value) {
  return MakeAttribute(name, value);
}

onnx::AttributeProto MutantMaker::IntsAttr(const std::string& name,
                                           const std::vector<int64_t>& values) {
  return MakeAttribute(name, values);
}

onnx::AttributeProto MutantMaker::FloatAttr(const std::string& name, float value) {
  return MakeAttribute(name, value);
}

onnx::AttributeProto MutantMaker::StringAttr(const std::string& name, const std::string& value) {
  return MakeAttribute(name, value);
}

void MutantMaker::Drop(NodeProto* node, const std::string& attribute) {
  for (int i = 0; i < node->attribute_size(); ++i) {
    if (node->attribute(i).name() == attribute) {
      node->mutable_attribute()->DeleteSubrange(i, 1);
      return;
    }
  }
}

void MutantMaker::Replaced(const std::string& name, const std::vector<onnx::TensorProto>& constants,
                           const std::vector<NodeId>& where, int k, const Replace& make) {
  int count = 0;
  Add(name, constants, [&](NodeId n, NodeProto* node, auto* before) {
    if (std::find(where.begin(), where.end(), n) == where.end()) return;
    node->set_input(k, make(n, *node, fmt::format("mutant.{}.", count++), before));
  });
}

void MutantMaker::Shifted(const std::string& name, const std::vector<NodeId>& where, int k,
                          int64_t by) {
  Replaced(name, {Ints("mutant.by", {by})}, where, k,
           [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
             before->push_back(Make("Add", {node.input(k), "mutant.by"}, id + "moved"));
             return id + "moved";
           });
}

void MutantMaker::OfFirst(const std::string& name, const std::vector<NodeId>& where, int k) {
  Replaced(
      name, {Ints("mutant.0", {0}), Ints("mutant.1", {1})}, where, k,
      [&](NodeId, const NodeProto& node, const std::string& id, auto* before) {
        before->push_back(Make("Slice", {node.input(k), "mutant.0", "mutant.1"}, id + "first"));
        before->push_back(Make("Shape", {node.input(k)}, id + "shape"));
        before->push_back(Make("Expand", {id + "first", id + "shape"}, id + "all"));
        return id + "all";
      });
}

}  // namespace kvlift
