// The bytes of a ModelProto as protobuf would read them, without reading it: which messages and
// fields stand where. Nothing here allocates by what the bytes claim, or calls itself.
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

// What a field is, from ONNX's own description of its messages.
struct FieldInfo {
  int message = -1;  // index into the schema, if the field is a message
  bool known = false;
  bool name = false;          // a text that names something; limited in length
  bool numbers = false;       // repeated numbers; may be packed
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
  std::vector<FieldInfo> fields;  // by number
};

// [0] is ModelProto.
const std::vector<MessageInfo>& Schema();

inline constexpr int kMaxVarintBytes = 10;

// Reads at *pos and moves it; false if the bytes end, or the number does not fit.
bool ReadVarint(std::string_view bytes, size_t* pos, uint64_t* value);

struct Tag {
  uint32_t number = 0;
  Type type = Type::kVarint;
};
bool ReadTag(std::string_view bytes, size_t* pos, Tag* tag);

// Moves over the value of a field, groups with all that is in them. False if it is cut off.
bool Skip(std::string_view bytes, size_t* pos, Tag tag);

size_t VarintSize(uint64_t value);
void AppendVarint(uint64_t value, std::string* out);

}  // namespace kvlift::wire
