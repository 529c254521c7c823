// Reads the protobuf wire format of a ModelProto without parsing it into messages: which messages
// and fields are where. Memory and recursion do not depend on what the bytes claim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvlift::wire {

enum class Type : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroup = 3,
  kEnd = 4,
  kFixed32 = 5
};

// Properties of a field, from ONNX's message descriptors.
struct FieldInfo {
  int message = -1;  // index into Schema() if the field is a message; else -1
  bool known = false;
  bool name = false;          // a string that names something; its length is limited
  bool numbers = false;       // repeated numbers, which may be packed
  Type type = Type::kVarint;  // of one element
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

// The messages of ONNX; [0] is ModelProto.
const std::vector<MessageInfo>& Schema();

inline constexpr int kMaxVarintBytes = 10;

// Reads at *pos and advances it. False if the bytes end, or the number has more than 64 bits.
bool ReadVarint(std::string_view bytes, size_t* pos, uint64_t* value);

struct Tag {
  uint32_t number = 0;
  Type type = Type::kVarint;
};
bool ReadTag(std::string_view bytes, size_t* pos, Tag* tag);

// Advances over the value of a field; a group is skipped with its content. False if it is cut off.
bool Skip(std::string_view bytes, size_t* pos, Tag tag);

size_t VarintSize(uint64_t value);
void AppendVarint(uint64_t value, std::string* out);

}  // namespace kvlift::wire
