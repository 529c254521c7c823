// Nodes that stand in the place of one operator. Internal to lib/proof.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "fmt/format.h"
#include "onnx/onnx_pb.h"
#include "proof/plain.h"

namespace kvlift::plain {

inline void SetInt(onnx::NodeProto* node, const char* name, int64_t value) {
  onnx::AttributeProto* a = node->add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::INT);
  a->set_i(value);
}

inline void SetFloat(onnx::NodeProto* node, const char* name, float value) {
  onnx::AttributeProto* a = node->add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::FLOAT);
  a->set_f(value);
}

inline void SetInts(onnx::NodeProto* node, const char* name, absl::Span<const int64_t> values) {
  onnx::AttributeProto* a = node->add_attribute();
  a->set_name(name);
  a->set_type(onnx::AttributeProto::INTS);
  *a->mutable_ints() = {values.begin(), values.end()};
}

inline bool Has(const onnx::NodeProto& node, int k) {
  return k < node.input_size() && !node.input(k).empty();
}
inline bool Gives(const onnx::NodeProto& node, int k) {
  return k < node.output_size() && !node.output(k).empty();
}

// The nodes that stand in the place of one.
class Writer {
 public:
  Writer(const onnx::NodeProto& node, onnx::GraphProto* graph)
      : prefix_(fmt::format("{}{}/", kPlainPrefix, node.output(0))), graph_(graph) {}

  // The reference stays valid until the next node.
  onnx::NodeProto& Node(const char* op, std::vector<std::string> inputs, std::string output = "") {
    onnx::NodeProto& node = nodes_.emplace_back();
    node.set_op_type(op);
    for (std::string& input : inputs) node.add_input(std::move(input));
    node.add_output(output.empty() ? fmt::format("{}{}", prefix_, nodes_.size()) : output);
    return node;
  }
  std::string Name() const { return nodes_.back().output(0); }

  std::string Ints(absl::Span<const int64_t> values, bool scalar = false) {
    onnx::TensorProto* tensor = graph_->add_initializer();
    tensor->set_name(fmt::format("{}constant_{}", prefix_, ++constants_));
    tensor->set_data_type(onnx::TensorProto::INT64);
    if (!scalar) tensor->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t value : values) tensor->add_int64_data(value);
    return tensor->name();
  }

  std::string Float(float value) { return Floats({}, {&value, 1}); }
  std::string Floats(absl::Span<const int64_t> dims, absl::Span<const float> values) {
    onnx::TensorProto* tensor = graph_->add_initializer();
    tensor->set_name(fmt::format("{}constant_{}", prefix_, ++constants_));
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    for (int64_t dim : dims) tensor->add_dims(dim);
    for (float value : values) tensor->add_float_data(value);
    return tensor->name();
  }
  std::string Byte(int32_t type, int32_t value) { return SmallIntegers(type, {}, {&value, 1}); }
  std::string Bytes(const std::vector<int32_t>& values) {
    const auto size = static_cast<int64_t>(values.size());
    return SmallIntegers(onnx::TensorProto::UINT8, {&size, 1}, values);
  }

  // Columns [begin, end) of the last axis.
  std::string Columns(const std::string& x, int64_t axis, int64_t begin, int64_t end) {
    Node("Slice", {x, Ints({begin}), Ints({end}), Ints({axis})});
    return Name();
  }

  // [B, S, N * D] as [B, N, S, D].
  std::string Heads(const std::string& x, int64_t heads) {
    Node("Reshape", {x, Ints({0, 0, heads, -1})});
    SetInts(&Node("Transpose", {Name()}), "perm", {0, 2, 1, 3});
    return Name();
  }

  // Extent of an axis, as a vector of one.
  std::string Extent(const std::string& x, int64_t axis) {
    onnx::NodeProto& node = Node("Shape", {x});
    SetInt(&node, "start", axis);
    SetInt(&node, "end", axis + 1);
    return Name();
  }

  // [0, 1, ...) as long as `extent`, a vector of one, says.
  std::string Count(const std::string& extent) {
    Node("Squeeze", {extent, Ints({0})});
    Node("Range", {Ints({0}, true), Name(), Ints({1}, true)});
    return Name();
  }

  std::vector<onnx::NodeProto> Take() { return std::move(nodes_); }

 private:
  std::string SmallIntegers(int32_t type, absl::Span<const int64_t> dims,
                            absl::Span<const int32_t> values) {
    onnx::TensorProto* tensor = graph_->add_initializer();
    tensor->set_name(fmt::format("{}constant_{}", prefix_, ++constants_));
    tensor->set_data_type(type);
    for (int64_t dim : dims) tensor->add_dims(dim);
    for (int32_t value : values) tensor->add_int32_data(value);
    return tensor->name();
  }

  std::string prefix_;
  onnx::GraphProto* graph_;
  std::vector<onnx::NodeProto> nodes_;
  int constants_ = 0;
};

}  // namespace kvlift::plain
