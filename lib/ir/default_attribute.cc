#include "ir/default_attribute.h"

#include "onnx/defs/schema.h"

namespace kvlift {

DefaultAttribute DefaultAttributeOf(const onnx::NodeProto& node, const std::string& name,
                                    int64_t version) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return {};
  const auto* schema = onnx::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(version));
  if (schema == nullptr) schema = onnx::OpSchemaRegistry::Schema(node.op_type());
  if (schema == nullptr) return {};
  const auto found = schema->attributes().find(name);
  if (found == schema->attributes().end()) return {};
  const onnx::AttributeProto& value = found->second.default_value;
  return {true, value.type() == onnx::AttributeProto::UNDEFINED ? nullptr : &value};
}

}  // namespace kvlift
