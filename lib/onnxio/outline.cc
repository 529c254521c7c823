#include "onnxio/outline.h"

#include <cctype>
#include <string_view>

#include "base/escape.h"
#include "fmt/format.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "ir/spans.h"
#include "ir/tensor_data.h"
#include "onnxio/model.h"

namespace kvlift {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using onnx::TensorProto;

// ONNX's checker looks for no file where a location starts with '#'.
constexpr char kLeftOut[] = "#left-out";

// Returns true if ONNX text has numbers or strings for elements of this type.
bool HasText(int32_t type) {
  switch (type) {
    case TensorProto::FLOAT:
    case TensorProto::DOUBLE:
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16:
    case TensorProto::FLOAT8E4M3FN:
    case TensorProto::FLOAT8E4M3FNUZ:
    case TensorProto::FLOAT8E5M2:
    case TensorProto::FLOAT8E5M2FNUZ:
    case TensorProto::FLOAT8E8M0:
    case TensorProto::BOOL:
    case TensorProto::INT8:
    case TensorProto::INT16:
    case TensorProto::INT32:
    case TensorProto::INT64:
    case TensorProto::UINT8:
    case TensorProto::UINT16:
    case TensorProto::UINT32:
    case TensorProto::UINT64:
    case TensorProto::STRING:
      return true;
    default:
      return false;
  }
}

bool IsSpan(const TensorProto& tensor) {
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location" && entry.value().rfind(kSpanPrefix, 0) == 0) return true;
  }
  return false;
}

// Copies a message, with what an outline changes.
class Outliner {
 public:
  onnx::ModelProto Of(const onnx::ModelProto& model) {
    onnx::ModelProto outline;
    Copy(model, &outline);
    return outline;
  }

  int64_t left_out() const { return left_out_; }

 private:
  void Copy(const Message& from, Message* to) {
    if (const auto* tensor = dynamic_cast<const TensorProto*>(&from)) {
      CopyTensor(*tensor, dynamic_cast<TensorProto*>(to));
      return;
    }
    std::vector<const FieldDescriptor*> fields;
    const Reflection& read = *from.GetReflection();
    const Reflection& write = *to->GetReflection();
    read.ListFields(from, &fields);
    for (const FieldDescriptor* field : fields) {
      const bool text = field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && field->is_repeated()) {
        for (int k = 0; k < read.FieldSize(from, field); ++k) {
          Copy(read.GetRepeatedMessage(from, field, k), write.AddMessage(to, field));
        }
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        Copy(read.GetMessage(from, field), write.MutableMessage(to, field));
      } else if (text && field->is_repeated()) {
        for (int k = 0; k < read.FieldSize(from, field); ++k) {
          write.AddString(to, field, EscapeTerminal(read.GetRepeatedString(from, field, k)));
        }
      } else if (text) {
        write.SetString(to, field, EscapeTerminal(read.GetString(from, field)));
      } else {
        CopyNumbers(from, *field, to);
      }
    }
    if (auto* attribute = dynamic_cast<onnx::AttributeProto*>(to)) FitAttribute(attribute);
  }

  static void CopyNumbers(const Message& from, const FieldDescriptor& field, Message* to) {
    const Reflection& read = *from.GetReflection();
    const Reflection& write = *to->GetReflection();
    const bool many = field.is_repeated();
    const int count = many ? read.FieldSize(from, &field) : 1;
    for (int k = 0; k < count; ++k) {
      switch (field.cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT64:
          many ? write.AddInt64(to, &field, read.GetRepeatedInt64(from, &field, k))
               : write.SetInt64(to, &field, read.GetInt64(from, &field));
          break;
        case FieldDescriptor::CPPTYPE_INT32:
          many ? write.AddInt32(to, &field, read.GetRepeatedInt32(from, &field, k))
               : write.SetInt32(to, &field, read.GetInt32(from, &field));
          break;
        case FieldDescriptor::CPPTYPE_FLOAT:
          many ? write.AddFloat(to, &field, read.GetRepeatedFloat(from, &field, k))
               : write.SetFloat(to, &field, read.GetFloat(from, &field));
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          many ? write.AddEnumValue(to, &field, read.GetRepeatedEnumValue(from, &field, k))
               : write.SetEnumValue(to, &field, read.GetEnumValue(from, &field));
          break;
        default:  // ONNX's messages around tensors have no other types
          break;
      }
    }
  }

  // Copies a tensor, or its type and shape alone.
  void CopyTensor(const TensorProto& from, TensorProto* to) {
    const auto elements = NumElements(from);
    const bool here = from.data_location() != TensorProto::EXTERNAL || IsSpan(from);
    if (elements.ok() && *elements <= kMostOutlineElements && HasText(from.data_type()) && here) {
      *to = from;
      if (IsSpan(from)) {
        const RawData data = RawDataOf(from);
        to->clear_external_data();
        to->clear_data_location();
        to->set_raw_data(std::string(data.bytes));
      }
      for (std::string& text : *to->mutable_string_data()) text = EscapeTerminal(text);
    } else {
      ++left_out_;
      *to->mutable_dims() = from.dims();
      to->set_data_type(from.data_type());
      to->set_data_location(TensorProto::EXTERNAL);
      auto* entry = to->add_external_data();
      entry->set_key("location");
      entry->set_value(kLeftOut);
    }
    if (from.has_name()) to->set_name(EscapeTerminal(from.name()));
  }

  // The parser takes a quoted word in an attribute for a string, and needs a name for a tensor
  // whose elements are elsewhere.
  static void FitAttribute(onnx::AttributeProto* attribute) {
    const auto fit = [](TensorProto* tensor) {
      tensor->clear_name();
      if (tensor->data_location() == TensorProto::EXTERNAL) tensor->set_name("left_out");
    };
    if (attribute->has_t()) fit(attribute->mutable_t());
    for (TensorProto& tensor : *attribute->mutable_tensors()) fit(&tensor);
    if (attribute->has_g()) attribute->mutable_g()->set_name(Word(attribute->g().name()));
    for (onnx::GraphProto& body : *attribute->mutable_graphs()) body.set_name(Word(body.name()));
  }

  // Returns an identifier of ONNX text.
  static std::string Word(std::string_view name) {
    std::string word = "body_";
    for (const char c : name) {
      const auto byte = static_cast<unsigned char>(c);
      word += byte < 0x80 && std::isalnum(byte) != 0 ? c : '_';
    }
    return word;
  }

  int64_t left_out_ = 0;
};

}  // namespace

std::string PrintModelOutline(const onnx::ModelProto& model) {
  Outliner outliner;
  const onnx::ModelProto outline = outliner.Of(model);
  std::string text;
  if (outliner.left_out() > 0) {
    text = fmt::format(
        "# {} tensors are left out (\"{}\"): they have more than {} elements, or\n"
        "# elements that ONNX text cannot spell.\n",
        outliner.left_out(), kLeftOut, kMostOutlineElements);
  }
  text += PrintModelText(outline);
  if (!text.empty() && text.back() != '\n') text += '\n';
  return text;
}

}  // namespace kvlift
