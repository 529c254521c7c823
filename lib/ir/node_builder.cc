#include "ir/node_builder.h"

#include <cmath>
#include <limits>

#include "absl/base/casts.h"
#include "fmt/format.h"
#include "ir/subgraphs.h"
#include "ir/tensor_data.h"

namespace kvlift {
namespace {

// The names of all constants start with this.
constexpr std::string_view kConstants = "/kvlift/constant/";

onnx::AttributeProto Named(std::string_view name, onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto attribute;
  attribute.set_name(std::string(name));
  attribute.set_type(type);
  return attribute;
}

// Returns the float16 bits of a number, rounded to nearest even. The values used here (0,
// infinities, small constants) are exact.
uint16_t HalfBits(double value) {
  const auto single = static_cast<float>(value);
  const uint32_t bits = absl::bit_cast<uint32_t>(single);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  if (std::isnan(single)) return static_cast<uint16_t>(sign | 0x7e00u);
  const double magnitude = std::fabs(static_cast<double>(single));
  if (magnitude >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < std::ldexp(1.0, -14)) {
    return static_cast<uint16_t>(sign |
                                 static_cast<uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  }
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  const auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(fraction, 11)));
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + (mantissa - 1024)));
}

uint16_t BfloatBits(double value) {
  const uint32_t bits = absl::bit_cast<uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace

onnx::AttributeProto MakeAttribute(std::string_view name, int64_t value) {
  auto attribute = Named(name, onnx::AttributeProto::INT);
  attribute.set_i(value);
  return attribute;
}

onnx::AttributeProto MakeAttribute(std::string_view name, float value) {
  auto attribute = Named(name, onnx::AttributeProto::FLOAT);
  attribute.set_f(value);
  return attribute;
}

onnx::AttributeProto MakeAttribute(std::string_view name, const std::vector<int64_t>& values) {
  auto attribute = Named(name, onnx::AttributeProto::INTS);
  attribute.mutable_ints()->Add(values.begin(), values.end());
  return attribute;
}

onnx::AttributeProto MakeAttribute(std::string_view name, std::string_view value) {
  auto attribute = Named(name, onnx::AttributeProto::STRING);
  attribute.set_s(std::string(value));
  return attribute;
}

std::string FreeName(std::string name, absl::flat_hash_set<std::string>* taken) {
  while (!taken->insert(name).second) name += "_";
  return name;
}

NodeBuilder::NodeBuilder(const Graph& graph) : taken_(NamesIn(graph.proto())) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) taken_.insert(graph.NodeName(n));
  for (const onnx::TensorProto& tensor : graph.proto().initializer()) {
    if (tensor.name().rfind(kConstants, 0) != 0) continue;
    onnx::TensorProto content = tensor;
    content.clear_name();
    made_.emplace(content.SerializeAsString(), tensor.name());
  }
}

std::string NodeBuilder::Unique(std::string_view role) {
  const std::string base = fmt::format("/kvlift/{}/{}", scope_, role);
  std::string name = base;
  for (int i = 1; !taken_.insert(name).second; ++i) name = fmt::format("{}_{}", base, i);
  return name;
}

std::string NodeBuilder::Add(std::string_view op_type, const Inputs& inputs, std::string_view role,
                             Attributes attributes) {
  onnx::NodeProto node;
  node.set_op_type(std::string(op_type));
  for (const std::string& input : inputs) node.add_input(input);
  for (auto& attribute : attributes) *node.add_attribute() = std::move(attribute);
  auto [it, fresh] = made_.try_emplace(node.SerializeAsString());
  if (!fresh) return it->second;
  const std::string name = Unique(role);
  it->second = name;
  node.set_name(name);
  node.add_output(name);
  nodes_.push_back(std::move(node));
  return name;
}

void NodeBuilder::AddNamed(std::string_view op_type, const Inputs& inputs, std::string_view role,
                           const std::string& output, Attributes attributes) {
  onnx::NodeProto node;
  node.set_op_type(std::string(op_type));
  node.set_name(Unique(role));
  for (const std::string& input : inputs) node.add_input(input);
  for (auto& attribute : attributes) *node.add_attribute() = std::move(attribute);
  node.add_output(output);
  nodes_.push_back(std::move(node));
}

std::string NodeBuilder::Constant(onnx::TensorProto tensor, std::string_view role) {
  auto [it, fresh] = made_.try_emplace(tensor.SerializeAsString());
  if (!fresh) return it->second;
  const std::string scope = std::exchange(scope_, "constant");  // the scope in kConstants
  it->second = Unique(role);
  scope_ = scope;
  tensor.set_name(it->second);
  initializers_.push_back(std::move(tensor));
  return it->second;
}

std::string NodeBuilder::Extent(const std::string& value, int64_t axis, std::string_view role) {
  return Add("Shape", {value}, role,
             {MakeAttribute("start", axis), MakeAttribute("end", axis + 1)});
}

std::string NodeBuilder::Int64s(const std::vector<int64_t>& values) {
  std::string role = "ints";
  for (int64_t v : values) role += fmt::format("_{}", v);
  return Constant(MakeInt64Tensor("", {static_cast<int64_t>(values.size())}, values), role);
}

std::string NodeBuilder::Int64(int64_t value) {
  return Constant(MakeInt64Tensor("", {}, {value}), fmt::format("int_{}", value));
}

std::string NodeBuilder::Copy(onnx::TensorProto tensor, std::string_view role) {
  tensor.clear_name();
  return Constant(std::move(tensor), role);
}

std::string NodeBuilder::Bytes(const std::vector<int32_t>& values, std::string_view role) {
  onnx::TensorProto tensor;
  tensor.set_data_type(onnx::TensorProto::UINT8);
  tensor.add_dims(static_cast<int64_t>(values.size()));
  tensor.mutable_int32_data()->Add(values.begin(), values.end());
  return Constant(std::move(tensor), role);
}

std::string NodeBuilder::Floats(const std::vector<int64_t>& dims, const std::vector<float>& values,
                                std::string_view role) {
  onnx::TensorProto tensor;
  tensor.set_data_type(onnx::TensorProto::FLOAT);
  tensor.mutable_dims()->Add(dims.begin(), dims.end());
  tensor.mutable_float_data()->Add(values.begin(), values.end());
  return Constant(std::move(tensor), role);
}

std::string NodeBuilder::Scalar(double value, int32_t elem_type) {
  onnx::TensorProto tensor;
  tensor.set_data_type(elem_type);
  switch (elem_type) {
    case onnx::TensorProto::DOUBLE:
      tensor.add_double_data(value);
      break;
    case onnx::TensorProto::FLOAT16:
      tensor.add_int32_data(HalfBits(value));
      break;
    case onnx::TensorProto::BFLOAT16:
      tensor.add_int32_data(BfloatBits(value));
      break;
    case onnx::TensorProto::FLOAT:
      tensor.add_float_data(static_cast<float>(value));
      break;
    case onnx::TensorProto::INT64:
      tensor.add_int64_data(static_cast<int64_t>(value));
      break;
    case onnx::TensorProto::UINT32:
    case onnx::TensorProto::UINT64:
      tensor.add_uint64_data(static_cast<uint64_t>(value));
      break;
    default:
      tensor.add_int32_data(static_cast<int32_t>(value));
      break;
  }
  return Constant(std::move(tensor), fmt::format("scalar_{}", value));
}

}  // namespace kvlift
