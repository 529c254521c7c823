#include "verify/mutant_maker.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "fmt/format.h"

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
  auto model = std::make_shared<onnx::ModelProto>(graph_.model());
  auto* nodes = model->mutable_graph()->mutable_node();
  nodes->Clear();
  model->mutable_graph()->clear_value_info();
  for (const auto& tensor : constants) *model->mutable_graph()->add_initializer() = tensor;
  for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
    NodeProto node = graph_.node(n);
    std::vector<NodeProto> before;
    edit(n, &node, &before);
    for (NodeProto& extra : before) *nodes->Add() = std::move(extra);
    *nodes->Add() = std::move(node);
  }
  mutants_.push_back({name, std::move(model), false});
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

onnx::TensorProto MutantMaker::Ints(const std::string& name, const std::vector<int64_t>& values) {
  onnx::TensorProto tensor;
  tensor.set_name(name);
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (int64_t v : values) tensor.add_int64_data(v);
  return tensor;
}

onnx::AttributeProto MutantMaker::IntAttr(const std::string& name, int64_t value) {
  onnx::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
  return attribute;
}

void MutantMaker::Drop(NodeProto* node, const std::string& attribute) {
  for (int i = 0; i < node->attribute_size(); ++i) {
    if (node->attribute(i).name() == attribute) {
      node->mutable_attribute()->DeleteSubrange(i, 1);
      return;
    }
  }
}

void MutantMaker::Shifted(const std::string& name, const std::vector<NodeId>& where, int k,
                          int64_t by) {
  int count = 0;
  Add(name, {Ints("mutant.by", {by})}, [&](NodeId n, NodeProto* node, auto* before) {
    if (std::find(where.begin(), where.end(), n) == where.end()) return;
    const std::string moved = fmt::format("mutant.moved{}", count++);
    before->push_back(Make("Add", {node->input(k), "mutant.by"}, moved));
    node->set_input(k, moved);
  });
}

void MutantMaker::OfFirst(const std::string& name, const std::vector<NodeId>& where, int k) {
  int count = 0;
  Add(name, {Ints("mutant.0", {0}), Ints("mutant.1", {1})},
      [&](NodeId n, NodeProto* node, auto* before) {
        if (std::find(where.begin(), where.end(), n) == where.end()) return;
        const std::string id = fmt::format("mutant.{}.", count++);
        before->push_back(Make("Slice", {node->input(k), "mutant.0", "mutant.1"}, id + "first"));
        before->push_back(Make("Shape", {node->input(k)}, id + "shape"));
        before->push_back(Make("Expand", {id + "first", id + "shape"}, id + "all"));
        node->set_input(k, id + "all");
      });
}

}  // namespace kvlift
