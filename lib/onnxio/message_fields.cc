#include "onnxio/message_fields.h"

#include <map>

#include "google/protobuf/descriptor.h"
#include "onnx/onnx_pb.h"

namespace kvlift::wire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Documentation, and values of string-to-string entries, do not name anything.
bool IsName(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_STRING && field.name() != "doc_string" &&
         field.name() != "value";
}

Kind KindOf(const Descriptor* message) {
  static const auto* const kinds =
      new std::map<const Descriptor*, Kind>{{onnx::ModelProto::descriptor(), Kind::kModel},
                                            {onnx::GraphProto::descriptor(), Kind::kGraph},
                                            {onnx::NodeProto::descriptor(), Kind::kNode},
                                            {onnx::AttributeProto::descriptor(), Kind::kAttribute},
                                            {onnx::TensorProto::descriptor(), Kind::kTensor},
                                            {onnx::SparseTensorProto::descriptor(), Kind::kSparse},
                                            {onnx::TensorShapeProto::descriptor(), Kind::kShape},
                                            {onnx::FunctionProto::descriptor(), Kind::kFunction}};
  const auto it = kinds->find(message);
  return it == kinds->end() ? Kind::kOther : it->second;
}

std::vector<MessageInfo> BuildSchema() {
  std::vector<const Descriptor*> found = {onnx::ModelProto::descriptor()};
  std::map<const Descriptor*, int> index = {{found[0], 0}};
  std::vector<MessageInfo> schema;
  for (size_t m = 0; m < found.size(); ++m) {
    MessageInfo info;
    info.kind = KindOf(found[m]);
    for (int f = 0; f < found[m]->field_count(); ++f) {
      const FieldDescriptor& field = *found[m]->field(f);
      const auto number = static_cast<size_t>(field.number());
      if (number >= info.fields.size()) info.fields.resize(number + 1);
      FieldInfo& to = info.fields[number];
      to.known = true;
      to.name = IsName(field);
      to.type = WireFormatLite::WireTypeForFieldType(
          static_cast<WireFormatLite::FieldType>(field.type()));
      to.numbers = field.is_packable();
      if (field.message_type() == nullptr) continue;
      const auto [it, added] =
          index.try_emplace(field.message_type(), static_cast<int>(found.size()));
      if (added) found.push_back(field.message_type());
      to.message = it->second;
    }
    schema.push_back(std::move(info));
  }
  return schema;
}

}  // namespace

const std::vector<MessageInfo>& Schema() {
  static const auto* const schema = new std::vector<MessageInfo>(BuildSchema());
  return *schema;
}

}  // namespace kvlift::wire
