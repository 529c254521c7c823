// Writes the nodes that replace one fused operator. Internal to lib/proof.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "fmt/format.h"
#include "onnx/onnx_pb.h"
#include "proof/lower/expand_contrib_ops.h"

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

// Returns true if the node has input k.
inline bool Has(const onnx::NodeProto& node, int k) {
  return k < node.input_size() && !node.input(k).empty();
}
// Returns true if the node has output k.
inline bool Gives(const onnx::NodeProto& node, int k) {
  return k < node.output_size() && !node.output(k).empty();
}

// Writes the nodes that replace `node`. Names of new values begin with kExpandedPrefix and the
// node's first output. Constants become initializers of `graph`, which must outlive the writer.
class Writer {
 public:
  Writer(const onnx::NodeProto& node, onnx::GraphProto* graph)
      : prefix_(fmt::format("{}{}/", kExpandedPrefix, node.output(0))), graph_(graph) {}

  // Adds a node with one output, named `output` or, if that is empty, anew. The reference is valid
  // until the next call.
  onnx::NodeProto& Node(const char* op, std::vector<std::string> inputs, std::string output = "") {
    onnx::NodeProto& node = nodes_.emplace_back();
    node.set_op_type(op);
    for (std::string& input : inputs) node.add_input(std::move(input));
    node.add_output(output.empty() ? fmt::format("{}{}", prefix_, nodes_.size()) : output);
    return node;
  }
  // The first output of the last node.
  std::string Name() const { return nodes_.back().output(0); }

  // Adds an int64 vector, or a scalar from one value; returns its name.
  std::string Ints(absl::Span<const int64_t> values, bool scalar = false) {
    onnx::TensorProto* tensor = graph_->add_initializer();
    tensor->set_name(fmt::format("{}constant_{}", prefix_, ++constants_));
    tensor->set_data_type(onnx::TensorProto::INT64);
    if (!scalar) tensor->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t value : values) tensor->add_int64_data(value);
    return tensor->name();
  }

  // Adds a float32 scalar, or a float32 tensor of shape `dims`; returns its name.
  std::string Float(float value) { return Floats({}, {&value, 1}); }
  std::string Floats(absl::Span<const int64_t> dims, absl::Span<const float> values) {
    onnx::TensorProto* tensor = graph_->add_initializer();
    tensor->set_name(fmt::format("{}constant_{}", prefix_, ++constants_));
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    for (int64_t dim : dims) tensor->add_dims(dim);
    for (float value : values) tensor->add_float_data(value);
    return tensor->name();
  }
  // Adds a scalar of the 8-bit type `type`, or a uint8 vector; returns its name.
  std::string Byte(int32_t type, int32_t value) { return SmallIntegers(type, {}, {&value, 1}); }
  std::string Bytes(const std::vector<int32_t>& values) {
    const auto size = static_cast<int64_t>(values.size());
    return SmallIntegers(onnx::TensorProto::UINT8, {&size, 1}, values);
  }

  // Slices elements [begin, end) of an axis.
  std::string Columns(const std::string& x, int64_t axis, int64_t begin, int64_t end) {
    Node("Slice", {x, Ints({begin}), Ints({end}), Ints({axis})});
    return Name();
  }

  // Turns [B, S, N * D] into [B, N, S, D], with N = `heads`.
  std::string Heads(const std::string& x, int64_t heads) {
    Node("Reshape", {x, Ints({0, 0, heads, -1})});
    SetInts(&Node("Transpose", {Name()}), "perm", {0, 2, 1, 3});
    return Name();
  }

  // The extent of an axis, as a vector of one element.
  std::string Extent(const std::string& x, int64_t axis) {
    onnx::NodeProto& node = Node("Shape", {x});
    SetInt(&node, "start", axis);
    SetInt(&node, "end", axis + 1);
    return Name();
  }

  // The vector [0, 1, ...) of `extent` elements; `extent` is a vector of one element.
  std::string Count(const std::string& extent) {
    Node("Squeeze", {extent, Ints({0})});
    Node("Range", {Ints({0}, true), Name(), Ints({1}, true)});
    return Name();
  }

  // Moves the nodes out, in topological order.
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
