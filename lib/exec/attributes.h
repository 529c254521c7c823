// The attributes of a node in the form that kernels look them up in: read once when a program is
// compiled, found by comparing two words.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "onnx/onnx_pb.h"

namespace kvlift::exec {

struct NamedAttribute {
  uint64_t head = 0;  // the first 8 characters of the name
  std::string_view name;
  const onnx::AttributeProto* proto = nullptr;
};

// The first 8 characters, the rest 0. A constant for a literal.
constexpr uint64_t HeadOf(std::string_view name) {
  uint64_t head = 0;
  for (size_t i = 0; i < 8 && i < name.size(); ++i) {
    head |= static_cast<uint64_t>(static_cast<unsigned char>(name[i])) << (8 * i);
  }
  return head;
}

// Points into `node`, which must stay as it is.
class Attributes {
 public:
  Attributes() = default;
  explicit Attributes(const onnx::NodeProto& node) {
    list_.reserve(static_cast<size_t>(node.attribute_size()));
    for (const onnx::AttributeProto& a : node.attribute()) {
      list_.push_back({HeadOf(a.name()), a.name(), &a});
    }
  }

  // Null if there is none of this name.
  const onnx::AttributeProto* Find(uint64_t head, std::string_view name) const {
    for (const NamedAttribute& a : list_) {
      if (a.head == head && a.name.size() == name.size() && (name.size() <= 8 || a.name == name)) {
        return a.proto;
      }
    }
    return nullptr;
  }

 private:
  std::vector<NamedAttribute> list_;
};

}  // namespace kvlift::exec
