#include "ir/constant_node.h"

#include <string>
#include <utility>

#include "base/escape.h"
#include "fmt/format.h"

namespace kvlift {
namespace {

using onnx::AttributeProto;
using onnx::TensorProto;

absl::Status Bad(const onnx::NodeProto& node, std::string_view what) {
  return absl::InvalidArgumentError(
      fmt::format("the Constant node of \"{}\" {}",
                  EscapeTerminal(node.output().empty() ? node.name() : node.output(0)), what));
}

std::unique_ptr<TensorProto> NewTensor(int32_t elem_type) {
  auto tensor = std::make_unique<TensorProto>();
  tensor->set_data_type(elem_type);
  return tensor;
}

// Returns nullptr if the attribute is neither a scalar nor a list, or if it is a scalar without a
// value.
std::unique_ptr<TensorProto> FromScalarOrList(const AttributeProto& attribute) {
  const std::string& name = attribute.name();
  std::unique_ptr<TensorProto> tensor;
  if (name == "value_float" && attribute.has_f()) {
    tensor = NewTensor(TensorProto::FLOAT);
    tensor->add_float_data(attribute.f());
  } else if (name == "value_int" && attribute.has_i()) {
    tensor = NewTensor(TensorProto::INT64);
    tensor->add_int64_data(attribute.i());
  } else if (name == "value_string" && attribute.has_s()) {
    tensor = NewTensor(TensorProto::STRING);
    tensor->add_string_data(attribute.s());
  } else if (name == "value_floats") {
    tensor = NewTensor(TensorProto::FLOAT);
    tensor->add_dims(attribute.floats_size());
    *tensor->mutable_float_data() = attribute.floats();
  } else if (name == "value_ints") {
    tensor = NewTensor(TensorProto::INT64);
    tensor->add_dims(attribute.ints_size());
    *tensor->mutable_int64_data() = attribute.ints();
  } else if (name == "value_strings") {
    tensor = NewTensor(TensorProto::STRING);
    tensor->add_dims(attribute.strings_size());
    *tensor->mutable_string_data() = attribute.strings();
  }
  return tensor;
}

}  // namespace

absl::StatusOr<ConstantTensor> ConstantNodeTensor(const onnx::NodeProto& node) {
  if (node.attribute_size() != 1) {
    return Bad(node, fmt::format("has {} attributes where one is needed", node.attribute_size()));
  }
  const AttributeProto& attribute = node.attribute(0);
  ConstantTensor result;
  if (!attribute.ref_attr_name().empty() || attribute.name() == "sparse_value") return result;
  if (attribute.name() == "value" && attribute.has_t()) {
    result.tensor = &attribute.t();
    return result;
  }
  result.owned = FromScalarOrList(attribute);
  if (result.owned == nullptr) {
    return Bad(node, fmt::format("has no value in its attribute \"{}\"",
                                 EscapeTerminal(attribute.name())));
  }
  result.owned->set_name(node.output().empty() ? std::string() : node.output(0));
  result.tensor = result.owned.get();
  return result;
}

}  // namespace kvlift
