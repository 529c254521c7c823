#include "onnxio/wire.h"

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

Type TypeOf(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_DOUBLE:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
      return Type::kFixed64;
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
      return Type::kFixed32;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE:
      return Type::kBytes;
    case FieldDescriptor::TYPE_GROUP:
      return Type::kGroup;
    default:
      return Type::kVarint;
  }
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
      to.type = TypeOf(field);
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

bool ReadVarint(std::string_view bytes, size_t* pos, uint64_t* value) {
  uint64_t result = 0;
  for (int shift = 0; shift < 7 * kMaxVarintBytes; shift += 7) {
    if (*pos >= bytes.size()) return false;
    const auto byte = static_cast<uint8_t>(bytes[(*pos)++]);
    result |= uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80u) == 0) {
      *value = result;
      return true;
    }
  }
  return false;
}

bool ReadTag(std::string_view bytes, size_t* pos, Tag* tag) {
  uint64_t value = 0;
  if (!ReadVarint(bytes, pos, &value) || value > UINT32_MAX) return false;
  tag->number = static_cast<uint32_t>(value >> 3);
  const auto type = static_cast<uint8_t>(value & 7);
  tag->type = static_cast<Type>(type);
  return tag->number != 0 && type <= 5;
}

bool Skip(std::string_view bytes, size_t* pos, Tag tag) {
  // The numbers of the open groups, the innermost last.
  std::vector<uint32_t> groups;
  for (;;) {
    size_t size = 0;
    uint64_t value = 0;
    switch (tag.type) {
      case Type::kVarint:
        if (!ReadVarint(bytes, pos, &value)) return false;
        break;
      case Type::kFixed64:
        size = 8;
        break;
      case Type::kFixed32:
        size = 4;
        break;
      case Type::kBytes:
        if (!ReadVarint(bytes, pos, &value) || value > bytes.size() - *pos) return false;
        size = static_cast<size_t>(value);
        break;
      case Type::kGroup:
        if (groups.size() > 100) return false;
        groups.push_back(tag.number);
        break;
      case Type::kEnd:
        if (groups.empty() || groups.back() != tag.number) return false;
        groups.pop_back();
        break;
    }
    if (size > bytes.size() - *pos) return false;
    *pos += size;
    if (groups.empty()) return true;
    if (!ReadTag(bytes, pos, &tag)) return false;
  }
}

size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

}  // namespace kvlift::wire
