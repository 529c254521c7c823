// Properties of the fields of ONNX's messages, for code that reads a ModelProto's bytes without
// parsing it into messages.
#pragma once

#include <cstdint>
#include <vector>

#include "google/protobuf/wire_format_lite.h"

namespace kvlift::wire {

using google::protobuf::internal::WireFormatLite;

struct FieldInfo {
  int message = -1;  // index into Schema() if the field is a message; else -1
  bool known = false;
  bool name = false;     // a string that names something; its length is limited
  bool numbers = false;  // repeated numbers, which may be packed
  WireFormatLite::WireType type = WireFormatLite::WIRETYPE_VARINT;  // of one element
};

enum class Kind : uint8_t {
  kOther,
  kModel,
  kGraph,
  kNode,
  kAttribute,
  kTensor,
  kSparse,
  kShape,
  kFunction
};

struct MessageInfo {
  Kind kind = Kind::kOther;
  std::vector<FieldInfo> fields;  // by field number
};

// Returns the messages of ONNX, from their descriptors; [0] is ModelProto.
const std::vector<MessageInfo>& Schema();

}  // namespace kvlift::wire
